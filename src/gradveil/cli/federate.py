"""`gradveil federate`: train together, and see what a curious server gets out of it."""

import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gradveil.cli.curious import (
    AttackerOption,
    IterationsOption,
    LabelsOption,
    attack_recorded,
    attack_scenario,
    report_run,
)
from gradveil.cli.data import EMBEDDED, DataDirOption, DatasetOption
from gradveil.cli.engines import (
    CertificatesOption,
    EngineOption,
    InsecureOption,
    PatienceOption,
    RankOption,
    RendezvousOption,
    SuperLinkOption,
    TimeoutOption,
    TopologyOption,
    trainer,
)
from gradveil.cli.output import JsonOption, SeedOption, WorkersOption, check_folder
from gradveil.cli.train import ModelOption

if TYPE_CHECKING:
    from gradveil.federated.curious.summary import Leak


def federate(
    participants: Annotated[int, typer.Option(min=1)] = 10,
    rounds: Annotated[int, typer.Option(min=1)] = 100,
    defense: Annotated[str, typer.Option(help="none, 3-1-7+43-18-18, prune:0.7, '3-1-7 | clip:1', ...")] = "none",
    model: ModelOption = "convnet-16",
    dataset: DatasetOption = EMBEDDED,
    partition: Annotated[str, typer.Option(help="iid, dirichlet:ALPHA or classes:K per participant.")] = "iid",
    client: Annotated[str, typer.Option(help="fedsgd, or local steps: fedavg:lr=0.05,batch=16,epochs=1.")] = "fedsgd",
    batch: Annotated[str, typer.Option(help="Images a participant takes per round, or all.")] = "13",
    lr: Annotated[
        float | None, typer.Option(help="Default 0.1, for fedavg its own rate; drops at 3/8, 5/8, 7/8.")
    ] = None,
    momentum: Annotated[float | None, typer.Option(help="Of the server's step; default 0.9, for fedavg 0.")] = None,
    weight_decay: Annotated[float | None, typer.Option(help="Default 5e-4, for fedavg 0.")] = None,
    per_round: Annotated[int | None, typer.Option(help="Participants per round; default all.", min=1)] = None,
    dropout: Annotated[float, typer.Option(help="Chance of a participant to drop out of a round.")] = 0.0,
    plain_images: Annotated[bool, typer.Option("--plain-images", help="Neither crop nor mirror the images.")] = False,
    curious: Annotated[
        str | None, typer.Option(help="Let a curious server attack, by this name from `gradveil attack list`.")
    ] = None,
    curious_rounds: Annotated[str, typer.Option(help="Rounds it records, 0 is the first.")] = "0",
    curious_participant: Annotated[int, typer.Option(help="Whose update it records.", min=0)] = 0,
    sums: Annotated[
        str, typer.Option(help="Attack the mean of so many participants: 1,5,10 shows what secure aggregation buys.")
    ] = "1",
    victims: Annotated[int, typer.Option(help="How many participants, or sums, are attacked per round.", min=1)] = 1,
    later: Annotated[
        bool, typer.Option("--later", help="Record only; `gradveil curious FOLDER` attacks afterwards.")
    ] = False,
    attacker: AttackerOption = None,
    iterations: IterationsOption = None,
    labels: LabelsOption = None,
    engine: EngineOption = "embedded",
    superlink: SuperLinkOption = None,
    root_certificates: CertificatesOption = None,
    insecure: InsecureOption = False,
    timeout: TimeoutOption = 300.0,
    patience: PatienceOption = 300.0,
    workers: WorkersOption = 1,
    topology: TopologyOption = None,
    rank: RankOption = None,
    rendezvous: RendezvousOption = None,
    out: Annotated[Path | None, typer.Option(help="Folder; default runs/federate/DATASET-MODEL-...")] = None,
    data_dir: DataDirOption = None,
    seed: SeedOption = 0,
    json: JsonOption = False,
) -> None:
    """Train one model among several participants; killed and started again, it goes on and ends with the same weights.

    With --curious the server records updates and attacks them in the background: accuracy and leakage from one run.

    Examples:

        gradveil federate --model convnet-16 --rounds 300 --defense 3-1-7+43-18-18
        gradveil federate --model lenet --batch 1 --lr 0.01 --rounds 60 --curious idlg --curious-rounds 0,1,5,10,20,50
        gradveil federate --client fedavg:lr=0.05,batch=16 --batch all --partition dirichlet:0.5 --per-round 5
        gradveil federate --batch 2 --curious fast --curious-rounds 0,5 --sums 1,2,5
        gradveil federate --engine flower --participants 3 --rounds 20
        gradveil federate --engine flower --superlink fl.example.org:8000 --root-certificates ca.pem --participants 3
        gradveil federate --engine gloo --topology ring --curious fast --curious-participant 2
    """
    from gradveil.client import FedAvg, parse_client
    from gradveil.defenses import parse_defense
    from gradveil.errors import GradveilError
    from gradveil.federated.curiosity import Curiosity
    from gradveil.federated.curious.attacking import check_curious
    from gradveil.federated.curious.watch import plan_loader, watching, write_attack_settings
    from gradveil.federated.folder import claiming
    from gradveil.federated.plan import FederatedPlan
    from gradveil.naming import slug

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
        seed=seed,
    )
    own = plan_loader(data_dir, model=model, dataset=dataset)
    curiosity, how = None, None
    if curious is None:
        given = {
            "--curious-rounds": curious_rounds != "0",
            "--curious-participant": curious_participant != 0,
            "--sums": sums != "1",
            "--victims": victims != 1,
            "--later": later,
            "--attacker": attacker is not None,
            "--iterations": iterations is not None,
            "--labels": labels is not None,
        }
        option = next((option for option, differs in given.items() if differs), None)
        if option is not None:
            raise GradveilError(f"{option} is about a curious server's attack: --curious NAME is missing")
    else:
        looked_at = parse_numbers(curious_rounds, "rounds")
        curiosity = Curiosity(looked_at, curious_participant, parse_numbers(sums, "sums"), victims)
        curiosity.check(participants=participants, per_round=per_round or participants, rounds=rounds)
        how = attack_scenario(None, curious, iterations, labels, attacker, seed)
        check_curious(plan, curiosity, how, own(plan))
    size = f"{plan.participants}x{plan.rounds}"
    folder = out or Path("runs/federate") / slug(plan.dataset, plan.model, size, plan.defense, f"seed{plan.seed}")
    check_folder(folder)
    run = trainer(
        engine,
        plan,
        folder,
        data_dir=data_dir,
        superlink=superlink,
        root_certificates=root_certificates,
        insecure=insecure,
        timeout=timeout,
        patience=patience,
        workers=workers,
        topology=topology,
        rank=rank,
        rendezvous=rendezvous,
    )
    leaks: list[Leak] = []
    if how is None or curiosity is None:
        history = run(None)
    else:
        with claiming(folder, plan, curiosity, run.topology):
            write_attack_settings(folder, how)
            if later:
                history = run(curiosity)
            else:
                with watching(folder, plan, data_dir=data_dir):
                    history = run(curiosity)
                    leaks = attack_recorded(folder, how, own)
    if not history and not leaks and not json:
        return  # one participant of many: others have the results
    report_run(folder, plan, history, leaks, own, json=json)


def parse_batch(text: str) -> int | None:
    """`13` or `all`."""
    from gradveil.errors import GradveilError

    if text == "all":
        return None
    if re.fullmatch(r"[1-9]\d{0,6}", text) is None:
        raise GradveilError(f"a batch is a number of images such as 13, or all, got {text!r}")
    return int(text)


def parse_numbers(text: str, what: str) -> tuple[int, ...]:
    """`1,5,10` to numbers, each once, in order."""
    from gradveil.errors import GradveilError

    if re.fullmatch(r"\d{1,7}(,\d{1,7})*", text) is None:
        raise GradveilError(f"expected {what} such as 1,5,10, got {text!r}")
    return tuple(sorted({int(part) for part in text.split(",")}))
