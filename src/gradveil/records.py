"""Attack results as data: what came of one image."""

import json
import math
from dataclasses import asdict, dataclass, fields
from typing import Any, get_args, get_origin, get_type_hints

from gradveil.errors import GradveilError
from gradveil.scenario import Scenario

# `estimate` is there where the attacker made something else of the reconstruction, by undoing a transformation.
PICTURES = ("original", "transformed", "reconstruction")
ESTIMATE = "estimate"


@dataclass(frozen=True)
class Record:
    """What the attack got out of one image; PSNR in dB, pictures as base64 PNG, `distance` None when it is no number.

    `unit` are the images behind the same share, `similarity` how alike the gradients were on the way (at some `iterations`, over
    all parameters and over the `shallow` and `deep` third of them), `layers` per parameter in the end. `label_accuracy` is the
    share of the unit's labels that the attacker had right.
    """

    scenario: Scenario
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
            raw = json.loads(text)
            checked = _checked(raw, cls)
            scenario = Scenario(**_checked(raw["scenario"], Scenario))
            if not set(PICTURES) <= set(raw["pictures"]) <= {*PICTURES, ESTIMATE}:
                raise ValueError(f"its pictures must be {', '.join(PICTURES)}")
        except (ValueError, TypeError, RecursionError) as error:
            raise GradveilError(f"not an attack record: {error}") from error
        return cls(**{**checked, "scenario": scenario})


def _checked(raw: object, kind: type[Record] | type[Scenario]) -> dict[str, Any]:
    names = {field.name for field in fields(kind)}
    if not isinstance(raw, dict) or set(raw) != names:
        raise ValueError(f"the fields of a {kind.__name__.lower()} are {', '.join(sorted(names))}")
    hints = get_type_hints(kind)
    return {
        name: value if hints[name] is Scenario else _fitting(name, value, hints[name]) for name, value in raw.items()
    }


def _fitting(name: str, value: object, hint: object) -> object:
    """The value as its type asks for it: lists become tuples, whole numbers floats."""
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is dict and isinstance(value, dict):
        return {str(key): _fitting(name, one, arguments[1]) for key, one in value.items()}
    if origin is tuple and isinstance(value, list):
        return tuple(_fitting(name, one, arguments[0]) for one in value)
    if origin is None and isinstance(hint, type):
        number = isinstance(value, int | float) and not isinstance(value, bool)
        if hint is float:
            if number and math.isfinite(float(value)):  # type: ignore[arg-type]
                return float(value)  # type: ignore[arg-type]
        elif isinstance(value, hint) and (hint is not int or number):
            return value
    elif origin is not None and origin not in (dict, tuple):
        for choice in arguments:
            if value == choice and isinstance(choice, str):
                return value
            try:
                return _fitting(name, value, choice)
            except ValueError:
                continue
    raise ValueError(f"{name} is {str(value)[:40]!r}, which does not fit")
