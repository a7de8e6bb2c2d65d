"""Attack results as data: a scenario says what was attacked and how, a record what came of one image."""

import json
import math
from dataclasses import asdict, dataclass, fields
from typing import get_type_hints

from gradveil.errors import GradveilError
from gradveil.transforms import Policy

UNDEFENDED = "none"
PICTURES = ("original", "transformed", "reconstruction")


@dataclass(frozen=True)
class Scenario:
    """A curious server attacks the gradient of single images; `defense` is a policy or `none`.

    `model` and `stage` describe the attacked network in words ("convnet-16", "untrained"). `iterations` None means as published.
    """

    dataset: str
    model: str
    stage: str
    defense: str
    attack: str
    iterations: int | None
    seed: int

    @property
    def policy(self) -> Policy | None:
        return None if self.defense == UNDEFENDED else Policy.parse(self.defense)

    @property
    def setting(self) -> tuple[str, str, str, str]:
        """What has to be equal for two defenses to be comparable."""
        return self.dataset, self.model, self.stage, self.attack


@dataclass(frozen=True)
class Record:
    """What the attack got out of one image; PSNR in dB, pictures as base64 PNG, `distance` None when the run diverged."""

    scenario: Scenario
    index: int
    label: str
    psnr_transformed: float
    psnr_original: float
    ssim_transformed: float
    ssim_original: float
    null_psnr: float
    null_psnr_original: float
    distance: float | None
    iterations: int
    restarts: int
    diverged: bool
    knowledge: dict[str, str]
    pictures: dict[str, str]
    gradveil: str

    @property
    def gain(self) -> float:
        """PSNR over the best constant colour, both to the transformed image, which is what was shared."""
        return self.psnr_transformed - self.null_psnr

    @property
    def gain_original(self) -> float:
        """The same to the original image, which is what a person cares about."""
        return self.psnr_original - self.null_psnr_original

    def figures(self) -> dict[str, object]:
        """The record without its pictures, gains included: what `--json` prints."""
        figures = {name: value for name, value in asdict(self).items() if name not in ("scenario", "pictures")}
        return figures | {"gain": round(self.gain, 4), "gain_original": round(self.gain_original, 4)}

    def to_json(self) -> str:
        return json.dumps(asdict(self), sort_keys=True, allow_nan=False, indent=1) + "\n"

    @classmethod
    def from_json(cls, text: str) -> "Record":
        """Read what `to_json` wrote; anything else is refused field by field."""
        try:
            raw = json.loads(text)
            _check_fields(raw, cls)
            _check_fields(raw["scenario"], Scenario)
            if set(raw["pictures"]) != set(PICTURES):
                raise ValueError(f"its pictures must be {', '.join(PICTURES)}")
        except (ValueError, TypeError, RecursionError) as error:
            raise GradveilError(f"not an attack record: {error}") from error
        return cls(**{**raw, "scenario": Scenario(**raw["scenario"])})


def _check_fields(raw: object, kind: type[Record] | type[Scenario]) -> None:
    names = {field.name for field in fields(kind)}
    if not isinstance(raw, dict) or set(raw) != names:
        raise ValueError(f"the fields of a {kind.__name__.lower()} are {', '.join(sorted(names))}")
    hints = get_type_hints(kind)
    for name, value in raw.items():
        if hints[name] is Scenario:
            continue
        if hints[name] == dict[str, str]:
            good = isinstance(value, dict) and all(isinstance(text, str) for text in value.values())
        elif isinstance(value, float):
            good = math.isfinite(value) and isinstance(value, hints[name])
        else:
            # A JSON number without a fraction reads as int where a float is meant.
            good = isinstance(value, hints[name]) or (hints[name] is float and type(value) is int)
        if not good:
            raise ValueError(f"{name} is {str(value)[:40]!r}, which does not fit")
