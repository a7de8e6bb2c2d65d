"""What `make bench` measured: speed, growth and the parts they are made of."""

from typing import Any

from blocks.wording import header, text

# The parts of the benchmark that the short table shows, and what it calls them.
PARTS = {
    "transforms": "policies, against Pillow image by image",
    "training": "training with a policy, against training without",
    "attacks": "attacks",
    "engine": "federated rounds, against a bare loop",
    "scoring": "scoring a policy, against the printed definition",
    "scaling": "two workers, against one",
}


def bench(record: list[dict[str, Any]]) -> str:
    """The ratios of `make bench`."""
    lines = header("measured", "faster (quartiles)", "ours", "baseline", "settings")
    for row in record:
        low, high = row["quartiles"]
        figures = f"{row['ours']:.4g} {row['unit']} | {row['baseline']:.4g} {row['unit']}"
        lines.append(
            f"| {row['name']} | {row['value']:.2f}x ({low:.2f} to {high:.2f}) | {figures} | {row['settings']} |"
        )
    return text(lines)


def search(record: list[dict[str, Any]]) -> str:
    """What `make bench` says of scores and searches."""
    lines = header("measured", "ours", "published procedure", "ratio", "settings")
    for row in record:
        # Workers are compared with one worker, not with what was published.
        if row.get("part") != "scaling" and any(
            word in row["name"] for word in ("score a policy", "search", "S_pri", "intervals", "orders")
        ):
            figures = f"{row['ours']:.4g} {row['unit']} | {row['baseline']:.4g} {row['unit']}"
            lines.append(f"| {row['name']} | {figures} | {row['value']:.3g} | {row['settings']} |")
    return text(lines)


def speed(record: list[dict[str, Any]]) -> str:
    """The ratios of `make bench` without their settings; ratios that are no speed are left to the appendix."""
    lines = header("measured", "faster (quartiles)")
    for part, title in PARTS.items():
        rows = [row for row in record if row["part"] == part and row["unit"] in ("images/s", "s") and not _grows(row)]
        lines.append(f"| **{title}** | |")
        for row in rows:
            low, high = row["quartiles"]
            lines.append(f"| {row['name']} | {row['value']:.1f}x ({low:.1f} to {high:.1f}) |")
    return text(lines)


def growth(record: list[dict[str, Any]]) -> str:
    """How time and memory grow with the work."""
    lines = header("more work", "takes", "settings")
    for row in filter(_grows, record):
        what, times = "memory" if row["unit"] == "MB" else "time", row["ours"] / row["baseline"]
        figures = f"{times:.2f} times the {what} ({row['baseline']:.3g} to {row['ours']:.3g} {row['unit']})"
        lines.append(f"| {row['name']} | {figures} | {row['settings'].partition('; 1 is')[0]} |")
    return text(lines)


def _grows(row: dict[str, Any]) -> bool:
    return row["part"] == "scaling" and ("same factor" in row["settings"] or row["unit"] == "MB")


def passes(record: list[dict[str, Any]]) -> str:
    """What policies take per byte, what the target would be, and what the passes take that they are made of."""
    lines = header(
        "policy, ns per byte",
        "64x64: ours",
        "Pillow",
        "a tenth of Pillow",
        "224x224: ours",
        "Pillow",
        "a fifth of Pillow",
    )
    cells: dict[str, list[str]] = {}
    for side, wanted in ((64, 10), (224, 5)):
        for row in record:
            if row["part"] == "transforms" and row["name"].endswith(f"{side}x{side}"):
                ours, pillow = (1e9 / row[who] / (3 * side * side) for who in ("ours", "baseline"))
                figures = (ours, pillow, pillow / wanted)
                cells.setdefault(row["name"].split()[1], []).extend(f"{one:.1f}" for one in figures)
    lines += [f"| {policy} | {' | '.join(figures)} |" for policy, figures in cells.items()]
    lines += ["", *header("one pass over the bytes, ns per byte", "64x64", "224x224")]
    passes_of = {row["name"]: row["ours"] for row in record if row["part"] == "passes"}
    for name in dict.fromkeys(name.rpartition(" at ")[0] for name in passes_of):
        lines.append(f"| {name} | {passes_of[f'{name} at 64x64']:.2f} | {passes_of[f'{name} at 224x224']:.2f} |")
    return text(lines)


def operations(record: list[dict[str, Any]]) -> str:
    """What every operation takes per byte, ours and Pillow's, from `python -m bench operations`."""
    lines = header("operation", "64x64: ours", "Pillow", "ratio", "224x224: ours", "Pillow", "ratio")
    cells: dict[str, list[str]] = {}
    for row in record:
        if row["part"] == "operations":
            figures = [f"{row[who]:.2f}" for who in ("ours", "baseline")]
            cells.setdefault(row["name"].split()[0], []).extend([*figures, f"{row['value']:.1f}x"])
    lines += [f"| {name} | {' | '.join(figures)} |" for name, figures in cells.items()]
    return text(lines)


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
    lines = header("mask", *networks)
    lines += [f"| {kind} | {' | '.join(found.get(one, '') for one in networks)} |" for kind, found in cells.items()]
    return text(lines)
