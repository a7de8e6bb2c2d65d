"""What a race remembers between sessions: how long it took, and what it decided by the clock."""

from collections.abc import Collection
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from gradveil.errors import GradveilError
from gradveil.io.files import LARGEST_SETTINGS, parse_file, parse_object, write_json
from gradveil.io.typed_json import from_fields
from gradveil.leakage.scenario import UNDEFENDED

JOURNAL = "recommend.json"


@dataclass(frozen=True)
class Journal:
    """Which candidates every round took up and trained, and the seconds that each needed (`1 attack prune:0.9`).

    `checked` is on how many other images an answer was checked. What is decided by the clock is decided once: another session
    takes it from here. Only one with a larger `budget`, or that checks on more images, decides anew. What was `begun` and is not
    among the `seconds` was interrupted.
    """

    settings: dict[str, str]
    elapsed: float = 0.0
    chosen: tuple[tuple[str, ...], ...] = ()
    seconds: dict[str, float] = field(default_factory=dict)
    checked: dict[str, int] = field(default_factory=dict)
    trained: tuple[tuple[str, ...], ...] = ()
    begun: tuple[str, ...] = ()
    budget: float = 0.0
    check: int = 0
    checked_before: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.elapsed < 0 or not all(
            value > 0 for value in (*self.seconds.values(), *self.checked.values(), *self.checked_before.values())
        ):
            raise ValueError("expected seconds and numbers of images above 0")
        if len(self.trained) != len(self.chosen):
            raise ValueError(f"expected what {len(self.chosen)} rounds trained, got {len(self.trained)}")

    def with_time(self, budget: float, check: int) -> "Journal":
        """For a session with this budget, in seconds, and check, in images.

        If either is more than before, all but the first round is decided anew; what was checked is `checked_before`.
        """
        if budget <= self.budget and check <= self.check:
            return self
        grown = replace(self, budget=max(budget, self.budget), check=max(check, self.check))
        before = self.checked_before | self.checked
        return replace(grown, chosen=self.chosen[:1], trained=self.trained[:1], checked={}, checked_before=before)

    def begin(self, names: tuple[str, ...]) -> "Journal":
        """With what is under way from now on."""
        return replace(self, begun=tuple(dict.fromkeys((*self.begun, *names))))

    def took(self, what: str, seconds: float) -> "Journal":
        """With the time of something that was done for the first time."""
        return replace(self, seconds={what: max(0.001, round(seconds, 3))} | self.seconds)

    def choose(self, number: int, names: tuple[str, ...], trained: tuple[str, ...]) -> "Journal":
        """With what a round takes up, and what it trains, counted from 0."""
        chosen = (*self.chosen[:number], names, *self.chosen[number + 1 :])
        return replace(self, chosen=chosen, trained=(*self.trained[:number], trained, *self.trained[number + 1 :]))

    def check_on(self, name: str, images: int) -> "Journal":
        """With the number of images that a candidate is checked on."""
        return replace(self, checked=self.checked | {name: images})


def open_journal(folder: Path, settings: dict[str, str], candidates: Collection[str]) -> Journal:
    """The journal of the folder, or a new one; one of another race, or of other candidates, is refused."""
    path = folder / JOURNAL
    if not path.exists():
        return Journal(settings)
    remedy = "remove the folder or choose another --out"
    found = parse_file(path, _parse, largest=LARGEST_SETTINGS, remedy=remedy)
    for name, value in settings.items():
        if found.settings.get(name) != value:
            raise GradveilError(f"{folder} holds a recommendation with another {name}; {remedy}")
    for names in (
        *found.chosen,
        *((UNDEFENDED, *one) for one in (*found.trained, (*found.checked, *found.checked_before))),
    ):
        if UNDEFENDED not in names or not set(names) <= set(candidates):
            raise GradveilError(f"{path}: expected rounds of its candidates, none among them; {remedy}")
    return found


def write_journal(folder: Path, journal: Journal, recommendation: dict[str, object] | None = None) -> None:
    """Write it whole, with what is recommended where that is known."""
    write_json(folder / JOURNAL, {"journal": asdict(journal), "recommendation": recommendation})


def _parse(text: str) -> Journal:
    try:
        return from_fields(Journal, parse_object(text).get("journal"))
    except (ValueError, TypeError) as error:
        raise GradveilError(f"not a recommendation: {error}") from error
