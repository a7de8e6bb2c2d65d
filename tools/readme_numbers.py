"""Write the measured numbers of README.md and docs/ from the records they come from.

usage: python tools/readme_numbers.py [--check]

A text between `<!-- measured NAME -->` and `<!-- end -->` is replaced by what its record in docs/records says; with
--check nothing is written and a stale text is an error.
"""

import json
import re
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
BLOCK = re.compile(r"(<!-- measured ([a-z0-9-]+) -->\n).*?(<!-- end -->)", re.DOTALL)


def demo(record: dict[str, Any]) -> str:
    """What `gradveil demo --json` says of each defense."""
    lines = ["| defense | attacker who ignores it | attacker who knows it | accuracy lost (95%) |", "|---|---|---|---|"]
    for row in record["rows"]:
        seen = ["" if row[who] is None else _ranked(row[who]) for who in ("plain", "adaptive")]
        loss, cost = row["loss"], ""
        if loss is not None and row["defense"] != "none":
            cost = f"{100 * loss['loss']:.0f} points ({100 * loss['low']:.0f} to {100 * loss['high']:.0f})"
        lines.append(f"| `{row['defense']}` | {seen[0]} | {seen[1]} | {cost} |")
    bare = [one["accuracy"] for one in record["accuracies"] if one["defense"] == "none"]
    lines.append(
        f"\n{record['stage'].capitalize()} `{record['model']}` on {record['dataset']}, {record['images']} images, "
        f"{' and '.join(record['attacks'])}: the grade, and the mean fraction of other images of its class that the private "
        f"image ranks above (95% interval; 50% is chance). `{record['policy']}` is the searched policy, `random` the control. "
        f"Undefended accuracy {sum(bare) / len(bare):.0%}, {len(bare)} short trainings each."
    )
    return "\n".join(lines) + "\n"


def _ranked(found: dict[str, Any]) -> str:
    return f"{found['grade']}: {found['percentile']:.0%} ({100 * found['low']:.0f} to {100 * found['high']:.0f})"


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
        # Workers are compared with one worker, not with what was published.
        if row.get("part") != "scaling" and any(
            word in row["name"] for word in ("score a policy", "search", "S_pri", "intervals", "orders")
        ):
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
    """How well each score predicts what an attacker gets, from `python -m bench.predictors`."""
    settings = record["settings"]
    lines = [
        "| `--score` | gradients per image | Spearman with identification (95%) | better than `grad-sim` by (95%) | "
        "better than `smoothness` by (95%) | Spearman with detail (95%) |",
        "|---|---|---|---|---|---|",
    ]
    for row in record["scores"]:
        gaps = []
        for other, name in (("published", "grad-sim"), ("smoothness", "smoothness")):
            gaps.append("" if row["score"] == name else _correlation(row, f"percentile_over_{other}"))
        lines.append(
            f"| {row['score']} | {row['evaluations']:.0f} | {_correlation(row, 'percentile')} | {' | '.join(gaps)} | "
            f"{_correlation(row, 'detail')} |"
        )
    sure = record["reliability"]
    lines.append(
        f"\nOver {record['n']} random policies that nothing was tuned on: {settings['attack']} with "
        f"{settings['iterations']} iterations on {settings['images']} images each by an attacker who knows the policy, "
        f"{settings['stage']} {settings['model']}, {settings['dataset']}; scores on {settings['scored']} other images. What is "
        f"predicted has itself a reliability of {sure['percentile']:.2f} (mean percentile among decoys) and {sure['detail']:.2f} "
        "(detail). `variance` and `smoothness` look at no gradient at all: a score that does not beat them has learned nothing "
        "from the network. A score is better where the interval excludes 0."
    )
    return "\n".join(lines) + "\n"


def _correlation(row: dict[str, Any], name: str) -> str:
    low, high = row[f"{name}_interval"]
    return f"{row[name]:+.2f} ({low:+.2f} to {high:+.2f})"


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


def tenth(record: dict[str, Any]) -> str:
    """How near a tenth of the iterations comes, from `python -m bench.tenth`."""
    lines = [
        "| untrained network | published: ranks above, first, detail | `tenth`: ranks above, first, detail "
        "| difference in detail (se) | quartiles |",
        "|---|---|---|---|---|",
    ]
    for row in record["models"]:
        low, _, high = row["difference_quartiles"]
        sides = (
            f"{one['percentile']:.0%}, {one['first']}/{record['images']}, {one['detail']:+.1f} ± {one['detail_sd']:.1f}"
            for one in (row["published"], row["ours"])
        )
        lines.append(
            f"| {row['model']} | {' | '.join(sides)} | {row['difference']:+.1f} ({row['difference_se']:.1f}) | "
            f"{low:+.1f} to {high:+.1f} |"
        )
    for row in record["models"]:
        budgets = row.get("budgets", [])
        if budgets:
            lines += [
                "",
                f"| `tenth` on {row['model']}: iterations | ranks above | first | detail |",
                "|---|---|---|---|",
            ]
        for one in budgets:
            first, detail = f"{one['first']}/{record['images']}", f"{one['detail']:+.1f} ± {one['detail_sd']:.1f}"
            lines.append(f"| {one['iterations']} | {one['percentile']:.0%} | {first} | {detail} |")
    published, ours = record["iterations"]
    lines.append(
        f"\n{record['images']} images of {record['dataset']} that nothing was chosen on; published: {record['published']}, "
        f"{published} iterations, ours: {record['ours']}, {ours}; detail in dB with the standard deviation between images."
    )
    return "\n".join(lines) + "\n"


# What a cell with an identification says.
RANKS = (
    "the mean share of its class below the private image (95% interval; chance is 50%), and how often it comes first"
)
LEGEND = (
    f"A cell begins with the grade. Then come {RANKS}. The last number is the detail: dB above the guess without the "
    "gradient."
)


def _identified(found: dict[str, Any]) -> str:
    """`97% (93 to 99), first 10/12`."""
    low, high = found["interval"]
    diverged = f", {found['diverged']} diverged" if found["diverged"] else ""
    return f"{found['percentile']:.0%} ({100 * low:.0f} to {100 * high:.0f}), first {found['first']}/{found['n']}{diverged}"


def _seen(row: dict[str, Any], attacker: str) -> str:
    """What an attacker gets, where it was tried."""
    if attacker not in row:
        return ""
    found = row[attacker]
    return f"{found['grade']}: {_identified(found)}; {found['detail']:+.1f} dB"


def adaptive(record: dict[str, Any]) -> str:
    """What knowing the defense is worth, from `python -m bench.adaptive`."""
    lines = [
        "| untrained network | defense | plain attacker | attacker who knows it | won, in points and dB (standard error) |",
        "|---|---|---|---|---|",
    ]
    for row in record["rows"]:
        won = ""
        if "psnr_won" in row:
            points, error = 100 * row["percentile_won"], 100 * row["percentile_won_se"]
            won = f"{points:+.0f} ({error:.0f}), {row['psnr_won']:+.1f} ({row['psnr_won_se']:.1f})"
        lines.append(
            f"| {row['model']} | `{row['defense']}` | {_seen(row, 'plain')} | {_seen(row, 'adaptive')} | {won} |"
        )
    lines.append(
        f"\n{record['attack']} with {record['iterations']} iterations on {len(record['images'])} images of {record['dataset']}. "
        f"{LEGEND} Both attackers have the training images as public ones."
    )
    return "\n".join(lines) + "\n"


def leakage(record: dict[str, Any]) -> str:
    """Identification beside the figure that papers go by, from `python -m bench.leakage`."""
    lines = [
        "| network, attack | defense | attacker | PSNR over one colour | ranks above (95%) | first | detail | grade |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for row in record["rows"]:
        low, high = row["interval"]
        attack = f"{row['stage']} {row['model']}, {row['attack']} {row['iterations']}"
        ranks = f"{row['percentile']:.0%} ({100 * low:.0f} to {100 * high:.0f})"
        old = f"{row['over_one_colour']:+.1f} ± {row['over_one_colour_sd']:.1f}"
        lines.append(
            f"| {attack} | `{row['defense']}` | {row['attacker']} | {old} | {ranks} | {row['first']} of {row['n']} | "
            f"{row['detail']:+.1f} ± {row['detail_sd']:.1f} | {row['grade']} |"
        )
    lines.append(
        f"\n{len(record['images'])} images of {record['dataset']} per row. *PSNR over one colour*: dB above the best single "
        "colour. *Ranks above*: mean share of its class below the private image; chance is 50%. *Detail*: dB above the guess "
        "without the gradient."
    )
    return "\n".join(lines) + "\n"


def no_gradient(record: dict[str, Any]) -> str:
    """What class means get without a gradient, from `python -m bench.leakage`."""
    found = record["no_gradient"]
    over = f"{found['over_one_colour']:.1f} ± {found['over_one_colour_sd']:.1f}"
    return (
        f"The mean picture of the class, without any gradient, is {over} dB above the best single colour ({found['images']} "
        f"images). Among eight images of eight classes, class means pick {found['picked_of_eight']:.1f} ± "
        f"{found['picked_sd']:.1f} right ({found['trials']} draws).\n"
    )


def calibrated(record: dict[str, Any]) -> str:
    """What comes out where nothing can, from `python -m bench.leakage`."""
    found = record["calibration"]
    lines = [
        "| nothing to find | n | ranks above (95%) | first (by chance) | p | p-values of groups of ten: uniform? | below 5% |",
        "|---|---|---|---|---|---|---|",
    ]
    for name, title in (("noise", f"`{found['defense']}`"), ("placebo", "placebo")):
        row = found[name]
        low, high = row["interval"]
        ranks = f"{row['percentile']:.1%} ({100 * low:.1f} to {100 * high:.1f})"
        lines.append(
            f"| {title} | {row['n']} | {ranks} | {row['first']} ({row['first_chance']:.1f}) | {row['p']:.2f} | "
            f"p = {row['uniform_p']:.2f} | {row['below_5_percent']} of {row['groups']} |"
        )
    return "\n".join(lines) + "\n"


def estimates(record: dict[str, Any]) -> str:
    """What attackers make of a rebuilt picture, from `python -m bench.estimates`."""
    lines = [
        "| untrained network | defense | attacker | as rebuilt | smoothed | with public images | guess without the gradient |",
        "|---|---|---|---|---|---|---|",
    ]

    def cell(row: dict[str, Any], name: str) -> str:
        return f"{row[name]['psnr']:.1f} ± {row[name]['sd']:.1f}" if name in row else ""

    for row in record["rows"]:
        used = "undone" if "undone" in row else "estimate"
        figures = " | ".join(cell(row, name) for name in ("as it is", "smoothed", used, "guess"))
        lines.append(f"| {row['model']} | `{row['defense']}` | {row['attacker']} | {figures} |")
    several = [row for row in record["rows"] if "mean of runs" in row]
    runs = "; ".join(
        f"`{row['defense']}` {cell(row, 'estimate of the best')} from the best run and {cell(row, 'estimate of the mean')} from "
        "the mean of runs"
        for row in several
    )
    lines.append(
        f"\nPSNR in dB to the private image, mean ± standard deviation over {len(record['images'])} images of "
        f"{record['dataset']}: the rebuilt picture as it is; with smoothness alone, for an attacker without public images; the "
        "estimate with public images (behind a policy, undone); the guess. Four runs instead of one, on "
        f"{several[0]['mean of runs']['n']} images: {runs}."
    )
    return "\n".join(lines) + "\n"


def precode(record: dict[str, Any]) -> str:
    """What the bottleneck's size and weight hide and cost, from `python -m bench.precode`."""
    costs = _record("precode-accuracy")
    lines = [
        "| network | defense | test accuracy (standard error, seeds) | plain attacker | attacker who knows it |",
        "|---|---|---|---|---|",
    ]
    attacked = {(row["model"], row["defense"]): row for row in record["rows"]}
    for row in costs["rows"]:
        found = attacked.get((row["model"], row["defense"]), {})
        seen = f"{_seen(found, 'plain')} | {_seen(found, 'adaptive')}"
        lines.append(f"| {row['model']} | `{row['defense']}` | {_accuracy(row)} | {seen} |")
    settings = "; ".join(
        f"{name}: {case['epochs']} epochs, batches of {case['batch_size']}, rate {case['lr']:g}, attacked by {case['attack']} "
        f"with {case['iterations']} iterations"
        for name, case in record["cases"].items()
    )
    lines.append(
        f"\n{record['dataset']}, short trainings ({settings}): accuracy on {costs['test_images']} test images, its standard "
        "error over seeds where there are several and else over test images. Attacks are on the untrained network, on "
        f"{len(record['images'])} images. {LEGEND} One rate was set per network, by test accuracy "
        "without PRECODE and with k=256, beta=0.001: other settings may want another."
    )
    return "\n".join(lines) + "\n"


def _accuracy(row: dict[str, Any]) -> str:
    return f"{row['accuracy']:.1%} ({row['accuracy_se']:.1%}, {row['seeds']})"


def defenses(record: dict[str, Any]) -> str:
    """All defenses side by side, from `python -m bench.defenses`."""
    costs = _record("defenses-accuracy")
    lines = [
        "| defense | test accuracy (standard error, seeds) | epsilon | plain attacker | attacker who knows it |",
        "|---|---|---|---|---|",
    ]
    attacked = {row["defense"]: row for row in record["rows"]}
    for row in costs["rows"]:
        epsilon = f"{row['epsilon']:,.{0 if row['epsilon'] > 100 else 2}f}" if "epsilon" in row else ""
        defense, found = row["defense"].replace("|", "\\|"), attacked[row["defense"]]
        lines.append(
            f"| `{defense}` | {_accuracy(row)} | {epsilon} | {_seen(found, 'plain')} | {_seen(found, 'adaptive')} |"
        )
    deltas = ", ".join(sorted({f"{row['delta']:g}" for row in costs["rows"] if "delta" in row}))
    lines.append(
        f"\n`{record['model']}` on {record['dataset']}, {costs['epochs']} epochs with batches of {costs['batch_size']} and "
        f"rate {costs['lr']:g} for all of them: accuracy on {costs['test_images']} test images, its standard error over seeds "
        f"where there are several and else over test images; epsilon at delta {deltas}. Attacks ({record['attack']}, "
        f"{record['iterations']} iterations) are on the gradient of one image on the untrained network, for up to "
        f"{len(record['images'])} images. {LEGEND}"
    )
    return "\n".join(lines) + "\n"


def survives(record: dict[str, Any]) -> str:
    """Does a defense survive an attacker who knows it? The grades of all of them, and what they cost."""
    costs = {row["defense"]: row for row in _record("defenses-accuracy")["rows"]}
    lines = [
        "| defense | attacker who ignores it | attacker who knows it | images | accuracy |",
        "|---|---|---|---|---|",
    ]
    for row in record["rows"]:
        plain, adaptive = row["plain"], row.get("adaptive")
        knows = "" if adaptive is None else f"**{adaptive['grade']}** ({adaptive['percentile']:.0%})"
        lines.append(
            f"| `{row['defense'].replace('|', chr(92) + '|')}` | {plain['grade']} ({plain['percentile']:.0%}) | {knows} | "
            f"{plain['n']} | {costs[row['defense']]['accuracy']:.0%} |"
        )
    lines.append(
        f"\nThe grade of the leak, and in brackets the mean fraction of other images of its class that the private image ranks "
        f"above (50% is chance, 100% always finds it): {record['attack']} on one gradient of the untrained `{record['model']}`, "
        f"{record['dataset']}. Accuracy after {costs['none']['seeds']} short trainings."
    )
    return "\n".join(lines) + "\n"


def headline(record: dict[str, Any]) -> str:
    """How many defenses leave an attacker with nothing, who ignores them and who knows them."""
    rows = [row for row in record["rows"] if "adaptive" in row and not row["defense"].startswith("random")]
    holding = {
        who: [row["defense"] for row in rows if row[who]["grade"] == _GRADES[0]] for who in ("plain", "adaptive")
    }
    proven = all(defense.startswith("dp-sgd") for defense in holding["adaptive"])
    images = [row["adaptive"]["n"] for row in rows]
    return (
        f"We attacked {len(rows)} settings of published defenses on `{record['model']}`, {min(images)} to {max(images)} images "
        f"each. An attacker who ignores the defense finds nothing behind {len(holding['plain'])} of them. One who knows it finds "
        f"nothing behind **{len(holding['adaptive'])}**{', all of them DP-SGD' if proven else ''}. So few images show what "
        "breaks, and prove nothing safe.\n"
    )


_SPEED = {
    "transforms": "policies, against Pillow image by image",
    "training": "training with a policy, against training without",
    "attacks": "attacks",
    "engine": "federated rounds, against a bare loop",
    "scoring": "scoring a policy, against the printed definition",
    "scaling": "two workers, against one",
}


def speed(record: list[dict[str, Any]]) -> str:
    """The ratios of `make bench` without their settings; ratios that are no speed are left to the appendix."""
    lines = ["| measured | faster (quartiles) |", "|---|---|"]
    for part, title in _SPEED.items():
        rows = [row for row in record if row["part"] == part and row["unit"] in ("images/s", "s") and not _grows(row)]
        lines.append(f"| **{title}** | |")
        for row in rows:
            low, high = row["quartiles"]
            lines.append(f"| {row['name']} | {row['value']:.1f}x ({low:.1f} to {high:.1f}) |")
    return "\n".join(lines) + "\n"


def growth(record: list[dict[str, Any]]) -> str:
    """How time and memory grow with the work."""
    lines = ["| more work | takes | settings |", "|---|---|---|"]
    for row in filter(_grows, record):
        what, times = "memory" if row["unit"] == "MB" else "time", row["ours"] / row["baseline"]
        figures = f"{times:.2f} times the {what} ({row['baseline']:.3g} to {row['ours']:.3g} {row['unit']})"
        lines.append(f"| {row['name']} | {figures} | {row['settings'].partition('; 1 is')[0]} |")
    return "\n".join(lines) + "\n"


def passes(record: list[dict[str, Any]]) -> str:
    """What policies take per byte, what the target would be, and what the passes take that they are made of."""
    lines = [
        "| policy, ns per byte | 64x64: ours | Pillow | a tenth of Pillow | 224x224: ours | Pillow | a fifth of Pillow |",
        "|---" * 7 + "|",
    ]
    cells: dict[str, list[str]] = {}
    for side, wanted in ((64, 10), (224, 5)):
        for row in record:
            if row["part"] == "transforms" and row["name"].endswith(f"{side}x{side}"):
                ours, pillow = (1e9 / row[who] / (3 * side * side) for who in ("ours", "baseline"))
                figures = (ours, pillow, pillow / wanted)
                cells.setdefault(row["name"].split()[1], []).extend(f"{one:.1f}" for one in figures)
    lines += [f"| {policy} | {' | '.join(figures)} |" for policy, figures in cells.items()]
    lines += ["", "| one pass over the bytes, ns per byte | 64x64 | 224x224 |", "|---|---|---|"]
    passes_of = {row["name"]: row["ours"] for row in record if row["part"] == "passes"}
    for name in dict.fromkeys(name.rpartition(" at ")[0] for name in passes_of):
        lines.append(f"| {name} | {passes_of[f'{name} at 64x64']:.2f} | {passes_of[f'{name} at 224x224']:.2f} |")
    return "\n".join(lines) + "\n"


def soteria(record: list[dict[str, Any]]) -> str:
    """What a mask of Soteria's takes, and how much of the exact one it has, from `python -m bench soteria`."""
    cells: dict[str, dict[str, str]] = {}
    for row in record:
        if row["part"] != "soteria":
            continue
        network, _, kind = row["name"].removeprefix("soteria's mask on ").partition(", ")
        if kind:
            low, middle, high = (f"{100 * value:.0f}" for value in row["common"])
            single = f"{100 * row['common_single'][1]:.0f}"
            said = f"{row['ours']:.1f} steps: {middle}% ({low} to {high}), of one image's {single}%"
            cells.setdefault(kind, {})[network] = said
        else:
            cells.setdefault("every slope", {})[network] = f"{row['baseline']:.0f} steps"
            cells.setdefault("exact slopes where they decide (default)", {})[network] = f"{row['ours']:.0f} steps"
    networks = list(cells["every slope"])
    lines = [f"| mask | {' | '.join(networks)} |", "|---" * (1 + len(networks)) + "|"]
    lines += [f"| {kind} | {' | '.join(found.get(one, '') for one in networks)} |" for kind, found in cells.items()]
    return "\n".join(lines) + "\n"


def masks(record: dict[str, Any]) -> str:
    """What attackers get behind estimated masks of Soteria's, from `python -m bench.masks`."""
    lines = [
        "| untrained network | defense | plain attacker | against the exact mask, in points and dB (standard error) | "
        "attacker who knows it |",
        "|---|---|---|---|---|",
    ]
    for row in record["rows"]:
        gap = ""
        if "plain_percentile_gap" in row:
            points, points_se = (100 * row[f"plain_percentile_{key}"] for key in ("gap", "gap_se"))
            gap = (
                f"{points:+.1f} ({points_se:.1f}), {row['plain_detail_gap']:+.1f} dB ({row['plain_detail_gap_se']:.1f})"
            )
        lines.append(
            f"| {row['model']} | `{row['defense']}` | {_seen(row, 'plain')} | {gap} | {_seen(row, 'adaptive')} |"
        )
    exact = {row["defense"]: row for row in _record("defenses-accuracy")["rows"]}
    trained = [exact["none"], exact["soteria:0.4"], *record["trainings"]]
    accuracies = ", ".join(f"`{row['defense']}` {_accuracy(row)}" for row in trained)
    iterations = ", ".join(f"{count} iterations on {model}" for model, count in record["iterations"].items())
    lines.append(
        f"\n{record['attack']} ({iterations}) on images of {record['dataset']}. {LEGEND} "
        f"Test accuracy of `lenet` after {record['epochs']} epochs (standard error, seeds): {accuracies}."
    )
    return "\n".join(lines) + "\n"


def operations(record: list[dict[str, Any]]) -> str:
    """What every operation takes per byte, ours and Pillow's, from `python -m bench operations`."""
    lines = [
        "| operation | 64x64: ours | Pillow | ratio | 224x224: ours | Pillow | ratio |",
        "|---|---|---|---|---|---|---|",
    ]
    cells: dict[str, list[str]] = {}
    for row in record:
        if row["part"] == "operations":
            figures = [f"{row[who]:.2f}" for who in ("ours", "baseline")]
            cells.setdefault(row["name"].split()[0], []).extend([*figures, f"{row['value']:.1f}x"])
    lines += [f"| {name} | {' | '.join(figures)} |" for name, figures in cells.items()]
    return "\n".join(lines) + "\n"


def _grows(row: dict[str, Any]) -> bool:
    return row["part"] == "scaling" and ("same factor" in row["settings"] or row["unit"] == "MB")


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
    """Leakage per round, from `python -m bench.federated curious`."""
    sizes = sorted({leak["participants"] for row in record["rows"] for leak in row["leakage"]})
    heads = ["one update" if size == 1 else f"mean of {size}" for size in sizes]
    lines = ["| defense | round | accuracy | " + " | ".join(heads) + " |", "|---|---|---|" + "---|" * len(sizes)]
    for row in record["rows"]:
        accuracies = {one["round"]: one["accuracy"] for one in row["history"]}
        leaks = {(leak["round"], leak["participants"]): leak for leak in row["leakage"]}
        for number in sorted({place[0] for place in leaks}):
            cells = []
            for size in sizes:
                found = leaks[number, size]["identification"]
                low, high = found["low"], found["high"]
                cells.append(
                    f"{found['percentile']:.0%} ({100 * low:.0f} to {100 * high:.0f}), first "
                    f"{found['first']['count']}/{found['n']}"
                )
            lines.append(f"| `{row['defense']}` | {number} | {accuracies[number]:.1%} | {' | '.join(cells)} |")
    plan = record["plan"]
    lines.append(
        f"\n`{plan['model']}`, {plan['participants']} participants with {plan['batch']} image each per round, {record['attack']} "
        f"with {record['iterations']} iterations by an attacker who ignores the defense. A cell says {RANKS}. "
        "One training per defense."
    )
    return "\n".join(lines) + "\n"


def identification_search(record: dict[str, Any]) -> str:
    """What `python -m bench.identification` says of searched and random policies."""
    judged = record["judged"]
    stages = [f"{one['steps']} steps" if one["steps"] else "untrained" for one in judged]
    titles = [
        f"{one['model']}, {stage}, {one['iterations']} iterations" for one, stage in zip(judged, stages, strict=True)
    ]
    lines = [f"| ten policies | {' | '.join(titles)} | accuracy |", "|---|" + "---|" * (len(judged) + 1)]
    for number, trained in enumerate(record["accuracy"]):
        cells = []
        for one in judged:
            row = one["rows"][number]
            low, high = row["percentile_interval"]
            cells.append(f"{row['percentile']:.1%} ({low:.1%} to {high:.1%}), first {row['first']:.0%}")
        lines.append(
            f"| {trained['policies']} | {' | '.join(cells)} | {trained['accuracy']:.1%} ± {trained['se']:.1%} |"
        )
    lines.append("")
    for one, title in zip(judged, titles, strict=True):
        said = []
        for row in one["rows"]:
            for other in ("identity", "random"):
                if "search" in row["policies"]:
                    low, high = (100 * end for end in row[f"percentile_minus_{other}_interval"])
                    gap = 100 * row[f"percentile_minus_{other}"]
                    said.append(f"{row['policies']} minus {other} {gap:+.1f} ({low:+.1f} to {high:+.1f})")
        lines.append(f"- {title}, points of percentile: {'; '.join(said)}.")
    lines.append(
        "\nThe decoys that the private image ranks above on average (95% interval over policies and images; chance is 50%), and "
        f"how often it is first: fast by an attacker who knows the policy, {record['images']} images of {record['dataset']}, on "
        f"networks, images and seeds that no search has seen. Both searches looked at {record['searched']} policies on "
        f"{record['searched_on']}. Accuracy after short trainings, one per policy (± standard error over policies)."
    )
    return "\n".join(lines) + "\n"


def beyond(record: dict[str, Any]) -> str:
    """What `python -m bench.identification` says of operations beyond the published ones."""
    lines = [
        "| beyond the 50 operations | lenet | convnet-8 | accuracy | on images changed alike |",
        "|---|---|---|---|---|",
    ]
    for row in record["beyond"]:
        cells = []
        for model in ("lenet", "convnet-8"):
            low, high = row[model]["percentile_interval"]
            cells.append(f"{row[model]['percentile']:.1%} ({low:.1%} to {high:.1%}), first {row[model]['first']:.0%}")
        lines.append(
            f"| {row['name']} | {' | '.join(cells)} | {row['accuracy']:.1%} | {row['accuracy_transformed']:.1%} |"
        )
    lines.append(
        "\nUntrained networks, the same judge; one training each, tested on images as they are and changed alike."
    )
    return "\n".join(lines) + "\n"


def threats(record: dict[str, Any]) -> str:
    """A row per threat, a column per defense."""
    columns = list(dict.fromkeys(row["defense"] for row in record["rows"]))
    lines = [f"| threat | {' | '.join(f'`{one}`' for one in columns)} |", "|---" * (1 + len(columns)) + "|"]
    for threat in dict.fromkeys(row["threat"] for row in record["rows"]):
        cells = {row["defense"]: row for row in record["rows"] if row["threat"] == threat}
        said = [
            f"{row['percentile']:.0%} ({row['low']:.0%} to {row['high']:.0%}), first {row['first']} of {row['n']}: {row['grade']}"
            for row in (cells[one] for one in columns)
        ]
        lines.append(f"| {threat}: {cells[columns[0]]['description']} | {' | '.join(said)} |")
    lines.append(
        f"\nThe others of its class that the right image ranks above (95% interval; 50% is chance): {record['model']} on "
        f"{record['dataset']}, {record['images']} images, fast with {record['iterations']} iterations, the worst of who ignores "
        f"the defense and who knows it; trained is after {record['epochs']} epochs."
    )
    return "\n".join(lines) + "\n"


OUTCOMES = ("confirmed", "contradicted", "undecided")


def recommend(record: dict[str, Any]) -> str:
    """A row per answer: what was said, and what an audit of it with other images, another network and another seed says."""
    lines = ["| model, data | question | answer | said | audited afresh | outcome |", "|---|---|---|---|---|---|"]
    rows = [row for row in record["rows"] if "failed" not in row]
    # One candidate may answer several questions of a race: it counts once.
    different: dict[tuple[str, str, str], str] = {}
    for row in rows:
        figures = {one["name"]: one for one in row["figures"]}
        for answer in row["answers"]:
            where = f"| {row['model']}, {row['dataset']} | {answer['question']} |"
            if answer["candidate"] is None:
                lines.append(f"{where} nothing | | | {answer['outcome']} |")
                continue
            one, afresh = figures[answer["candidate"]], answer["afresh"]
            low, high = afresh["interval"]
            again = f"{afresh['percentile']:.0%} ({low:.0%} to {high:.0%}, n={afresh['n']}): {afresh['level']}"
            again += _points(answer.get("afresh_loss", {}).get("mean"))
            name = answer["candidate"].replace("|", chr(92) + "|")
            lines.append(
                f"{where} `{name}` | {answer['claim']}: {one['percentile']:.0%} ({one['low']:.0%} to {one['high']:.0%}, "
                f"n={one['n']}){_points(one['loss'])} | {again} | {answer['outcome']} |"
            )
            different[row["model"], row["dataset"], answer["candidate"]] = answer["outcome"]
    first = [row["answers"][0]["outcome"] for row in rows]
    budgets = " to ".join(f"{one:g}" for one in sorted({pick(row["budget"] for row in rows) for pick in (min, max)}))
    workers, threat = (rows[0][one] for one in ("workers", "threat"))
    lines.append(
        f"\n**Of the first answers of {len(first)} races, audited afresh: {_counted(first)}.** Of all {len(different)} different "
        f"answers: {_counted(different.values())}. Budget: {budgets} minutes on {workers} "
        f"{'worker' if workers == 1 else 'workers'} for each model and dataset, threat {threat}. Figures: of the others of its "
        "class, how many the right image ranks above (95% interval; 50% is chance); points of accuracy lost."
    )
    failed = [f"{row['model']}, {row['dataset']} ({row['failed']})" for row in record["rows"] if "failed" in row]
    lines += [f"\nFailed: {'; '.join(failed)}."] if failed else []
    return "\n".join(lines) + "\n"


def _points(loss: float | None) -> str:
    return "" if loss is None else f", {100 * loss:.0f} points"


def _counted(outcomes: Iterable[str]) -> str:
    found = list(outcomes)
    return ", ".join(f"{found.count(one)} {one}" for one in OUTCOMES)


def faults(record: dict[str, Any]) -> str:
    """What `python -m bench.faults` tried, and what held."""
    lines = ["| tried | how many | held | how they ended |", "|---|---|---|---|"]
    for part in ("inputs", "kills", "peers"):
        totals = [0, 0]
        for row in record.get(part, {"rows": []})["rows"]:
            # A command that was done before it could be killed shows nothing.
            early = sum(number for how, number in row["ended"].items() if how.startswith("ended before"))
            tried, held = row["tried"] - early, row["held"] - early
            ended = ", ".join(
                f"{number} {' '.join(how.split())}" for how, number in row["ended"].items() if "ended before" not in how
            )
            if tried:
                lines.append(f"| {row['what']} | {tried:,} | {held:,} | {ended} |")
                totals = [totals[0] + tried, totals[1] + held]
        lines.append(f"| **{part} in all** | **{totals[0]:,}** | **{totals[1]:,}** | |")
    return "\n".join(lines) + "\n"


def paper_audit(record: dict[str, Any]) -> str:
    """What an audit at the papers' scale would take, from `gradveil audit ... --dry-run --json`."""
    lines = ["| defense | attacker | attacks | seconds per iteration |", "|---|---|---|---|"]
    for row in record["costs"]:
        tried = " (settings tried first)" if "tried first" in row["attack"] else ""
        lines.append(
            f"| `{row['defense']}`{tried} | {row['attacker']} | {row['times']} | {row['seconds_per_iteration']:.2f} |"
        )
    lines.append(
        f"\n{record['jobs']:,} jobs of {record['costs'][0]['iterations']:,} iterations on {record['device']}, "
        f"{record['memory_mb'] / 1000:.1f} GB at most per worker: about {record['worker_seconds'] / 86400:.0f} days with one "
        f"worker, {record['seconds'] / 86400:.0f} with {record['workers']}. A few iterations of each were timed, once."
    )
    return "\n".join(lines) + "\n"


_GRADES = ("nothing found", "faint", "recognisable", "exact")


def known(_: object) -> str:
    """At which threat every defense was found to hold or to break, from all records that say so."""
    # By defense and place: broken counts before anything else, then the one with more images.
    found: dict[str, dict[str, tuple[bool, int, str, str]]] = {}

    def add(defense: str, figures: dict[str, Any], where: str) -> None:
        broken, n = figures["grade"] != "nothing found", figures["n"]
        held = "holds" if figures["level"] == "protects against the attacks tried" else "not broken"
        said = f"{where} ({figures['grade']}, n={n})" if broken else f"{where} (n={n})"
        places = found.setdefault(defense, {})
        places[where] = max(places.get(where, (False, 0, "", "")), (broken, n, "broken" if broken else held, said))

    for name in ("adaptive", "defenses"):
        record = _record(name)
        for row in record["rows"]:
            seen = [row[who] for who in ("plain", "adaptive") if who in row]
            worst = max(seen, key=lambda one: (_GRADES.index(one["grade"]), one["percentile"]))
            # One spelling of 1e-2 and 0.01.
            add(
                re.sub(r"\d+e-\d+", lambda number: f"{float(number[0]):g}", row["defense"]),
                {"level": "", **worst},
                f"worst-case, {row['model']} on {record['dataset']}",
            )
    record = _record("threats")
    for row in record["rows"]:
        add(row["defense"], row, f"{row['threat']}, {record['model']} on {record['dataset']}")
    for row in (one for one in _record("recommend")["rows"] if "failed" not in one):
        where = f"{row['threat']}, {row['model']} on {row['dataset']}"
        # Where an answer was audited afresh, that counts: the race had chosen it on its own images.
        afresh = {one["candidate"]: one["afresh"] for one in row["answers"] if one["candidate"] is not None}
        for one in row["figures"]:
            add(one["name"], afresh.get(one["name"], one), where)
    lines = [
        "| defense or deployment | broken at | held at | not broken at, with too few images |",
        "|---|---|---|---|",
    ]
    for defense, places in sorted(found.items()):
        cells = (
            _shortest([said for _, _, own, said in places.values() if own == kind])
            for kind in ("broken", "holds", "not broken")
        )
        lines.append(f"| `{defense.replace('|', chr(92) + '|')}` | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _shortest(places: list[str], most: int = 3) -> str:
    """The first few; how many more there are."""
    more = f"; and {len(places) - most} more" if len(places) > most else ""
    return "; ".join(places[:most]) + more


# The writer of a block, and the record it reads.
WRITERS: dict[str, tuple[Callable[[Any], str], str]] = {
    "demo": (demo, "demo"),
    "train-resnet20": (train_resnet20, "train-resnet20"),
    "bench": (bench, "bench"),
    "threats": (threats, "threats"),
    "recommend": (recommend, "recommend"),
    "search": (search, "bench"),
    "identification-search": (identification_search, "identification_search"),
    "beyond": (beyond, "identification_search"),
    "calibration": (calibration, "calibration"),
    "predictors": (predictors, "predictors"),
    "inverting": (inverting, "inverting"),
    "tenth": (tenth, "tenth"),
    "adaptive": (adaptive, "adaptive"),
    "precode": (precode, "precode"),
    "defenses": (defenses, "defenses"),
    "known": (known, "defenses"),
    "paper-audit": (paper_audit, "paper_audit"),
    "survives": (survives, "defenses"),
    "headline": (headline, "defenses"),
    "speed": (speed, "bench"),
    "growth": (growth, "bench"),
    "passes": (passes, "bench"),
    "soteria": (soteria, "bench"),
    "masks": (masks, "masks"),
    "operations": (operations, "bench"),
    "federated": (federated, "federated"),
    "curious": (curious, "curious"),
    "leakage": (leakage, "leakage"),
    "estimates": (estimates, "estimates"),
    "no-gradient": (no_gradient, "leakage"),
    "calibrated": (calibrated, "leakage"),
    "faults": (faults, "faults"),
}


def _record(name: str) -> Any:
    return json.loads((ROOT / "docs" / "records" / f"{name}.json").read_text())


def measured(page: str) -> str:
    """`page` with every measured block written from its record."""

    def fill(match: re.Match[str]) -> str:
        write, name = WRITERS[match[2]]
        return match[1] + write(_record(name)) + match[3]

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
