"""Attack results as data: what came of one image."""

import json
from dataclasses import asdict, dataclass

from gradveil.errors import GradveilError
from gradveil.io.typed_json import from_json
from gradveil.leakage.scenario import ScenarioKey

# `estimate` is there where the attacker made something else of the reconstruction, by undoing a transformation.
PICTURES = ("original", "transformed", "reconstruction")
ESTIMATE = "estimate"
LARGEST_RECORD = 16 * 2**20


@dataclass(frozen=True)
class Record:
    """What the attack got out of one image; PSNR in dB, pictures as base64 PNG, `distance` None when it is no number.

    - The original is the private image, the transformed one what the network saw of it.
    - `unit` are the images of its batch, by their numbers.
    - `label_accuracy` is the fraction of the batch's labels that the attacker had right.
    - `similarity` is how alike the gradients were at some `iterations`, over all parameters and over the `shallow` and `deep`
      third of them; `layers` is the same per parameter in the end.
    """

    scenario: ScenarioKey
    index: int
    unit: tuple[int, ...]
    label: str
    psnr_transformed: float
    psnr_original: float
    ssim_transformed: float
    ssim_original: float
    mse_transformed: float
    mse_original: float
    null_psnr: float
    null_psnr_original: float
    label_accuracy: float
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
    def gain(self) -> float:
        """PSNR over the best constant colour, both to the transformed image, which is what was shared."""
        return self.psnr_transformed - self.null_psnr

    @property
    def gain_original(self) -> float:
        """The same to the original image, which is what a person cares about."""
        return self.psnr_original - self.null_psnr_original

    @property
    def psnr_leaked(self) -> float:
        """The PSNR by which a defense is judged, chosen as for `leaked`."""
        return self.psnr_transformed if self.scenario.attacker == "plain" else self.psnr_original

    @property
    def leaked(self) -> float:
        """The gain by which a defense is judged: to what was shared, or to the original where the attacker knows the defense."""
        return self.gain if self.scenario.attacker == "plain" else self.gain_original

    def figures(self) -> dict[str, object]:
        """The record without its pictures, gains included: what `--json` prints."""
        figures = {name: value for name, value in asdict(self).items() if name not in ("scenario", "pictures")}
        return figures | {
            "gain": round(self.gain, 4),
            "gain_original": round(self.gain_original, 4),
            "beats_null": self.leaked > 0,
            "diverged": self.diverged,
        }

    def to_json(self) -> str:
        return json.dumps(asdict(self), sort_keys=True, allow_nan=False, indent=1) + "\n"

    @classmethod
    def from_json(cls, text: str) -> "Record":
        """Read what `to_json` wrote; anything else is refused field by field."""
        try:
            record = from_json(cls, text, largest=LARGEST_RECORD)
            if not set(PICTURES) <= set(record.pictures) <= {*PICTURES, ESTIMATE}:
                raise ValueError(f"its pictures must be {', '.join(PICTURES)}")
        except (ValueError, GradveilError) as error:
            raise GradveilError(f"not an attack record: {error}") from error
        return record
