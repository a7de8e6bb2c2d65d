"""What central and federated trainings reach, and what leaks on the way."""

from typing import Any

from blocks.wording import RANKS, header, share, text


def train_resnet20(record: dict[str, Any]) -> str:
    """The result of `gradveil train --json`."""
    return (
        f"`{record['model']}` on `{record['dataset']}`, {record['epochs']} epochs: test accuracy "
        f"{record['accuracy']:.1%} ± {record['accuracy_se']:.1%} "
        f"(n={record['test_images']} test images, one training with seed {record['seed']}).\n"
    )


def federated(record: dict[str, Any]) -> str:
    """Ten participants against central training, from `python -m bench.federated`."""
    lines = header("images dealt out", "central", "ten participants", "difference in points")
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
    return text(lines)


def curious(record: dict[str, Any]) -> str:
    """Leakage per round, from `python -m bench.federated curious`."""
    sizes = sorted({leak["participants"] for row in record["rows"] for leak in row["leakage"]})
    heads = ["one update" if size == 1 else f"mean of {size}" for size in sizes]
    lines = header("defense", "round", "accuracy", *heads)
    for row in record["rows"]:
        accuracies = {one["round"]: one["accuracy"] for one in row["history"]}
        leaks = {(leak["round"], leak["participants"]): leak for leak in row["leakage"]}
        for number in sorted({place[0] for place in leaks}):
            cells = []
            for size in sizes:
                found = leaks[number, size]["identification"]
                ranks = share(found["percentile"], found["low"], found["high"])
                cells.append(f"{ranks}, first {found['first']['count']}/{found['n']}")
            lines.append(f"| `{row['defense']}` | {number} | {accuracies[number]:.1%} | {' | '.join(cells)} |")
    plan = record["plan"]
    lines.append(
        f"\n`{plan['model']}`, {plan['participants']} participants with {plan['batch']} image each per round, {record['attack']} "
        f"with {record['iterations']} iterations by an attacker who ignores the defense. A cell says {RANKS}. "
        "One training per defense."
    )
    return text(lines)
