"""Write the measured numbers of README.md and docs/ from the records they come from.

usage: python tools/readme_numbers.py [--check]

A text between `<!-- measured NAME -->` and `<!-- end -->` is replaced by what its record in docs/records says; with
--check nothing is written and a stale text is an error.
"""

import json
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
BLOCK = re.compile(r"(<!-- measured ([a-z0-9-]+) -->\n).*?(<!-- end -->)", re.DOTALL)


def demo(record: dict[str, Any]) -> str:
    """The verdicts of `gradveil demo --json`."""
    lines = ["| attack | defense | what the page says |", "|---|---|---|"]
    attacks = {image["model"]: image["attack"] for image in record["images"]}
    for verdict in record["verdicts"]:
        defense = "none" if verdict["defense"] == "none" else f"`{verdict['defense']}`"
        lines.append(
            f"| {attacks[verdict['model']]} on {verdict['stage']} {verdict['model']} | {defense} | {verdict['text']} |"
        )
    return "\n".join(lines) + "\n"


def train_resnet20(record: dict[str, Any]) -> str:
    """The result of `gradveil train --json`."""
    return (
        f"`{record['model']}` on `{record['dataset']}`, {record['epochs']} epochs: test accuracy "
        f"{record['accuracy']:.1%} ± {record['accuracy_se']:.1%} "
        f"(n={record['test_images']} test images, one training with seed {record['seed']}).\n"
    )


def bench(record: list[dict[str, Any]]) -> str:
    """The ratios of `make bench`."""
    lines = ["| measured | faster (quartiles) | ours | baseline | settings |", "|---|---|---|---|---|"]
    for row in record:
        low, high = row["quartiles"]
        figures = f"{row['ours']:.4g} {row['unit']} | {row['baseline']:.4g} {row['unit']}"
        lines.append(
            f"| {row['name']} | {row['value']:.2f}x ({low:.2f} to {high:.2f}) | {figures} | {row['settings']} |"
        )
    return "\n".join(lines) + "\n"


def search(record: list[dict[str, Any]]) -> str:
    """What `make bench` says of scores and searches."""
    lines = ["| measured | ours | published procedure | ratio | settings |", "|---|---|---|---|---|"]
    for row in record:
        if any(word in row["name"] for word in ("score a policy", "search", "S_pri", "intervals", "orders")):
            figures = f"{row['ours']:.4g} {row['unit']} | {row['baseline']:.4g} {row['unit']}"
            lines.append(f"| {row['name']} | {figures} | {row['value']:.3g} | {row['settings']} |")
    return "\n".join(lines) + "\n"


def calibration(record: dict[str, Any]) -> str:
    """Which share of random policies passes the accuracy filter."""
    settings, published = record["settings"], record["published"]
    allowances = list(settings[0]["passing"])
    lines = [
        f"Share of {settings[0]['policies']} random policies that pass, by `--redundancy`:\n",
        "| images | network's classes | " + " | ".join(allowances) + " |",
        "|---|---|" + "---|" * len(allowances),
    ]
    for row in settings:
        shares = " | ".join(f"{row['passing'][allowance]:.0%}" for allowance in allowances)
        lines.append(f"| {row['dataset']}, untrained {row['model']} | {row['classes']} | {shares} |")
    if published is not None:
        lines.append(
            f"\nThe published -85 on {published['images']} images corresponds to a `--redundancy` of "
            f"{published['allowance']:.1f} on photographs (untrained resnet20-4 with 100 classes on CIFAR-10 images; "
            "S_acc does not look at labels)."
        )
    return "\n".join(lines) + "\n"


def predictors(record: dict[str, Any]) -> str:
    """How well each score predicts what an attack gains, from `python -m bench.predictors`."""
    settings = record["settings"]
    lines = [
        "| `--score` | gradients per image | Spearman with the attack's gain (95%) | better than `grad-sim` by (95%) | "
        "better than `smoothness` by (95%) |",
        "|---|---|---|---|---|",
    ]
    for row in record["scores"]:
        low, high = row["spearman_interval"]
        gaps = []
        for other, name in (("published", "grad-sim"), ("smoothness", "smoothness")):
            worse, better = row[f"spearman_over_{other}_interval"]
            gap = f"{row[f'spearman_over_{other}']:+.2f} ({worse:+.2f} to {better:+.2f})"
            gaps.append("" if row["score"] == name else gap)
        lines.append(
            f"| {row['score']} | {row['evaluations']:.0f} | {row['spearman']:+.2f} ({low:+.2f} to {high:+.2f}) | "
            f"{' | '.join(gaps)} |"
        )
    lines.append(
        f"\nOver {record['n']} random policies that nothing was tuned on: {settings['attack']} with "
        f"{settings['iterations']} iterations on {settings['images']} images each, {settings['stage']} {settings['model']}, "
        f"{settings['dataset']}; scores on {settings['scored']} other images. The gains themselves have a reliability of "
        f"{record['gain_reliability']:.2f}. `variance` and `smoothness` look at no gradient at all: a score that does not beat "
        "them has learned nothing from the network. A score is better where the interval excludes 0."
    )
    return "\n".join(lines) + "\n"


def inverting(record: dict[str, Any]) -> str:
    """How long the published quality takes, from `python -m bench.inverting`."""
    lines = [
        "| untrained network | published PSNR | `fast` PSNR | difference (se) | published s | `fast` s | faster (quartiles) |",
        "|---|---|---|---|---|---|---|",
    ]
    for row in record["models"]:
        theirs, ours = row["published"], row["ours"]
        low, high = row["times_faster_quartiles"]
        lines.append(
            f"| {row['model']} | {theirs['psnr']:.2f} ± {theirs['psnr_sd']:.2f} | {ours['psnr']:.2f} ± {ours['psnr_sd']:.2f} | "
            f"{row['psnr_difference']:+.2f} ({row['psnr_difference_se']:.2f}) | {theirs['seconds']:.0f} | "
            f"{ours['seconds']:.0f} | {row['times_faster']:.1f}x ({low:.1f} to {high:.1f}) |"
        )
    lines.append(
        f"\n{record['images']} images of {record['dataset']}, PSNR in dB with the standard deviation between images; "
        f"published: {record['published']}, ours: {record['ours']}; seconds of processor time per image, one thread."
    )
    return "\n".join(lines) + "\n"


def table2(record: dict[str, Any]) -> str:
    """The six attacks of Table 2, from `python -m bench.table2`."""
    lines = ["| attack | defense | PSNR here | gain | n (diverged) | published PSNR |", "|---|---|---|---|---|---|"]
    for row in record["rows"]:
        here = "" if row["psnr"] is None else f"{row['psnr']:.1f} ± {row['psnr_sd'] or 0:.1f}"
        gain = "" if row["gain"] is None else f"{row['gain']:+.1f}"
        count = f"{row['n']} ({row['diverged']})"
        lines.append(f"| {row['attack']} | `{row['defense']}` | {here} | {gain} | {count} | {row['published']:.2f} |")
    orders = ", ".join(f"{value:+.2f} for `{defense}`" for defense, value in record["rank_correlation"].items())
    lines.append(
        f"\n{record['model']}, {record['epochs']} epochs on {record['dataset']} ({record['accuracy']:.0%} accuracy), an eighth "
        "of the published iterations; PSNR in dB to the shared image with the standard deviation between images. Spearman's "
        f"correlation of the attacks' order with the published one: {orders}."
    )
    return "\n".join(lines) + "\n"


def adaptive(record: dict[str, Any]) -> str:
    """What knowing the defense is worth, from `python -m bench.adaptive`."""
    lines = [
        "| untrained network | defense | plain attacker | attacker who knows it | won (standard error) |",
        "|---|---|---|---|---|",
    ]
    for row in record["rows"]:
        figures = [
            f"{row[who]['psnr']:.1f} ± {row[who]['psnr_sd']:.1f} ({row[who]['gain']:+.1f})" if who in row else ""
            for who in ("plain", "adaptive")
        ]
        won = f"{row['won']:+.1f} ({row['won_se']:.1f})" if "won" in row else ""
        lines.append(f"| {row['model']} | `{row['defense']}` | {figures[0]} | {figures[1]} | {won} |")
    lines.append(
        f"\n{record['attack']} with {record['iterations']} iterations on {len(record['images'])} images of {record['dataset']}: "
        "PSNR to the original in dB with the standard deviation between images, in brackets the mean gain over a guess of one "
        "colour. The attacker who knows a policy has the training images as public ones."
    )
    return "\n".join(lines) + "\n"


def precode(record: dict[str, Any]) -> str:
    """What the bottleneck's size and weight cost and hide, from `python -m bench.precode`."""
    lines = [
        "| network | defense | test accuracy (standard error, seeds) | plain attacker | attacker who knows it |",
        "|---|---|---|---|---|",
    ]
    lines += [
        f"| {row['model']} | `{row['defense']}` | {_accuracy(row)} | {_seen(row, 'plain')} | {_seen(row, 'adaptive')} |"
        for row in record["rows"]
    ]
    settings = "; ".join(
        f"{name}: {case['epochs']} epochs, batches of {case['batch_size']}, rate {case['lr']:g}, attacked by {case['attack']} "
        f"with {case['iterations']} iterations"
        for name, case in record["cases"].items()
    )
    lines.append(
        f"\n{record['dataset']}, short trainings ({settings}): accuracy on {record['test_images']} test images, its standard "
        "error over seeds where there are several and else over test images. Attacks are on the untrained network, on "
        f"{len(record['images'])} images: PSNR to the original in dB with the standard deviation between images, in brackets the "
        "mean gain over a guess of one colour; attacks that diverged are counted in, and say nothing for the defense. One rate "
        "was set per network, by test accuracy without PRECODE and with k=256, beta=0.001: other settings may want another."
    )
    return "\n".join(lines) + "\n"


def _accuracy(row: dict[str, Any]) -> str:
    return f"{row['accuracy']:.1%} ({row['accuracy_se']:.1%}, {row['seeds']})"


def _seen(row: dict[str, Any], attacker: str) -> str:
    """What an attacker gets, where it was tried."""
    if attacker not in row:
        return ""
    found = row[attacker]
    diverged = f", {found['diverged']} diverged" if found["diverged"] else ""
    return f"{found['psnr']:.1f} ± {found['psnr_sd']:.1f} ({found['gain']:+.1f}){diverged}"


def defenses(record: dict[str, Any]) -> str:
    """All defenses side by side, from `python -m bench.defenses`."""
    lines = [
        "| defense | test accuracy (standard error, seeds) | epsilon | plain attacker | attacker who knows it |",
        "|---|---|---|---|---|",
    ]
    for row in record["rows"]:
        epsilon = f"{row['epsilon']:,.{0 if row['epsilon'] > 100 else 2}f}" if "epsilon" in row else ""
        defense = row["defense"].replace("|", "\\|")
        lines.append(
            f"| `{defense}` | {_accuracy(row)} | {epsilon} | {_seen(row, 'plain')} | {_seen(row, 'adaptive')} |"
        )
    deltas = ", ".join(sorted({f"{row['delta']:g}" for row in record["rows"] if "delta" in row}))
    lines.append(
        f"\n`{record['model']}` on {record['dataset']}, {record['epochs']} epochs with batches of {record['batch_size']} and "
        f"rate {record['lr']:g} for all of them: accuracy on {record['test_images']} test images, its standard error over seeds "
        f"where there are several and else over test images; epsilon at delta {deltas}. Attacks ({record['attack']}, "
        f"{record['iterations']} iterations) are on the gradient of one image on the untrained network, for "
        f"{len(record['images'])} images: PSNR to the original in dB with the standard deviation between images, in brackets "
        "the mean gain over a guess of one colour; attacks that diverged are counted in, and say nothing for the defense."
    )
    return "\n".join(lines) + "\n"


def federated(record: dict[str, Any]) -> str:
    """Ten participants against central training, from `python -m bench.federated`."""
    lines = ["| images dealt out | central | ten participants | difference in points |", "|---|---|---|---|"]
    for row in record["rows"]:
        figures = [", ".join(f"{value:.1%}" for value in row[side]) for side in ("central", "federated")]
        spread = "" if row["gap_sd"] is None else f" ± {100 * row['gap_sd']:.1f}"
        lines.append(
            f"| `{row['partition']}` | {figures[0]} | {figures[1]} | {100 * row['gap']:+.1f}{spread} (n={len(row['central'])}) |"
        )
    lines.append(
        f"\n`{record['model']}` on {record['dataset']}: test accuracy (n={record['test_images']} images) of one training per "
        f"seed, {record['steps']} steps of {record['batch']} images on both sides; the difference with its standard deviation."
    )
    return "\n".join(lines) + "\n"


def curious(record: dict[str, Any]) -> str:
    """Leakage per round, from `python -m bench.federated`."""
    found = record["curious"]
    sizes = sorted({leak["participants"] for row in found["rows"] for leak in row["leakage"]})
    heads = ["one update" if size == 1 else f"mean of {size}" for size in sizes]
    lines = ["| defense | round | accuracy | " + " | ".join(heads) + " |", "|---|---|---|" + "---|" * len(sizes)]
    for row in found["rows"]:
        accuracies = {one["round"]: one["accuracy"] for one in row["history"]}
        leaks = {(leak["round"], leak["participants"]): leak for leak in row["leakage"]}
        for number in sorted({place[0] for place in leaks}):
            cells = []
            for size in sizes:
                leak = leaks[number, size]
                spread = "" if leak["gain_sd"] is None else f" ± {leak['gain_sd']:.1f}"
                cells.append(f"{leak['gain']:+.1f}{spread} (n={leak['images']})")
            lines.append(f"| `{row['defense']}` | {number} | {accuracies[number]:.1%} | {' | '.join(cells)} |")
    plan = found["plan"]
    lines.append(
        f"\n`{plan['model']}`, {plan['participants']} participants with {plan['batch']} image each per round, {found['attack']} "
        f"with {found['iterations']} iterations by an attacker who ignores the defense: gain over a guess of one colour in dB, "
        "mean ± standard deviation over images, to what was shared. One training per defense."
    )
    return "\n".join(lines) + "\n"


# The writer of a block, and the record it reads.
WRITERS: dict[str, tuple[Callable[[Any], str], str]] = {
    "demo": (demo, "demo"),
    "train-resnet20": (train_resnet20, "train-resnet20"),
    "bench": (bench, "bench"),
    "search": (search, "bench"),
    "calibration": (calibration, "calibration"),
    "predictors": (predictors, "predictors"),
    "inverting": (inverting, "inverting"),
    "table2": (table2, "table2"),
    "adaptive": (adaptive, "adaptive"),
    "precode": (precode, "precode"),
    "defenses": (defenses, "defenses"),
    "federated": (federated, "federated"),
    "curious": (curious, "federated"),
}


def measured(page: str) -> str:
    """`page` with every measured block written from its record."""

    def fill(match: re.Match[str]) -> str:
        write, name = WRITERS[match[2]]
        record = json.loads((ROOT / "docs" / "records" / f"{name}.json").read_text())
        return match[1] + write(record) + match[3]

    return BLOCK.sub(fill, page)


def main(check: bool) -> int:
    """Update or check every page."""
    stale = [page for page in PAGES if measured(page.read_text()) != page.read_text()]
    for page in stale:
        if check:
            print(f"{page.relative_to(ROOT)}: its numbers are not those of docs/records", file=sys.stderr)
        else:
            page.write_text(measured(page.read_text()))
    return int(check and bool(stale))


if __name__ == "__main__":
    sys.exit(main("--check" in sys.argv[1:]))
