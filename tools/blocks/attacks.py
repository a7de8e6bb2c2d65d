"""How well attacks rebuild images, and how long they take."""

from typing import Any

from blocks.wording import header, text


def inverting(record: dict[str, Any]) -> str:
    """How long the published quality takes, from `python -m bench.inverting`."""
    lines = header(
        "untrained network",
        "published PSNR",
        "`fast` PSNR",
        "difference (se)",
        "published s",
        "`fast` s",
        "faster (quartiles)",
    )
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
    return text(lines)


def tenth(record: dict[str, Any]) -> str:
    """How near a tenth of the iterations comes, from `python -m bench.tenth`."""
    lines = header(
        "untrained network",
        "published: ranks above, first, detail",
        "`tenth`: ranks above, first, detail",
        "difference in detail (se)",
        "quartiles",
    )
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
            lines += ["", *header(f"`tenth` on {row['model']}: iterations", "ranks above", "first", "detail")]
        for one in budgets:
            first, detail = f"{one['first']}/{record['images']}", f"{one['detail']:+.1f} ± {one['detail_sd']:.1f}"
            lines.append(f"| {one['iterations']} | {one['percentile']:.0%} | {first} | {detail} |")
    published, ours = record["iterations"]
    lines.append(
        f"\n{record['images']} images of {record['dataset']} that nothing was chosen on; published: {record['published']}, "
        f"{published} iterations, ours: {record['ours']}, {ours}; detail in dB with the standard deviation between images."
    )
    return text(lines)


def estimates(record: dict[str, Any]) -> str:
    """What attackers make of a rebuilt picture, from `python -m bench.estimates`."""
    lines = header(
        "untrained network",
        "defense",
        "attacker",
        "as rebuilt",
        "smoothed",
        "with public images",
        "guess without the gradient",
    )

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
    return text(lines)
