"""Settings of an attack that were tried on a few images, and the one that was taken: `trials.json`."""

import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace

from gradveil.attacks import ATTACKS, Attack, AttackSettings, Inversion, attack_settings, parse_attack
from gradveil.attacks.optimizers import LBFGS
from gradveil.naming import format_settings
from gradveil.training.stage import Stage

# Other settings than the attack's own, none of which takes longer. Few iterations need a start without noise and a large rate,
# many a weight of total variation that suits the network.
_SMOOTH, _SMOOTHER, _FASTER = 1e-2, 1e-1, 3.0


@dataclass(frozen=True)
class Trial:
    """One setting on the trial images: `attack` as `parse_attack` reads it.

    `percentile` is the mean fraction of decoys that the trial images rank above, None where none has a decoy; `detail` in dB.
    """

    attack: str
    percentile: float | None
    detail: float

    @property
    def strength(self) -> tuple[float, float]:
        """More is stronger: who identifies better, of equals who comes nearer."""
        return self.percentile or 0.0, self.detail

    @property
    def words(self) -> str:
        """`fast:start=zeros (above 93%, -1.2 dB)`."""
        above = "" if self.percentile is None else f"above {self.percentile:.0%}, "
        return f"{self.attack} ({above}{self.detail:+.1f} dB)"


@dataclass(frozen=True)
class Choice:
    """The settings of `attack`, as the plan has it, that were tried at a stage, and which of them was `taken`.

    They were tried on undefended gradients of `images`, none of them audited; `sha256` is of the network and all images.
    """

    stage: str
    attack: str
    images: tuple[int, ...]
    trials: tuple[Trial, ...]
    taken: str
    sha256: str

    def __post_init__(self) -> None:
        if self.taken not in {one.attack for one in self.trials}:
            raise ValueError(f"expected one of the settings that were tried, got {self.taken[:40]!r}")
        for text in (self.attack, *(one.attack for one in self.trials)):
            if re.fullmatch(r"[\w .:+|=,~-]+", text) is None:
                raise ValueError(f"expected the text of an attack, got {text[:40]!r}")
            parse_attack(text)

    @classmethod
    def of(cls, stage: str, attack: str, images: Sequence[int], trials: Sequence[Trial], sha256: str) -> "Choice":
        """The strongest is taken; of equals the first, which is the attack as it is."""
        taken = max(trials, key=lambda one: one.strength)
        return cls(stage, attack, tuple(images), tuple(trials), taken.attack, sha256)

    @property
    def words(self) -> str:
        """For people."""
        tried = "; ".join(one.words for one in self.trials)
        return (
            f"{self.stage}: {len(self.trials)} settings of {self.attack} were tried on {len(self.images)} images that are not "
            f"audited. Taken for every defense: {self.taken}. Tried: {tried}"
        )


def attack_text(attack: Attack) -> str:
    """The attack as `parse_attack` reads it, where it is one of ours."""
    name, settings = attack_settings(attack)
    return format_settings(settings, name)


def attack_texts(attacks: tuple[Attack, ...]) -> tuple[tuple[str, ...], int | None]:
    """Names, and the iterations where all have the same; other settings are part of an attack's text."""
    named = [attack_settings(attack) for attack in attacks]
    iterations = named[0][1].iterations if named else None
    if all(settings == AttackSettings(iterations=iterations) for _, settings in named):
        return tuple(name for name, _ in named), iterations
    return tuple(format_settings(settings, name) for name, settings in named), None


def candidates(attack: Attack) -> list[Attack]:
    """The attack and the same with other settings that take as long; alone where somebody chose its settings already.

    An attack of somebody's own is left as it is, and so is one that does not search.
    """
    name, settings = attack_settings(attack)
    plain = replace(
        AttackSettings(), iterations=settings.iterations, labels=settings.labels, compiled=settings.compiled
    )
    if name not in ATTACKS or not isinstance(attack, Inversion) or settings != plain:
        return [attack]
    zeros = replace(settings, start="zeros")
    tried = [settings, zeros]
    if isinstance(attack.optimizer, LBFGS):
        tried += [replace(settings, start="pattern")]
    else:
        tried += [replace(settings, tv=_SMOOTH), replace(zeros, tv=_SMOOTHER)]
        tried += [replace(zeros, rate=round(_FASTER * attack.optimizer.lr, 6))]
    parsed = [parse_attack(name, **asdict(one)) for one in tried]
    return list({attack_text(one): one for one in parsed}.values())


def chosen_attack(attack: Attack, stage: Stage, choices: Sequence[Choice]) -> Attack:
    """The attack with the settings that were taken for it at a stage; as it is where none were tried."""
    if choices and len(candidates(attack)) > 1:
        for one in choices:
            if (one.stage, one.attack) == (str(stage), attack_text(attack)):
                return parse_attack(one.taken)
    return attack
