"""Threat models: their files and names, what they make of an audit, and how they are shown."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from gradveil import attacks
from gradveil.auditing.answers import answers_of
from gradveil.auditing.matrix import behind, run_audit, spread_indices
from gradveil.auditing.plan import AuditPlan
from gradveil.auditing.situation import Situations
from gradveil.auditing.verdicts import CANNOT_TELL
from gradveil.cli.threats import audit_threats, parse_threats, say_other_networks
from gradveil.cli.verdicts import print_verdicts
from gradveil.client import FedAvg, share
from gradveil.defenses import NoDefense, Prune
from gradveil.errors import GradveilError
from gradveil.federated.curiosity import Curiosity
from gradveil.federated.early_rounds import EarlyRounds
from gradveil.federated.first_rounds import FORMAT, write_round
from gradveil.federated.plan import FederatedPlan
from gradveil.federated.recordings import read_recording, recordings_in
from gradveil.federated.rounds import federate
from gradveil.federated.threats import threat_of, threats_in
from gradveil.io.files import write_json
from gradveil.io.tensors import write_tensors
from gradveil.leakage.scenario import Scenario
from gradveil.leakage.shares import Share
from gradveil.leakage.threat import THREATS, Clients, Knowledge, Threat
from gradveil.leakage.threat_texts import parse_threat, read_threat
from gradveil.models import untrained_model
from gradveil.report.page import write_page
from gradveil.training.networks import NetworkSource
from gradveil.training.stage import Stage
from gradveil.types import Dataset

EXAMPLE = """
name = "two hospitals"
attacker = "server"
stages = ["0", "trained"]

[knows]
labels = "read"
order = false

[clients]
images = 16
epochs = 2
batch = 4
rate = 0.05
summed = 2
batch_norm = "train"
"""

THREAT = st.builds(
    Threat,
    name=st.from_regex(r"[A-Za-z0-9][\w .-]{0,20}", fullmatch=True).filter(lambda name: name not in THREATS),
    attacker=st.just("server"),
    knows=st.builds(
        Knowledge,
        labels=st.sampled_from([None, "known", "read", "joint"]),
        order=st.booleans(),
        batch_statistics=st.booleans(),
        public_images=st.booleans(),
        defense=st.just(True),
        draws=st.booleans(),
    ),
    clients=st.builds(
        Clients,
        images=st.integers(1, 1000),
        epochs=st.integers(0, 9),
        batch=st.integers(1, 9),
        rate=st.sampled_from([0.01, 0.5, 1e-4]),
        summed=st.integers(1, 9),
        participants=st.sampled_from([None, 9, 30]),
        batch_norm=st.just("train"),
    ),
    stages=st.sampled_from([None, ("0",), ("0", "20", "trained")]),
    rounds=st.sampled_from([(), (0,), (3, 10)]),
)


@given(THREAT)
def test_every_threat_can_be_spelled(threat: Threat) -> None:
    assert parse_threat(str(threat)) == threat


def test_names_and_settings() -> None:
    assert [str(parse_threat(name)) for name in THREATS] == list(THREATS)
    assert parse_threat("fedsgd:images=32,labels=known").clients.images == 32
    assert parse_threat("fedsgd:images=32").name != parse_threat("fedsgd:images=16").name
    assert parse_threat("fedsgd:stages=0+trained").stages == ("0", "trained")
    assert parse_threat("fedsgd:rounds=0+10").rounds == (0, 10)
    assert parse_threat("aggregate:participants=3,summed=2").clients.together == 3  # in any order
    assert parse_threat("worst-case:batch_statistics=True,batch_norm=train").knows.batch_statistics
    neighbour = parse_threat("aggregate:attacker=neighbour")
    assert (neighbour.users, neighbour.unit) == (3, 3 * 8)  # its own part is known to it
    for bad in (
        "fedsgd:rounds=",
        "fedsgd:rounds=1+1",
        "fedsgd:rounds=-1",
        "fedsgd:rounds=x",
        "fedsgd:rounds=999999",
        "aggregate:participants=3",
        "worst-case:batch_statistics=True",
        "fedsdg",
        "fedsgd:image=3",
        "fedsgd:images=0",
        "worst-case:attacker=neighbour",
        "fedsgd:attacker=me",
    ):
        with pytest.raises(GradveilError):
            parse_threat(bad)


def test_a_file_says_what_a_threat_is(tmp_path: Path) -> None:
    path = tmp_path / "ours.toml"
    path.write_text(EXAMPLE)
    threat = read_threat(path)
    assert threat.describe() == (
        "16 images per participant, local steps on 4 at a time, 2 epochs, mean of 2 participants, batch norm in training mode, "
        "labels read off, order not known, at step 0 and a network that is trained"
    )
    path.write_text("[clients]\nimages = 2\n")
    assert read_threat(path) == Threat("ours", clients=Clients(images=2))
    path.write_text("stages = [0, 'trained']\nrounds = [3]\n")
    assert read_threat(path) == Threat("ours", stages=("0", "trained"), rounds=(3,))
    for bad, said in (
        ("images = 3", r"images belongs to \[clients\], got it in the top"),
        ("[clients]\nrounds = [3]", r"rounds belongs to the top, above all tables, got it in \[clients\]"),
        ("[knows]\nbatch_stats = true", r"unknown setting of \[knows\] 'batch_stats'; did you mean 'batch_statistics'"),
        ("[client]\nimages = 3", "unknown setting of the top, above all tables 'client'; did you mean 'clients'"),
        ("rounds = 5", "rounds: expected a list, each a whole number, got '5'"),
        ("[knows]\nlabels = 'unknown'", "labels: expected known or read or joint, got 'unknown'"),
        ("[knows]\nlabels = read", "texts stand in quotes"),
        ("[clients]\nrate = '0.05'", "rate: expected a number, got '0.05'"),
        ("clients = 3", "expected an object"),
        ("[clients]\nimages = 'many'", "images: expected a whole number, got 'many'"),
        ("[clients]\nimages = 0", "images"),
        ("name = ", "not a threat model"),
        ("name = '<b>'", "name"),
    ):
        path.write_text(bad)
        with pytest.raises(GradveilError, match=said) as error:
            read_threat(path)
        assert str(path) in str(error.value)


def test_a_scenario_under_a_threat() -> None:
    plain = Scenario("fashion-mnist-tenth", "lenet", Stage(), attacks.fast(), NoDefense())
    assert THREATS["worst-case"].on(plain) == plain
    found = THREATS["aggregate"].on(plain)
    assert found.client == FedAvg(0.01, batch=4, epochs=2, order=0)
    assert (found.batch, found.users, found.ordered, found.batch_norm) == (32, 4, False, "train")
    assert found.attack.labels == "read"
    assert THREATS["fedsgd"].on(plain).client is share
    stages = {name: Stage("epochs", 12) if name == "trained" else Stage() for name in THREATS}
    named = Situations.of((threat, "train", (stages[name],)) for name, threat in THREATS.items())
    situations = [named(threat.on(replace(plain, stage=stages[name])).key) for name, threat in THREATS.items()]
    assert [one.threat for one in situations] == list(THREATS)  # the last two differ in the stage alone
    assert situations == sorted(situations)
    assert str(Situations()(plain.key)) == "untrained"


@pytest.mark.parametrize("threat", THREATS.values(), ids=str)
def test_a_plan_in_texts_names_the_records_that_it_makes(threat: Threat) -> None:
    chosen = (attacks.fast(iterations=3), attacks.dlg(iterations=3))
    plan = AuditPlan("lenet", (Prune(0.9),), chosen, threats=(threat, replace(threat, name="other", stages=("5",))))
    made = [
        replace(one.key, together=None)
        for stage in plan.every_stage
        for defense in plan.defenses
        for one in plan.scenarios("mine", stage, defense)
    ]
    assert set(made) == set(plan.settings("mine").scenario_keys())
    assert plan.settings("mine").parse().threats == plan.threats


def test_a_threat_names_rounds_of_its_participants_own_training(small: Dataset, tmp_path: Path) -> None:
    """At the rounds named the network is the one that the same training by `federate` has there."""
    rounds = parse_threat(
        "worst-case:name=ours,images=2,epochs=1,batch=1,rate=0.05,participants=3,rounds=0+2,batch_norm=train"
    )
    plan = AuditPlan(
        "mlp-8", (Prune(0.5),), (attacks.fast(iterations=2),), images=2, threats=(THREATS["worst-case"], rounds)
    )
    study = run_audit(plan, small, tmp_path / "audit")
    assert [str(stage) for stage in plan.every_stage] == ["untrained", "after 2 rounds of ours"]
    assert {str(one.scenario.stage) for one in study.run.records} == {"untrained", "after 2 rounds of ours"}
    # Two images, five attackers of three defenses, one threat at one time and one at two.
    assert len(study.run.records) == 2 * 5 * 3
    page = write_page(study).read_text()
    assert "Over training, ours" in page
    assert "training rounds" in page
    assert "ours, after 2 rounds" in page
    assert "rounds of ours" not in page
    together = FederatedPlan(
        small.name, "mlp-8", participants=3, rounds=8, defense="prune:0.5", client="fedavg:lr=0.05,batch=1,order=0", batch=2,
        lr=0.05, momentum=0, weight_decay=0, augment=False,
    )  # fmt: skip
    folder = tmp_path / "federated"
    federate(together, small, folder, curiosity=Curiosity(rounds=(2,)))
    state = read_recording(recordings_in(folder)[0]).state
    source = NetworkSource(small, "mlp-8", rounds={"ours": EarlyRounds(rounds.clients, small)})
    network = source.at(Stage("rounds", 2, threat="ours"), Prune(0.5)).module
    for name, tensor in network.state_dict().items():
        torch.testing.assert_close(tensor, state[name])
    # Before anything is attacked.
    crowd = replace(rounds, clients=replace(rounds.clients, participants=300))
    with pytest.raises(GradveilError, match="300 participants with 2 images each cannot train"):
        run_audit(replace(plan, threats=(crowd,)), small, tmp_path / "crowd")
    assert not (tmp_path / "crowd").exists()
    alone = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(784, 4), torch.nn.BatchNorm1d(4))
    with pytest.raises(GradveilError, match="cannot train on such a batch: Expected more than 1 value per channel"):
        EarlyRounds(Clients(1), small).take(alone, 1, NoDefense())
    # Who is summed does not change what is trained.
    summed = replace(rounds.clients, summed=3)
    assert str(EarlyRounds(summed, small)) == str(EarlyRounds(rounds.clients, small))
    with pytest.raises(GradveilError, match="weights bring the stage with them: leave out the rounds of threat ours"):
        replace(plan, weights=tmp_path / "w.pt", stages=(Stage("weights"),))


def test_batches_are_whole_and_drawn_at_random(fashion: Dataset) -> None:
    plain = Scenario("fashion-mnist-tenth", "lenet", Stage(), attacks.fast(), NoDefense())
    indices = spread_indices(fashion.train, 30, seed=0)
    chosen = behind(replace(plain, batch=8), indices)
    assert len(set(chosen)) == len(chosen) == 24
    assert set(chosen) <= set(indices)
    labels = fashion.train.labels[list(chosen)].reshape(3, 8)
    assert any(len(set(row.tolist())) < 8 for row in labels)  # classes in turn would never meet twice
    with pytest.raises(GradveilError, match="32 images behind one message, got 8"):
        AuditPlan("lenet", images=8, threats=(THREATS["aggregate"],))


@pytest.fixture
def small(fashion: Dataset) -> Dataset:
    return replace(fashion, train=fashion.train.take(range(100)), test=fashion.test.take(range(20)))


def test_one_audit_of_several_threats_is_one_row_of_steps(small: Dataset, tmp_path: Path) -> None:
    plan = AuditPlan("mlp-8", attacks=(attacks.fast(iterations=2),), images=2, stages=(Stage(),))
    run_audit(plan, small, tmp_path)
    alone = {path: path.stat().st_mtime_ns for path in (tmp_path / "records").iterdir()}
    pairs = Threat("pairs", knows=Knowledge(labels="read"), clients=Clients(images=2, epochs=1))
    study = run_audit(replace(plan, threats=(THREATS["worst-case"], pairs)), small, tmp_path)
    assert all(path.stat().st_mtime_ns == stamp for path, stamp in alone.items())  # named or not, it is the same attack
    (steps,) = study.steps.values()
    assert [step.threat for step in steps] == ["worst-case", "pairs"]
    assert [{verdict.n for verdict in step.verdicts.values()} for step in steps] == [{2}, {2}]
    assert steps[1].description.startswith("2 images per participant")
    ((dataset, model),) = study.steps
    assert "the worst of 2 threats. In the last of them, pairs, it leaks" in answers_of(study, dataset, model)[0].text
    page = write_page(study).read_text()
    assert "from the worst case to what is deployed" in page
    hidden = {defense: replace(one, level=CANNOT_TELL) for defense, one in steps[1].verdicts.items()}
    study.__dict__["steps"] = {(dataset, model): [steps[0], replace(steps[1], verdicts=hidden)]}
    assert answers_of(study, dataset, model)[0].text.endswith("nothing was found of 2 images in 1 message.")
    assert page.index("from the worst case to what is deployed") < page.index("<details")  # not folded away
    assert not study.missing[:-1]  # the last line is that no accuracy was asked for
    assert "{" not in "".join(page.split("<dt>threats</dt>")[1:])[:200]


def test_a_defense_that_one_threat_alone_was_audited_with_is_among_the_steps(
    small: Dataset, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plan = AuditPlan("mlp-8", attacks=(attacks.fast(iterations=2),), images=2, stages=(Stage(),), tune=False)
    run_audit(replace(plan, defenses=(Prune(0.9),), threats=(THREATS["worst-case"],)), small, tmp_path)
    study = run_audit(replace(plan, threats=(Threat("pairs", clients=Clients(images=2)),)), small, tmp_path)
    assert [step.threat for steps in study.steps.values() for step in steps] == ["pairs", "worst-case"]
    print_verdicts(study)
    said = capsys.readouterr().out.partition("from the worst case to what is deployed")[2]
    assert "prune:0.9" in said
    shown = write_page(study).read_text().partition("from the worst case to what is deployed</caption>")[2]
    assert "prune:0.9" in shown.partition("</thead>")[0]


def test_participants_may_crop_and_mirror_their_images(small: Dataset) -> None:
    threat = parse_threat("worst-case:augment=True")
    scenario = threat.on(Scenario(small.name, "mlp-8", Stage(), attacks.fast(iterations=2)))
    network = untrained_model("mlp-8", small).eval()
    found = Share.of(scenario, network, small.train, (3,), small.test)
    again = Share.of(scenario, network, small.train, (3,), small.test)
    assert torch.equal(found.originals.images, again.originals.images)
    assert not torch.equal(found.originals.images, small.train.images[[3]])
    (lineup,) = found.lineups
    assert lineup is not None
    assert torch.equal(lineup.images[:1], found.originals.images)
    # Decoys come out as the image does: none of them is as it is in the dataset.
    assert not any(
        torch.equal(image, small.train.images[at]) for image, at in zip(lineup.images[1:], lineup.decoys, strict=True)
    )
    assert scenario.key.threat_in_words == "images cropped and mirrored"
    assert scenario.key.parse() == scenario


def test_a_local_optimizer_is_part_of_a_threat() -> None:
    threat = parse_threat("fedavg:optimizer=adam,rate=0.001")
    assert threat.clients.client == FedAvg(0.001, 4, 2, 0, "adam")
    assert parse_threat(str(threat)) == threat
    assert "adam" in threat.describe()
    with pytest.raises(GradveilError, match="momentum of sgd"):
        parse_threat("fedavg:momentum=0.5,optimizer=adam")
    with pytest.raises(GradveilError, match="sgd, adam"):
        parse_threat("fedavg:optimizer=lion")


def test_a_training_is_a_threat_by_itself(tmp_path: Path) -> None:
    plan = FederatedPlan("fashion-mnist-tenth", "lenet", batch=8, client="fedavg:lr=0.02,batch=4,epochs=3,momentum=0.9")
    threat = threat_of(plan, 2, name="ours")
    local = Clients(8, epochs=3, batch=4, rate=0.02, momentum=0.9)
    assert threat.clients == replace(local, augment=True, summed=2, participants=10, batch_norm="train")
    assert threat_of(replace(plan, client="fedsgd", per_round=4), 1, name="ours").clients.together == 4
    (tmp_path / "settings.json").write_text('{"curious": {"sums": [1, 5], "rounds": [0, 7]}, ' + plan.to_json()[1:])
    assert [(one.users, one.rounds) for one in threats_in(tmp_path)] == [(1, (0, 7)), (5, (0, 7))]
    (tmp_path / "settings.json").write_text("[]")
    with pytest.raises(GradveilError, match="settings"):
        threats_in(tmp_path)
    with pytest.raises(GradveilError, match="images = 100"):
        threat_of(replace(plan, batch=None), 1, name="ours")


@pytest.mark.parametrize(
    ("name", "called"),
    [
        ("ours", "ours sum of"),
        ("my+run (2)", "my run 2 sum of"),
        ("_x", "training _x sum of"),
        ("l" * 90, "l" * 40 + " sum of"),
        ("+", "training sum of"),
    ],
)
def test_a_training_may_be_kept_in_a_folder_of_any_name(name: str, called: str, tmp_path: Path) -> None:
    plan = json.loads(FederatedPlan("fashion-mnist-tenth", "lenet").to_json())
    write_json(tmp_path / name / "settings.json", plan | {"curious": {"sums": [1, 4]}})
    assert [one.name for one in threats_in(tmp_path / name)] == [f"{called} 1", f"{called} 4"]


@pytest.mark.parametrize("sums", ["[1e999]", '["x"]', "[" * 9000, "3"])
def test_damaged_settings_of_a_training_are_one_line(sums: str, tmp_path: Path) -> None:
    plan = FederatedPlan("fashion-mnist-tenth", "lenet").to_json()
    (tmp_path / "settings.json").write_text(f'{plan[:-1]}, "curious": {{"sums": {sums}}}}}')
    with pytest.raises(GradveilError, match=r"settings\.json: not the settings of a training"):
        threats_in(tmp_path)


def test_a_threat_file_that_is_nested_without_end_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "deep.toml").write_text("a = " + "[" * 20_000)
    with pytest.raises(GradveilError, match=r"deep\.toml: not a threat model"):
        parse_threat(str(tmp_path / "deep.toml"))


def test_recorded_rounds_of_a_flower_app_are_a_threat(tmp_path: Path) -> None:
    weights = {"weight": torch.zeros(2, 3)}
    clients = Clients(images=4, epochs=2, batch=2, rate=0.1)
    for number, node in ((1, "0"), (1, "1"), (3, "0")):
        write_round(tmp_path / "rounds", number, node, weights, weights, 0.1, clients)
    (threat,) = parse_threats(str(tmp_path / "rounds"))
    assert (threat.rounds, threat.clients.together) == ((0, 2), 2)
    assert (threat.name, threat.clients.images, threat.clients.batch_norm) == ("rounds", 4, "train")
    assert (threat.knows.labels, threat.knows.order) == ("read", False)
    odd = tmp_path / "odd" / "round-x-node-0.safetensors"
    odd.parent.mkdir()
    odd.write_bytes((tmp_path / "rounds" / "round-000001-node-0.safetensors").read_bytes())
    with pytest.raises(GradveilError, match=r"expected rounds such as round-000001-node-0\.safetensors, got round-x"):
        threats_in(odd.parent)
    path = write_round(tmp_path / "silent", 1, "0", weights, weights, 0.1)
    with pytest.raises(GradveilError, match=r"record with clients=Clients\(images=8\)"):
        threats_in(path.parent)
    for damaged in ({"images": "many"}, {"images": 0}, [1], {"optimizer": "lion"}):
        write_tensors(path, {"state/weight": torch.zeros(1)}, FORMAT, {"round": 1, "clients": damaged})
        with pytest.raises(GradveilError, match="does not say how participants train"):
            threats_in(path.parent)


def test_where_weights_are_given_the_rounds_of_a_recording_are_not_trained(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plan = FederatedPlan("fashion-mnist-tenth", "lenet", batch=8)
    (tmp_path / "settings.json").write_text('{"curious": {"rounds": [0, 7]}, ' + plan.to_json()[1:])
    (threat,) = audit_threats(str(tmp_path), weights=None, stages=None)
    assert threat.rounds == (0, 7)
    assert capsys.readouterr().err == ""
    for weights, stages, said in ((Path("w.pt"), None, "the weights given"), (None, "20", "--stages 20")):
        (threat,) = audit_threats(str(tmp_path), weights=weights, stages=stages)
        assert threat.rounds == ()
        assert f"taking {said} in place of round 0, round 7 of" in capsys.readouterr().err
    (threat,) = audit_threats("worst-case:stages=0,rounds=3", weights=Path("w.pt"), stages=None)
    assert (threat.stages, threat.rounds) == (None, ())


def test_a_folder_of_another_network_is_said_to_be_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plan = FederatedPlan("fashion-mnist-tenth", "lenet", batch=8)
    write_json(tmp_path / "settings.json", json.loads(plan.to_json()) | {"curious": None})
    say_other_networks(f"fedsgd,{tmp_path}", "lenet", "fashion-mnist-tenth")
    assert capsys.readouterr().err == ""
    say_other_networks(str(tmp_path), "convnet-16", "fashion-mnist-tenth")
    assert "trained lenet on fashion-mnist-tenth; what is attacked is convnet-16 on" in capsys.readouterr().err
