"""An audit as data: which defenses are tried against which attacks, at which stages of training, on how many images."""

import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from itertools import chain
from pathlib import Path
from typing import get_args

from gradveil.attacks import ATTACKS, Attack, AttackSettings, attack_settings, fast, parse_attack
from gradveil.auditing.choice import Choice, attack_texts, chosen_attack
from gradveil.auditing.comparisons import is_one_policy
from gradveil.auditing.stages import format_stage, parse_stages, round_stages
from gradveil.defenses import Defense, EachRandom, NoDefense, Random, each_random, parse_defense, parse_defenses
from gradveil.devices import CPU, Device, parse_device
from gradveil.errors import GradveilError
from gradveil.leakage.scenario import Scenario, ScenarioKey
from gradveil.leakage.threat import PLAIN, THREATS, Threat, check_names
from gradveil.leakage.threat_texts import parse_threat
from gradveil.models import Model, model_name
from gradveil.training.stage import Stage
from gradveil.types import Split

# What every audit compares with.
CONTROLS = (NoDefense(), Random())
# The mean percentile up to which a defense may be said to protect.
TOLERANCE = 0.6
# Settings of an attack are tried on so many messages, where the audit attacks so many of every defense: otherwise trying would be
# a large part of it.
TRIAL_MESSAGES, LEAST_MESSAGES = 2, 8


@dataclass(frozen=True)
class AuditPlan:
    """Everything that decides an audit of a model on a dataset.

    - `model` is a name or a module of your own; `weights` a safetensors file for it.
    - `defenses`, `attacks` are objects, or texts such as `prune:0.9` and `fast:tv=0.05,restarts=2`; a defense may also be a
      policy file. Undefended gradients and random policies are always there, to compare with: a hybrid of ten, or one by one
      where the papers' `random:each=10` is asked for. Every defense meets an attacker who knows it.
    - `stages` at which the network is attacked: after some steps, after `epochs` epochs, or `Stage("weights")` as it is given.
    - `images` are attacked, the classes in turn. `eps` are PSNRs in dB that a reconstruction should not reach.
    - `tolerance` is what a defense may let through and still protect: the mean fraction of other images of its class that a
      private image ranks above, where 0.5 is chance.
    - `trainings` of `epochs` epochs per defense measure accuracy; 0 trains none.
    - `device` is where networks are trained and attacked.
    - `threats` say who attacks and how participants train, objects or texts such as `fedsgd:images=4` and `ours.toml`; without
      any, one image is behind one gradient.
    - `split`: training images are attacked, which participants share gradients of, or test images, as in the papers. The attacker
      may know the images of the other split.
    - `tune`: other settings of every attack are tried on a few images first, per stage, and the strongest is taken. An attack
      whose `tv`, `start`, `rate` or `restarts` are not as published is taken as it is.

        AuditPlan("convnet-16", defenses=(Prune(0.9),), attacks=(fast(iterations=200),), images=16)
    """

    model: Model
    defenses: tuple[Defense, ...] = ()
    attacks: tuple[Attack, ...] = (fast(),)
    stages: tuple[Stage, ...] = (Stage(),)
    images: int = 32
    eps: tuple[float, ...] = (20.0,)
    epochs: int = 12
    trainings: int = 0
    weights: Path | None = None
    seed: int = 0
    tolerance: float = TOLERANCE
    device: Device = CPU
    threats: tuple[Threat, ...] = ()
    split: Split = "train"
    tune: bool = True

    def __post_init__(self) -> None:
        attacks = (parse_attack(one) if isinstance(one, str) else one for one in self.attacks)
        object.__setattr__(self, "attacks", tuple(attacks))
        threats = (parse_threat(one) if isinstance(one, str) else one for one in self.threats)
        object.__setattr__(self, "threats", tuple(threats))
        # A policy file, or any defense by its text, is read once: afterwards the policy itself is the text.
        given = [
            one
            for asked in self.defenses
            for one in (parse_defenses(str(asked)) if isinstance(asked, str | Path | EachRandom) else (asked,))
        ]
        named = {str(one): one for one in (*CONTROLS, *given)}
        object.__setattr__(self, "defenses", tuple(named[name] for name in with_controls(tuple(map(str, given)))))
        settings = self.settings("")  # bad numbers are refused there
        if settings.parse_stages() != self.stages:
            stages = ", ".join(map(str, self.stages))
            raise GradveilError(f"expected stages of training steps, {self.epochs} epochs or weights, got {stages}")

    @property
    def attacks_per_defense(self) -> int:
        """How many attacks, each by every attacker, a defense goes through at a stage."""
        attackers = (
            len(threat.attackers(str(defense))) for defense in self.defenses for threat in threats_of(self.threats)
        )
        return len(self.attacks) * max(attackers)

    @property
    def every_stage(self) -> tuple[Stage, ...]:
        """The stages of the plan, and those that only some threat has."""
        return self.settings("").every_stage

    def scenarios(self, dataset: str, stage: Stage, defense: Defense, choices: Sequence[Choice] = ()) -> list[Scenario]:
        """What is attacked of one defense at one stage, with the settings that were chosen for it."""
        name = model_name(self.model)
        return [
            threat.on(
                Scenario(
                    dataset, name, stage, attack, defense, attacker, self.seed, device=self.device, split=self.split
                )
            )
            for threat in self.settings(dataset).threats_at(stage)
            for attack in (chosen_attack(one, stage, choices) for one in self.attacks)
            for attacker in threat.attackers(str(defense))
        ]

    def trial_scenario(self, dataset: str, stage: Stage, attack: Attack) -> Scenario:
        """A setting that is tried at a stage: on undefended gradients, under the first threat there."""
        plain = Scenario(
            dataset, model_name(self.model), stage, attack, seed=self.seed, device=self.device, split=self.split
        )
        return self.settings(dataset).threats_at(stage)[0].on(plain)

    def settings(self, dataset: str) -> "AuditSettings":
        """The plan in texts and numbers, for files and pages."""
        attacks, iterations = attack_texts(self.attacks)
        return AuditSettings(
            dataset,
            model_name(self.model),
            tuple(map(str, self.defenses)),
            attacks,
            tuple(format_stage(one, given=self.weights is not None) for one in self.stages),
            self.images,
            self.eps,
            iterations,
            self.epochs,
            self.trainings,
            None if self.weights is None else str(self.weights),
            self.seed,
            self.tolerance,
            self.device.kind,
            self.threats,
            self.split,
            self.tune,
        )


@dataclass(frozen=True)
class AuditSettings:
    """A plan in texts and numbers: what files and the command line say.

    `stages` are numbers of training steps, or `trained`: after `epochs` epochs with the defense on, or the weights given; a
    module may be attacked as it is `given`.
    """

    dataset: str
    model: str
    defenses: tuple[str, ...]
    attacks: tuple[str, ...] = ("fast",)
    stages: tuple[str, ...] = ("0",)
    images: int = 32
    eps: tuple[float, ...] = (20.0,)
    iterations: int | None = None
    epochs: int = 12
    trainings: int = 0
    weights: str | None = None
    seed: int = 0
    tolerance: float = TOLERANCE
    device: str = CPU.kind
    threats: tuple[Threat, ...] = ()
    split: Split = "train"
    tune: bool = True

    def __post_init__(self) -> None:
        expanded = (map(str, each.defenses()) if (each := each_random(one)) else (one,) for one in self.defenses)
        object.__setattr__(self, "defenses", with_controls(tuple(chain.from_iterable(expanded))))
        for what, values in (("attack", self.attacks), ("stage", self.stages), ("eps", self.eps)):
            if not values or len(set(values)) != len(values):
                raise GradveilError(f"expected every {what} once and at least one, got {list(values)}")
        for text in (*self.attacks, *self.defenses):
            if re.fullmatch(r"[\w .:+|=,~-]+", text) is None:
                raise GradveilError(f"expected the text of an attack or a defense, got {text!r}")
        if not 1 <= self.images <= 100_000 or not 0 <= self.trainings <= 100 or not 1 <= self.epochs <= 100_000:
            raise GradveilError(
                f"expected 1 to 100000 images, 0 to 100 trainings and 1 to 100000 epochs, got {self.images}, "
                f"{self.trainings} and {self.epochs}"
            )
        if not all(0 < value < 200 for value in self.eps):
            raise GradveilError(f"expected eps in dB such as 20, got {', '.join(f'{value:g}' for value in self.eps)}")
        if re.fullmatch(r"[a-z0-9:]+(,precision=[a-z]+)?", self.device) is None:
            raise GradveilError(f"expected a device such as cpu or cuda, got {self.device!r}")
        if not 0.5 < self.tolerance <= 1:
            raise GradveilError(f"expected a tolerance above 0.5, which is chance, up to 1, got {self.tolerance:g}")
        if self.split not in get_args(Split):
            raise GradveilError(f"expected split train or test, got {self.split!r}")
        check_names(self.threats)
        for threat in threats_of(self.threats):
            threat.count(self.images)
            self.stages_of(threat)

    def parse(self) -> AuditPlan:
        """The plan that the texts name; bad names are refused here."""
        return AuditPlan(
            self.model,
            tuple(parse_defense(one) for one in self.defenses),
            tuple(parse_attack(attack, iterations=self.iterations) for attack in self.attacks),
            self.parse_stages(),
            self.images,
            self.eps,
            self.epochs,
            self.trainings,
            None if self.weights is None else Path(self.weights),
            self.seed,
            self.tolerance,
            parse_device(self.device),
            self.threats,
            self.split,
            self.tune,
        )

    def parse_stages(self) -> tuple[Stage, ...]:
        """The stages that the texts name."""
        return self._parse_stages(self.stages)

    def stages_of(self, threat: Threat) -> tuple[Stage, ...]:
        """The stages at which a threat attacks."""
        if self.weights is not None and threat.rounds:
            raise GradveilError(f"weights bring the stage with them: leave out the rounds of threat {threat.name}")
        given = threat.stages or (() if threat.rounds else self.stages)
        return tuple(dict.fromkeys((*self._parse_stages(given), *round_stages(threat))))

    def _parse_stages(self, texts: tuple[str, ...]) -> tuple[Stage, ...]:
        return parse_stages(texts, epochs=self.epochs, given=self.weights is not None)

    def threats_at(self, stage: Stage) -> list[Threat]:
        """The threats that attack at a stage."""
        return [one for one in threats_of(self.threats) if stage in self.stages_of(one)]

    def trial_images(self, stage: Stage) -> int:
        """How many images settings are tried on at a stage; none where the audit is too small for it, or leaves it out."""
        unit = next((one.unit for one in self.threats_at(stage)), self.images)
        return TRIAL_MESSAGES * unit if self.tune and self.images // unit >= LEAST_MESSAGES else 0

    @property
    def every_stage(self) -> tuple[Stage, ...]:
        """The stages of the plan, and those that only some threat has."""
        every = [*self.parse_stages(), *(stage for threat in self.threats for stage in self.stages_of(threat))]
        asked = {stage for threat in threats_of(self.threats) for stage in self.stages_of(threat)}
        return tuple(stage for stage in dict.fromkeys(every) if stage in asked)

    def _attack(self, text: str, threat: Threat, stage: Stage, choices: Sequence[Choice]) -> tuple[str, AttackSettings]:
        """As records name it; an attack of somebody's own is known by its text only."""
        if text.partition(":")[0] not in ATTACKS:
            return text, AttackSettings()
        attack = parse_attack(text, iterations=self.iterations)
        if self.trial_images(stage):
            attack = chosen_attack(attack, stage, choices)
        name, settings = attack_settings(attack)
        labels = threat.knows.labels or settings.labels
        return attack_settings(parse_attack(name, **asdict(replace(settings, labels=labels))))

    def scenario_keys(self, choices: Sequence[Choice] = ()) -> dict[ScenarioKey, int]:
        """What the plan attacks, as records are filed, and on how many images; `choices` are the settings taken for it."""
        return {
            threat.on_key(
                replace(
                    ScenarioKey(self.dataset, self.model, stage, defense, name, None, self.seed, attacker=attacker),
                    **asdict(settings),
                    device=self.device,
                    split=self.split,
                ),
                settings.labels,
            ): threat.count(self.images)
            for threat in threats_of(self.threats)
            for stage in self.stages_of(threat)
            for defense in self.defenses
            for name, settings in (self._attack(attack, threat, stage, choices) for attack in self.attacks)
            for attacker in threat.attackers(defense)
        }


def with_controls(defenses: tuple[str, ...]) -> tuple[str, ...]:
    """Every defense once, after what every audit compares with; random policies by themselves replace the hybrid of them."""
    bare, random = map(str, CONTROLS)
    alone = any(is_one_policy(one) for one in defenses)
    return tuple(dict.fromkeys([bare, *([] if alone else [random]), *defenses]))


def threats_of(threats: tuple[Threat, ...]) -> tuple[Threat, ...]:
    """The threats of a plan: without any, the worst case."""
    return threats or (THREATS[PLAIN],)
