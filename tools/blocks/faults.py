"""What was tried against the program's reliability."""

from typing import Any

from blocks.wording import header, text


def faults(record: dict[str, Any]) -> str:
    """What `python -m bench.faults` tried, and what held."""
    lines = header("tried", "how many", "held", "how they ended")
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
    return text(lines)
