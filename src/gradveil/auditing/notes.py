"""What a run says of itself besides its records."""

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from gradveil.errors import GradveilError
from gradveil.io.files import write_json

NOTES = "run.json"


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
            raw = json.loads(text)
            return cls(
                title=str(raw["title"]),
                commands=tuple(str(command) for command in raw["commands"]),
                remarks=tuple(str(remark) for remark in raw["remarks"]),
                search=_check_search(raw["search"]),
            )
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise GradveilError(f"not the notes of a run: {type(error).__name__} {error}") from error


def _check_search(raw: Any) -> dict[str, Any] | None:
    """A search summary with everything the page shows of it."""
    if raw is None:
        return None
    scores = [found[kind] for found in raw["policies"] for kind in ("privacy", "accuracy")]
    numbers = [raw["scored"], raw["discarded"], raw["evaluations"], raw["accuracy_threshold"], raw["confidence"]]
    lists = [raw["contenders"], *(found["not_told_apart_from"] for found in raw["policies"])]
    numbers += [value for score in scores for value in (score["mean"], score["n"], score["se"] or 0.0)]
    if not all(isinstance(number, int | float) for number in numbers) or not all(
        isinstance(one, list) for one in lists
    ):
        raise TypeError("its search summary holds something else than numbers")
    named = [{**found, "policy": str(found["policy"])} for found in raw["policies"]]
    return {**raw, "policies": named, "settled": bool(raw["settled"]), "hybrid": str(raw["hybrid"])}
