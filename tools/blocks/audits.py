"""What audits say of leaks, and what is found where nothing leaks."""

from typing import Any

from blocks.wording import header, share, text


def demo(record: dict[str, Any]) -> str:
    """What `gradveil demo --json` says of each defense."""
    lines = header("defense", "attacker who ignores it", "attacker who knows it", "accuracy lost (95%)")
    for row in record["rows"]:
        seen = ["" if row[who] is None else _graded(row[who]) for who in ("plain", "adaptive")]
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
    return text(lines)


def _graded(found: dict[str, Any]) -> str:
    return f"{found['grade']}: {share(found['percentile'], found['low'], found['high'])}"


def leakage(record: dict[str, Any]) -> str:
    """Identification beside the figure that papers go by, from `python -m bench.leakage`."""
    lines = header(
        "network, attack",
        "defense",
        "attacker",
        "PSNR over one colour",
        "ranks above (95%)",
        "first",
        "detail",
        "grade",
    )
    for row in record["rows"]:
        attack = f"{row['stage']} {row['model']}, {row['attack']} {row['iterations']}"
        old = f"{row['over_one_colour']:+.1f} ± {row['over_one_colour_sd']:.1f}"
        lines.append(
            f"| {attack} | `{row['defense']}` | {row['attacker']} | {old} | "
            f"{share(row['percentile'], *row['interval'])} | {row['first']} of {row['n']} | "
            f"{row['detail']:+.1f} ± {row['detail_sd']:.1f} | {row['grade']} |"
        )
    lines.append(
        f"\n{len(record['images'])} images of {record['dataset']} per row. *PSNR over one colour*: dB above the best single "
        "colour. *Ranks above*: mean share of its class below the private image; chance is 50%. *Detail*: dB above the guess "
        "without the gradient."
    )
    return text(lines)


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
    lines = header(
        "nothing to find",
        "n",
        "ranks above (95%)",
        "first (by chance)",
        "p",
        "p-values of groups of ten: uniform?",
        "below 5%",
    )
    for name, title in (("noise", f"`{found['defense']}`"), ("placebo", "placebo")):
        row = found[name]
        ranks = share(row["percentile"], *row["interval"], digits=1)
        lines.append(
            f"| {title} | {row['n']} | {ranks} | {row['first']} ({row['first_chance']:.1f}) | {row['p']:.2f} | "
            f"p = {row['uniform_p']:.2f} | {row['below_5_percent']} of {row['groups']} |"
        )
    return text(lines)


def paper_audit(record: dict[str, Any]) -> str:
    """What `gradveil audit --dry-run --json` printed for an audit as large as the papers'."""
    slowest = max(one["seconds_per_iteration"] for one in record["costs"])
    return (
        f"That audit on our {record['device']} ([record](records/paper-audit.json)): {record['jobs']:,} attacks, "
        f"{record['iterations']:,} iterations of at most {slowest:.2f} s, {record['memory_mb'] / 1000:.1f} GB per worker, "
        f"{record['worker_seconds'] / 86400:.1f} days with one worker.\n"
    )
