"""Attack results as data: what came of one image."""

import json
from dataclasses import asdict, dataclass

from gradveil.errors import GradveilError
from gradveil.io.typed_json import from_json
from gradveil.leakage.lineups import MOST_DECOYS, Rank
from gradveil.leakage.scenario import ScenarioKey

# `estimate` is there where the attacker made something else of the rebuilt image: a policy undone, noise taken out.
PICTURES = ("original", "transformed", "reconstruction")
ESTIMATE = "estimate"
LARGEST_RECORD = 16 * 2**20


@dataclass(frozen=True)
class Record:
    """What the attack got out of one private image; PSNR in dB, pictures as base64 PNG, `distance` None when it is no number.

    - `rank` is its place among decoys of its class by what was rebuilt, None where there is no decoy. `placebo` is the place of
      an image of the class that was not attacked.
    - `psnr`, `ssim`, `mse` are of the attacker's estimate to the private image; `guess_psnr` and `guess_ssim` of the best guess
      that the same attacker makes without the gradient, which is in words `guess`.
    - `published_psnr` and `published_ssim` are what papers report: of the rebuilt image to the shared one.
    - `labels_read` is the fraction of the batch's labels that the gradient gives away, None where they cannot be read.
    - `unit` are the images of its batch, by their numbers.
    - `similarity` is how alike the gradients were at some `iterations`, over all parameters and over the `shallow` and `deep`
      third of them, and of two shallow and two deep layers by name; `layers` is the same per parameter in the end.
    """

    scenario: ScenarioKey
    index: int
    unit: tuple[int, ...]
    label: str
    rank: Rank | None
    placebo: Rank | None
    psnr: float
    ssim: float
    mse: float
    guess: str
    guess_psnr: float
    guess_ssim: float
    published_psnr: float
    published_ssim: float
    labels_read: float | None
    distance: float | None
    iterations: int
    restarts: int
    restarts_diverged: int
    ended: str
    similarity: dict[str, tuple[float, ...]]
    layers: dict[str, float]
    knowledge: dict[str, str]
    pictures: dict[str, str]
    gradveil: str

    @property
    def diverged(self) -> bool:
        return self.ended == "diverged"

    @property
    def detail(self) -> float:
        """How much nearer the estimate is than the guess without the gradient, in dB; both to the private image."""
        return self.psnr - self.guess_psnr

    @property
    def percentile(self) -> float | None:
        """The fraction of decoys that the private image ranks above; None where there is no decoy."""
        return None if self.rank is None else self.rank.percentile

    def figures(self) -> dict[str, object]:
        """The record without its pictures, with what follows from it: what `--json` prints."""
        figures = {name: value for name, value in asdict(self).items() if name not in ("scenario", "pictures")}
        return figures | {
            "percentile": None if self.percentile is None else round(self.percentile, 4),
            "detail": round(self.detail, 4),
            "diverged": self.diverged,
        }

    def to_json(self) -> str:
        return json.dumps(asdict(self), sort_keys=True, allow_nan=False, indent=1) + "\n"

    @classmethod
    def from_json(cls, text: str) -> "Record":
        """Read what `to_json` wrote; anything else is refused field by field."""
        try:
            record = from_json(cls, text, largest=LARGEST_RECORD)
            _check_ranks(record)
            if not set(PICTURES) <= set(record.pictures) <= {*PICTURES, ESTIMATE}:
                raise ValueError(f"its pictures must be {', '.join(PICTURES)}")
        except (ValueError, GradveilError) as error:
            raise GradveilError(f"not an attack record: {error}") from error
        return record


def _check_ranks(record: Record) -> None:
    """Refuse places that no attack can have led to: they would count as evidence."""
    unit = set(record.unit)
    if record.index not in unit or min(unit) < 0:
        raise ValueError(f"expected image {record.index} in its batch, got {str(record.unit)[:40]}")
    for name, found in (("rank", record.rank), ("placebo", record.placebo)):
        if found is None:
            continue
        if not 1 <= len(found.decoys) <= MOST_DECOYS or not 1 <= found.rank <= 1 + len(found.decoys):
            raise ValueError(
                f"expected a {name} among 1 to {MOST_DECOYS} decoys, got {found.rank} of {len(found.decoys)}"
            )
        others = {*found.decoys, *unit}
        if found.index in others - {record.index} or len(others) < len(found.decoys) + len(unit) or min(others) < 0:
            raise ValueError(f"expected decoys that are other images, each once, got {str(found.decoys)[:40]}")
        if found.index < 0 or (found.index == record.index) != (name == "rank"):
            raise ValueError(f"expected a {name} of {'this' if name == 'rank' else 'another'} image, got {found.index}")
