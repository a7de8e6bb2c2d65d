"""What a search has paid for, in an Optuna study: one trial per policy, kept at once, read again after a kill.

Trials stay open while their policy races; its values lie in one attribute, which is written whole. Several machines may share
the storage: each writes what it has computed and reads what the others have.
"""

import hashlib
import json
import statistics
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path

import optuna
from optuna.exceptions import OptunaError, StorageInternalError, UpdateFinishedTrialError
from optuna.storages import BaseStorage, get_storage
from optuna.trial import TrialState, create_trial
from sqlalchemy.exc import IntegrityError, OperationalError, ProgrammingError, SQLAlchemyError

from gradveil.errors import GradveilError
from gradveil.io.tensors import content_hash
from gradveil.io.typed_json import from_fields
from gradveil.naming import describe
from gradveil.scores import Scorer
from gradveil.searching.sampling import RECORDED, parameters
from gradveil.transforms import Policy

STUDY = "gradveil-search"
_SCORES = "scores"
_READ_AGAIN = 10.0  # seconds between looks at what other machines have done
_OPEN_AGAIN = (0.1, 0.2, 0.5, 1.0, 2.0)  # seconds until the next try where opening failed


@dataclass(frozen=True)
class LedgerEntry:
    """Everything computed for one policy: S_acc by batch, S_pri by image.

    `rows` counts the images of each batch. `quick` holds quick looks and `full` full scores of the first images in the scorer's
    order, `fresh` full scores of the last ones. `pixels` says what it makes of images. `failed` says why a score is undefined.
    """

    accuracy: tuple[float, ...] = ()
    rows: tuple[int, ...] = ()
    quick: tuple[float, ...] = ()
    full: tuple[float, ...] = ()
    fresh: tuple[float, ...] = ()
    pixels: tuple[float, ...] = ()
    failed: str | None = None

    def __post_init__(self) -> None:
        if len(self.accuracy) != len(self.rows) or not all(0 < count < 2**31 for count in self.rows):
            raise ValueError(f"{len(self.accuracy)} batches with {str(self.rows)[:40]} images")

    @property
    def size(self) -> int:
        """How much is known."""
        lists = (self.accuracy, self.quick, self.full, self.fresh, self.pixels)
        return sum(map(len, lists)) + (self.failed is not None)

    def __add__(self, more: "LedgerEntry") -> "LedgerEntry":
        """This entry and what was computed after it."""
        lists = ("accuracy", "rows", "quick", "full", "fresh", "pixels")
        joined = {name: getattr(self, name) + getattr(more, name) for name in lists}
        return LedgerEntry(**joined, failed=self.failed or more.failed)


@contextmanager
def _explaining_failures() -> Iterator[None]:
    """Make one line of a storage that fails in the middle of a search; what it holds is safe."""
    try:
        yield
    except (SQLAlchemyError, StorageInternalError) as error:
        raise GradveilError(
            f"the study's storage failed ({type(error).__name__}); start again when it can be reached to go on"
        ) from error


@contextmanager
def _refusing_damage(shown: str) -> Iterator[None]:
    """Make one line of a study that can be opened and holds something else than a search."""
    try:
        yield
    except (
        SQLAlchemyError,
        OptunaError,
        ImportError,
        OSError,
        ValueError,
        LookupError,
        TypeError,
        RuntimeError,
    ) as error:
        why = " ".join(f"{type(error).__name__}: {error}".split())[:120]
        raise GradveilError(f"{shown}: not a readable study ({why}); remove it or choose another place") from error


class Ledger:
    """The entries of a search in the Optuna storage at `place`: a file for SQLite, any storage URL, or None for memory."""

    def __init__(
        self, place: Path | str | None, fingerprint: str, *, objectives: tuple[str, ...] = ("minimize",)
    ) -> None:
        self.shared = isinstance(place, str)
        self._storage, self._study = _open(place, fingerprint, objectives)
        self.objectives = len(objectives)
        self._entries: dict[str, LedgerEntry] = {}
        self._trials: dict[str, int] = {}
        self._closed: set[str] = set()
        self._pixels = 0  # how many figures of its pixels an entry has
        with _refusing_damage(_shown(place)):
            self._take_in()

    @_explaining_failures()
    def read(self) -> None:
        """Take in what the storage holds."""
        self._take_in()

    def _take_in(self) -> None:
        for trial in self._storage.get_all_trials(self._study, deepcopy=False):
            policy, data = trial.user_attrs.get("policy"), trial.user_attrs.get(_SCORES)
            if policy is None or data is None:
                continue  # not one of ours
            if not isinstance(policy, str):
                raise ValueError(f"a policy called {str(policy)[:40]}")
            entry = from_fields(LedgerEntry, data)
            if entry.pixels and self._pixels and len(entry.pixels) != self._pixels:
                raise ValueError(f"{policy[:40]} has {len(entry.pixels)} pixel figures, others {self._pixels}")
            self._pixels = len(entry.pixels) or self._pixels
            # Two machines may have opened a trial for the same policy; the one that knows more counts.
            if policy not in self._entries or entry.size >= self._entries[policy].size:
                self._entries[policy], self._trials[policy] = entry, trial._trial_id
                (self._closed.add if trial.state.is_finished() else self._closed.discard)(policy)
        self._read = time.monotonic()

    def __getitem__(self, policy: Policy) -> LedgerEntry:
        return self._entries.get(str(policy), LedgerEntry())

    def latest(self, policy: Policy) -> LedgerEntry:
        """As `self[policy]`, after a look at what other machines have done in the meantime."""
        if self.shared and time.monotonic() - self._read > _READ_AGAIN:
            self.read()
        return self[policy]

    @_explaining_failures()
    def write(self, policy: Policy, entry: LedgerEntry) -> None:
        """Keep `entry`, which knows more than what was known of the policy."""
        name = str(policy)
        if name not in self._trials or name in self._closed:  # what Optuna holds as ended cannot be added to
            attributes = {"policy": name, _SCORES: asdict(entry)}
            point = parameters(policy)
            template = create_trial(
                state=TrialState.RUNNING,
                params=point,
                distributions=RECORDED if point else {},
                user_attrs=attributes,
            )
            self._trials[name] = self._storage.create_new_trial(self._study, template_trial=template)
            self._closed.discard(name)
        else:
            try:
                self._storage.set_trial_user_attr(self._trials[name], _SCORES, asdict(entry))
            except UpdateFinishedTrialError:  # another machine was quicker
                self._closed.add(name)
                self.read()
                if self[policy].size < entry.size:
                    self.write(policy, entry)
                return
        self._entries[name] = entry
        raced = entry.full or entry.quick
        if raced and self.objectives == 1:
            # For Optuna's own plots: how the mean moves as images come in. It keeps no such steps for several objectives.
            with suppress(UpdateFinishedTrialError):  # another machine ended the trial since; the entry is kept
                self._storage.set_trial_intermediate_value(self._trials[name], len(raced), statistics.fmean(raced))

    @_explaining_failures()
    def close(self, policy: Policy, values: tuple[float, ...] | None, state: TrialState) -> None:
        """End the policy's trial, for whoever reads the study with Optuna's own tools."""
        name = str(policy)
        if name in self._trials and name not in self._closed:
            with suppress(UpdateFinishedTrialError):  # another machine was quicker
                self._storage.set_trial_state_values(self._trials[name], state, values)
            self._closed.add(name)


def _open(place: Path | str | None, fingerprint: str, objectives: tuple[str, ...]) -> tuple[BaseStorage, int]:
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    url = f"sqlite:///{place}" if isinstance(place, Path) else place
    # A study with two objectives is another study.
    name = STUDY if len(objectives) == 1 else f"{STUDY}-two-objectives"
    with _refusing_damage(_shown(place)):
        if isinstance(place, Path):
            place.parent.mkdir(parents=True, exist_ok=True)
        storage, study = _open_study(url, name, objectives)
        found = study.user_attrs.get("fingerprint", fingerprint)
        if found == fingerprint:
            study.set_user_attr("fingerprint", fingerprint)
    if found != fingerprint:
        raise GradveilError(f"{_shown(place)} holds a search with other settings; remove it or choose another place")
    return storage, storage.get_study_id_from_name(name)


def _shown(place: Path | str | None) -> str:
    return str(place).partition("@")[2] or str(place)  # a URL may hold a password


def _open_study(url: str | None, name: str, objectives: tuple[str, ...]) -> tuple[BaseStorage, optuna.Study]:
    """The study, made where there is none. Of machines that make it together, all but one find half of it and try again."""

    def open_once() -> tuple[BaseStorage, optuna.Study]:
        storage = get_storage(url)
        return storage, optuna.create_study(
            storage=storage, study_name=name, directions=objectives, load_if_exists=True
        )

    for seconds in _OPEN_AGAIN:
        with suppress(IntegrityError, OperationalError, ProgrammingError):
            return open_once()
        time.sleep(seconds)
    return open_once()


def fingerprint(scorer: Scorer) -> str:
    """Changes whenever a score could, but for the code of a function: its name stands for it."""
    settings: list[object] = [
        scorer.images,
        scorer.batches,
        scorer.batch_size,
        scorer.definition,
        scorer.points,
        scorer.score if isinstance(scorer.score, str) else describe(scorer.score),
        scorer.seed,
        describe(scorer.privacy_score),
        scorer.device.kind,
    ]
    settings += [str(scorer.trained), str(scorer.untrained)]
    weights = [*scorer.trained.state_dict().values(), *scorer.untrained.state_dict().values()]
    digest = hashlib.sha256(json.dumps(settings).encode())
    digest.update(content_hash([*weights, scorer.held_out.images, scorer.held_out.labels]))
    return digest.hexdigest()
