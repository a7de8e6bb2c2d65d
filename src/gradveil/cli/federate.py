"""`gradveil federate`: train together, and see what a curious server gets out of it."""

import re
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from typer import Option

from gradveil.cli.curious import AttackOptions, attack_recorded, report_run
from gradveil.cli.engines import EngineOptions
from gradveil.cli.options import (
    EMBEDDED,
    DatasetOption,
    DefenseOption,
    DeviceOptions,
    LossOption,
    NewModelOption,
    NormalizeOption,
    RunOptions,
    name_around,
    parse_numbers,
)
from gradveil.cli.output import check_folder, say_estimate
from gradveil.errors import GradveilError

if TYPE_CHECKING:
    from gradveil.federated.curiosity import Curiosity
    from gradveil.federated.curious.summary import Leak


@dataclass(frozen=True)
class CuriousOptions:
    """What a curious server records."""

    curious_rounds: Annotated[str, Option(help="Rounds it records, 0 is the first.")] = "0"
    curious_participant: Annotated[
        int, Option(help="Whose update is recorded; with --engine gloo: who records.", min=0)
    ] = 0
    sums: Annotated[
        str, Option(help="Record only means of this many participants, as under secure aggregation: 1,5,10.")
    ] = "1"
    victims: Annotated[int, Option(help="How many participants, or sums, are attacked per round.", min=1)] = 1
    later: Annotated[bool, Option("--later", help="Record only. `gradveil curious FOLDER` attacks afterwards.")] = False

    def curiosity(self) -> "Curiosity":
        """The same as an object."""
        from gradveil.federated.curiosity import Curiosity

        rounds, sums = (
            tuple(sorted(set(parse_numbers(text, f"{what} such as 1,5,10"))))
            for what, text in (("rounds", self.curious_rounds), ("sums", self.sums))
        )
        return Curiosity(rounds, self.curious_participant, sums, self.victims)


def federate(
    *,
    participants: Annotated[int, Option(help="How many train together.", min=1)] = 10,
    rounds: Annotated[int, Option(help="How many rounds of sharing updates.", min=1)] = 100,
    defense: DefenseOption = "none",
    model: NewModelOption = "convnet-16",
    normalize: NormalizeOption = None,
    loss: LossOption = None,
    dataset: DatasetOption = EMBEDDED,
    partition: Annotated[str, Option(help="iid, dirichlet:ALPHA or classes:K per participant.")] = "iid",
    client: Annotated[str, Option(help="fedsgd, or local steps: fedavg:lr=0.05,batch=16,epochs=1.")] = "fedsgd",
    batch: Annotated[str, Option(help="Images a participant takes per round, or all.")] = "13",
    lr: Annotated[
        float | None,
        Option(help="Learning rate. Default: 0.1; for fedavg the client's. Drops tenfold at 3/8, 5/8, 7/8."),
    ] = None,
    momentum: Annotated[float | None, Option(help="Momentum of the server. Default: 0.9; for fedavg 0.")] = None,
    weight_decay: Annotated[float | None, Option(help="Weight decay. Default: 5e-4; for fedavg 0.")] = None,
    per_round: Annotated[int | None, Option(help="Participants per round. Default: all.", min=1)] = None,
    dropout: Annotated[float, Option(help="Probability that a participant drops out of a round.")] = 0.0,
    plain_images: Annotated[bool, Option("--plain-images", help="Neither crop nor mirror the images.")] = False,
    curious: Annotated[
        str | None, Option(help="Attack of a curious server: a name from `gradveil attack list`.")
    ] = None,
    server: CuriousOptions,
    attack: AttackOptions,
    engine: EngineOptions,
    out: Annotated[Path | None, Option(help="Folder. Default: runs/federate/DATASET-MODEL-...")] = None,
    where: DeviceOptions,
    options: RunOptions,
) -> None:
    """Train one model among several participants. Killed and started again, it goes on and ends with the same weights.

    With --curious the server records updates and attacks them in the background. One run gives accuracy and leakage.

    Examples:

        gradveil federate --model convnet-16 --rounds 300 --defense 3-1-7+43-18-18
        gradveil federate --model lenet --batch 1 --lr 0.01 --rounds 60 --curious idlg --curious-rounds 0,1,5,10,20,50
        gradveil federate --client fedavg:lr=0.05,batch=16 --batch all --partition dirichlet:0.5 --per-round 5
        gradveil federate --batch 2 --curious fast --curious-rounds 0,5 --sums 1,2,5
        gradveil federate --engine flower --participants 3 --rounds 20
        gradveil federate --engine flower --superlink fl.example.org:8000 --root-certificates ca.pem --participants 3
        gradveil federate --engine gloo --topology ring --curious fast --curious-participant 2
    """
    from gradveil.auditing.rough import rough_federated_seconds
    from gradveil.client import FedAvg, parse_client
    from gradveil.defenses import parse_defense
    from gradveil.federated.curious.attacking import check_curious
    from gradveil.federated.curious.watch import plan_loader, watching, write_attack_settings
    from gradveil.federated.folder import claiming
    from gradveil.federated.plan import FederatedPlan
    from gradveil.naming import slug

    model = name_around(model, normalize, loss)
    local = parse_client(client)
    own_rate = local.lr if isinstance(local, FedAvg) else None
    plan = FederatedPlan(
        dataset=dataset,
        model=model,
        participants=participants,
        rounds=rounds,
        defense=str(parse_defense(defense)),
        partition=partition,
        client=client,
        batch=parse_batch(batch),
        lr=lr if lr is not None else own_rate or 0.1,
        momentum=momentum if momentum is not None else 0.0 if own_rate else 0.9,
        weight_decay=weight_decay if weight_decay is not None else 0.0 if own_rate else 5e-4,
        per_round=per_round,
        dropout=dropout,
        augment=not plain_images,
        seed=options.seed,
    )
    device = where.choose()
    own = plan_loader(options.data_dir, model=model, dataset=dataset)
    curiosity, how = None, None
    if curious is None:
        for group in (server, attack):
            for field in fields(group):
                if getattr(group, field.name) != field.default:
                    option = f"--{field.name.replace('_', '-')}"
                    raise GradveilError(f"{option} is about a curious server's attack: --curious NAME is missing")
    else:
        curiosity = server.curiosity()
        curiosity.check(participants=participants, per_round=per_round or participants, rounds=rounds)
        how = attack.scenario(None, curious, options.seed, device.text)
        check_curious(plan, curiosity, how, own(plan))
    size = f"{plan.participants}x{plan.rounds}"
    folder = out or Path("runs/federate") / slug(plan.dataset, plan.model, size, plan.defense, f"seed{plan.seed}")
    check_folder(folder)
    trainer = engine.prepare(plan, curiosity, folder, device, own, options.data_dir)
    if trainer.at_once is not None:
        attacked = None if server.later else how
        say_estimate(
            rough_federated_seconds(plan, own(plan), curiosity, attacked, at_once=trainer.at_once, device=device)
        )
    leaks: list[Leak] = []
    if how is None or curiosity is None:
        history = trainer.train()
    else:
        with claiming(folder, plan, curiosity, trainer.topology, device=device):
            write_attack_settings(folder, how)
            if server.later:
                history = trainer.train()
            else:
                with watching(folder, plan, data_dir=options.data_dir, device=device):
                    history = trainer.train()
                    leaks = attack_recorded(folder, how, own)
    if not history and not leaks and not options.json:
        return  # one participant of many: others have the results
    report_run(folder, plan, history, leaks, own, json=options.json)


def parse_batch(text: str) -> int | None:
    """`13` or `all`."""
    if text == "all":
        return None
    if re.fullmatch(r"[1-9]\d{0,6}", text) is None:
        raise GradveilError(f"expected a number of images such as 13, or all, got {text!r}")
    return int(text)
