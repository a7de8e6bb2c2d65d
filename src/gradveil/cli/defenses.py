"""`gradveil defenses`: which defenses there are, what they prove and what they cost."""

import time
from dataclasses import MISSING, asdict, dataclass, fields, is_dataclass, replace
from typing import TYPE_CHECKING, Annotated

from typer import Argument, Option

from gradveil.cli.options import DEFAULT_MODEL, EMBEDDED, DatasetOption, DeviceOptions, ModelOption, RunOptions
from gradveil.cli.output import emit, print_table
from gradveil.errors import GradveilError

if TYPE_CHECKING:
    from gradveil.defenses import Defense
    from gradveil.defenses.costs import Cost
    from gradveil.devices import Device

SETTINGS = "settings and defaults"


def defenses(
    *,
    name: Annotated[str | None, Argument(help="Only this one, such as dp-sgd:noise=1.1 or 3-1-7.")] = None,
    measure: Annotated[
        bool, Option("--measure", help="Time a participant's step with and without the defense.")
    ] = False,
    model: ModelOption = None,
    dataset: DatasetOption = EMBEDDED,
    batch: Annotated[int, Option(help="Images in a batch. For epsilon: on average.", min=1, max=100_000)] = 16,
    repeats: Annotated[int, Option(help="Steps that are timed at most.", min=3)] = 15,
    images: Annotated[int | None, Option(help="For epsilon: how many images a participant has.", min=1)] = None,
    steps: Annotated[int | None, Option(help="For epsilon: how many steps are taken.", min=0)] = None,
    delta: Annotated[float | None, Option(help="For epsilon: delta. Default: that of the defense.")] = None,
    epsilon: Annotated[float | None, Option(help="Find the noise of dp-sgd that proves this epsilon.")] = None,
    where: DeviceOptions,
    options: RunOptions,
) -> None:
    """List the defenses: settings, what they prove and, with --measure, what they cost.

    With --images and --steps: state the epsilon of dp-sgd.

    Examples:

        gradveil defenses
        gradveil defenses --measure --model lenet --batch 16
        gradveil defenses dp-sgd:noise=1.1 --images 1000 --batch 13 --steps 500 --delta 1e-5
        gradveil defenses dp-sgd:norm=0.5 --epsilon 3 --images 1000 --batch 13 --steps 500
    """
    from gradveil.defenses import DEFENSES, EXAMPLES, parse_defense

    chosen = [name] if name else [*(EXAMPLES.get(one, one) for one in DEFENSES), "3-1-7"]
    rows = [_facts_of(parse_defense(one)) for one in chosen]
    if not (images is steps is delta is epsilon is None):
        rows[0] = _with_epsilon(rows[0], images, batch, steps, delta, epsilon)
    if measure:
        rows = _with_costs(rows, model or DEFAULT_MODEL, dataset, batch, repeats, where.choose(), options)
    if options.json:
        emit({"defenses": [asdict(row) | {"defense": str(row.defense)} for row in rows]})
    elif name:
        print_table(str(rows[0].defense), ["what", "value"], rows[0].words().items())
    else:
        columns = ["extra parameters", "time per step"] if measure else ["what it does", SETTINGS, "proven"]
        print_table(
            "Defenses", ["defense", *columns], [[str(row.defense), *(row.words()[c] for c in columns)] for row in rows]
        )


@dataclass(frozen=True)
class DefenseFacts:
    """A defense and what there is to say of it. `refused` says why its cost could not be measured."""

    defense: "Defense"
    description: str
    settings: dict[str, str | None]
    guarantee: str
    epsilon: float | None = None
    delta: float | None = None
    cost: "Cost | None" = None
    refused: str | None = None

    def words(self) -> dict[str, str]:
        """The same in words."""
        settings = [key if value is None else f"{key}={value}" for key, value in self.settings.items()]
        found = {"what it does": self.description, SETTINGS: ", ".join(settings), "proven": self.guarantee}
        if self.epsilon is not None:
            found["epsilon"] = f"{self.epsilon:.4g} at delta {self.delta:g}"
        if self.cost is not None:
            low, middle, high = self.cost.ratio
            found["extra parameters"] = f"{self.cost.extra_parameters:,}"
            found["time per step"] = f"{middle:.2f}x ({low:.2f} to {high:.2f}), {1000 * self.cost.seconds:.1f} ms"
        if self.refused is not None:
            found |= {"extra parameters": "-", "time per step": self.refused}
        return found


def _facts_of(defense: "Defense") -> DefenseFacts:
    from gradveil.defenses import DEFENSES
    from gradveil.naming import format_setting

    settings: dict[str, str | None] = {}
    if is_dataclass(defense) and type(defense) in DEFENSES.values():
        for field in fields(defense):
            default = "" if field.default is None else format_setting(field.default)
            settings[field.name] = None if field.default is MISSING else default
    return DefenseFacts(defense, (type(defense).__doc__ or "").partition("\n")[0], settings, defense.guarantee)


def _with_epsilon(
    row: DefenseFacts, images: int | None, batch: int, steps: int | None, delta: float | None, epsilon: float | None
) -> DefenseFacts:
    from gradveil.defenses.parts import private_part

    private = private_part(row.defense)
    if private is None:
        raise GradveilError(f"only dp-sgd has an epsilon, got {row.defense}: use dp-sgd:noise=1.1")
    if images is None or steps is None:
        raise GradveilError("epsilon needs --images and --steps, such as --images 1000 --batch 13 --steps 500")
    if batch > images:
        raise GradveilError(f"a batch of {batch} is more than the {images} images there are")
    dp_sgd = private if delta is None else replace(private, delta=delta)
    if epsilon is not None:
        if private != row.defense:
            raise GradveilError(f"the noise is found for dp-sgd alone, got {row.defense}: use dp-sgd:norm=1")
        dp_sgd = dp_sgd.for_epsilon(epsilon, batch / images, steps)
        row = replace(row, defense=dp_sgd)
    return replace(row, epsilon=dp_sgd.epsilon(batch / images, steps), delta=dp_sgd.delta)


def _with_costs(
    rows: list[DefenseFacts], model: str, dataset: str, batch: int, repeats: int, device: "Device", options: RunOptions
) -> list[DefenseFacts]:
    from gradveil.defenses.costs import cost_of
    from gradveil.devices import CPU
    from gradveil.models import untrained_model
    from gradveil.parallel import using_one_thread

    loaded = options.load(dataset)
    if batch > len(loaded.train):
        raise GradveilError(f"a batch of {batch} is more than the {len(loaded.train)} images there are")
    network = device.place(untrained_model(model, loaded, seed=options.seed).train())
    images = loaded.train.take(range(batch))
    clock = time.process_time if device == CPU else time.perf_counter
    measured = []
    for row in rows:
        try:
            with using_one_thread():
                cost = cost_of(row.defense, network, images, repeats=repeats, clock=clock, seed=options.seed)
            measured.append(replace(row, cost=cost))
        except GradveilError as error:
            # One that does not fit this network is no reason to say nothing of the others.
            if len(rows) == 1:
                raise
            measured.append(replace(row, refused=str(error)))
    return measured
