"""What a run says of itself besides its records."""

import math
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from gradveil.errors import GradveilError
from gradveil.io.files import write_json
from gradveil.io.typed_json import from_json

NOTES = "run.json"
LARGEST_NOTES = 64 * 2**20


@dataclass(frozen=True)
class RunNotes:
    """A title, the commands that repeat the run, remarks for the reader, and what a search found."""

    title: str
    commands: tuple[str, ...]
    remarks: tuple[str, ...] = ()
    search: dict[str, Any] | None = None

    def save(self, folder: Path) -> None:
        write_json(folder / NOTES, asdict(self))

    @classmethod
    def from_json(cls, text: str) -> "RunNotes":
        """Read what `save` wrote; it may come from anyone."""
        try:
            found = from_json(cls, text, largest=LARGEST_NOTES)
            return replace(found, search=_check_search(found.search))
        except (ValueError, KeyError, TypeError, AttributeError, OverflowError) as error:
            raise GradveilError(f"not the notes of a run: {type(error).__name__} {error}") from error


def _check_search(raw: Any) -> dict[str, Any] | None:
    """A search summary with everything the page shows of it."""
    if raw is None:
        return None
    scores = [found[kind] for found in raw["policies"] for kind in ("privacy", "accuracy")]
    numbers = [raw["scored"], raw["discarded"], raw["evaluations"], raw["accuracy_threshold"], raw["confidence"]]
    lists = [raw["contenders"], *(found["not_told_apart_from"] for found in raw["policies"])]
    numbers += [value for score in scores for value in (score["mean"], score["n"], score["se"] or 0.0)]
    if not all(type(number) in (int, float) and math.isfinite(number) for number in numbers):
        raise TypeError("its search summary holds something else than numbers")
    if not all(isinstance(one, list) for one in lists):
        raise TypeError("its search summary holds something else than lists of policies")
    named = [{**found, "policy": str(found["policy"])} for found in raw["policies"]]
    return {**raw, "policies": named, "settled": bool(raw["settled"]), "hybrid": str(raw["hybrid"])}
