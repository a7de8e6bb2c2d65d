"""Attacks that share loops: the numbers of a run do not depend on who is beside it."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from gradveil.attacks import Attack, Evidence, Inversion, Reconstruction, parse_attack, together
from gradveil.attacks.attack import OnIteration
from gradveil.attacks.loop import State
from gradveil.attacks.optimizers import LBFGS
from gradveil.attacks.restarts import Restart
from gradveil.attacks.together import Task, run_together
from gradveil.attacks.turns import Ask, answer_together
from gradveil.attacks.width import SEATS, Width
from gradveil.client import FedAvg, share
from gradveil.defenses import parse_defense
from gradveil.devices import CPU
from gradveil.leakage.lots import Cell, lot_size
from gradveil.leakage.measuring import measure, measure_all
from gradveil.leakage.scenario import ScenarioKey
from gradveil.models import build
from gradveil.training.stage import Stage
from gradveil.types import Batch, Dataset, to_unit

SHAPE = (1, 28, 28)


def evidence_of(model: nn.Module, fashion: Dataset, index: int, defense: str = "none") -> Evidence:
    chosen = fashion.test.take([index])
    batch = Batch(to_unit(chosen.images), chosen.labels)
    gradients = parse_defense(defense).share(share, model, batch, seed=index)
    return Evidence(model, gradients, SHAPE, labels=batch.labels)


def same(one: Reconstruction, other: Reconstruction) -> bool:
    assert one.trace is not None
    assert other.trace is not None
    return (
        torch.equal(one.images, other.images)
        and (one.history, one.ended, one.distance) == (other.history, other.ended, other.distance)
        and torch.equal(one.trace.similarity, other.trace.similarity)
    )


# Sigmoids, batch norm, large matrices: each has had last digits that depended on the batch.
NETWORKS = ("lenet-4", "convnet-2", "mlp-16")


def network(name: str) -> nn.Module:
    return build(name, SHAPE, 10, mean=[0.286], std=[0.353]).eval()


@pytest.mark.parametrize(("model", "name"), [*((model, "fast") for model in NETWORKS), ("lenet-4", "idlg")])
def test_nobody_sees_who_is_beside_it(fashion: Dataset, model: str, name: str) -> None:
    attack, attacked = parse_attack(name, iterations=3, restarts=1), network(model)
    tasks = [Task(attack, evidence_of(attacked, fashion, index), 10 + index) for index in range(7)]
    seven = run_together(tasks)
    for chosen in ([3], [5, 6, 2, 1, 4]):
        for number, found in zip(chosen, run_together([tasks[one] for one in chosen]), strict=True):
            assert same(found, seven[number])


@pytest.mark.parametrize("model", NETWORKS)
def test_every_width_that_is_tried_gives_the_same_numbers(fashion: Dataset, model: str) -> None:
    attack, attacked = parse_attack("adam+cosine", iterations=1), network(model)
    assert isinstance(attack, Inversion)
    runs = [Restart.of(attack, evidence_of(attacked, fashion, index), index, 0) for index in range(3 * SEATS)]

    def evaluate(state: State) -> tuple[object, object, Tensor]:
        losses = state.closure()
        assert state.guess.grad is not None
        return losses, state.distances, state.guess.grad

    first = State(attack, runs, together=True)
    expected = evaluate(first)
    assert first.batch is not None
    widths = {*first.batch.width.trials, *first.batch.width.seconds}  # what other numbers gave is thrown out by now
    assert SEATS in widths
    for width in widths:
        state = State(attack, runs, together=True)
        assert state.batch is not None
        state.batch.width.trials = [width]
        losses, distances, slope = evaluate(state)
        assert (losses, distances) == expected[:2]
        assert torch.equal(slope, expected[2])


def test_a_batch_is_the_same_search_as_one_by_one(fashion: Dataset, small_net: nn.Module) -> None:
    attack = parse_attack("adam+cosine", iterations=1)
    assert isinstance(attack, Inversion)
    runs = [Restart.of(attack, evidence_of(small_net, fashion, index), index, 0) for index in range(3)]
    one_by_one, together = State(attack, runs, together=False), State(attack, runs, together=True)
    assert one_by_one.closure() == pytest.approx(together.closure(), rel=1e-4)
    assert one_by_one.guess.grad is not None
    torch.testing.assert_close(one_by_one.guess.grad, together.guess.grad, rtol=1e-2, atol=1e-6)
    for number in range(3):
        torch.testing.assert_close(one_by_one.similarity(number), together.similarity(number), rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("defense", ["gaussian:1e-3", "prune:0.9", "soteria"])
def test_attackers_who_know_the_defense_share_loops(
    fashion: Dataset, small_net: nn.Module, monkeypatch: pytest.MonkeyPatch, defense: str
) -> None:
    """Noise is smoothed by as much as the image's own gradient asks for."""
    plain = parse_attack("fast", iterations=3)
    tasks = []
    for index in range(5):
        evidence = evidence_of(small_net, fashion, index, defense)
        tasks.append(Task(plain.adapt_to(parse_defense(defense), evidence), evidence, index))
    loops: list[int] = []
    evaluate = Width.evaluate
    monkeypatch.setattr(Width, "evaluate", lambda self, work: loops.append(self.runs) or evaluate(self, work))
    five = run_together(tasks)
    assert set(loops) == {8}
    assert same(run_together(tasks[4:])[0], five[4])
    task = tasks[2]
    alone = task.attack(task.evidence, seed=task.seed)
    # Of 1 - cosine nothing is left below the last digit of 1.
    assert alone.history[0] == pytest.approx(five[2].history[0], rel=1e-3, abs=5e-7)


@pytest.mark.parametrize("how", ["simulate", "inside", "client"])
def test_what_cannot_share_is_as_alone(fashion: Dataset, small_net: nn.Module, how: str) -> None:
    attack: Attack = parse_attack("cpl" if how == "inside" else "fast", iterations=2, restarts=1)
    tasks = []
    for index in range(4):
        evidence = evidence_of(small_net, fashion, index)
        if how == "client":
            evidence = replace(evidence, client=FedAvg(lr=0.01))
        if how == "simulate":
            assert isinstance(attack, Inversion)
            attack = replace(attack, simulate=_flip)
        tasks.append(Task(attack, evidence, index))
    for task, found in zip(tasks, run_together(tasks), strict=True):
        assert same(found, task.attack(task.evidence, seed=task.seed))


def _flip(images: Tensor, chance: torch.Generator) -> Tensor:
    return images.flip(-1)


def test_restarts_end_with_the_first_match(fashion: Dataset) -> None:
    attack = replace(parse_attack("idlg", iterations=2, restarts=3), good_enough=0.5, labels="known")  # type: ignore[type-var]
    attacked = network("mlp-16")
    tasks = [Task(attack, evidence_of(attacked, fashion, index), index) for index in range(5)]
    found = run_together(tasks)
    assert any(one.ended == "matched" and one.restarts == 1 for one in found)
    never = run_together([replace(task, attack=replace(attack, good_enough=1e-30)) for task in tasks])
    assert [one.restarts for one in never] == [3] * 5


def test_rows_of_lbfgs_are_searches_of_their_own() -> None:
    """Each is torch's own, on a valley of its own, whatever the others do and whenever they end."""
    scales = torch.tensor([[1.0, 30.0, 4.0], [2.0, 0.1, 1.0], [5.0, 5.0, 5.0]])
    start = torch.tensor([[3.0, -2.0, 1.0], [0.5, 0.5, -4.0], [1.0, 1.0, 1.0]])

    def valley(values: Tensor, scale: Tensor) -> Tensor:
        return (scale * values.square() + values.pow(4)).sum()

    rows = start.clone().requires_grad_()
    step = LBFGS(0.5).start([rows], 3)

    def closure() -> list[float]:
        losses = [valley(row, scale) for row, scale in zip(rows, scales, strict=True)]
        (rows.grad,) = torch.autograd.grad(torch.stack(losses).sum(), rows)
        return [loss.item() for loss in losses]

    for moving in ([0, 1, 2], [0, 1, 2], [0, 2]):
        step(closure, moving)
    for number, steps in enumerate((3, 2, 3)):
        own = start[number].clone().requires_grad_()
        optimizer = torch.optim.LBFGS([own], lr=0.5)

        def evaluate(own: Tensor = own, number: int = number) -> float:
            loss = valley(own, scales[number])
            (own.grad,) = torch.autograd.grad(loss, own)
            return loss.item()

        for _ in range(steps):
            optimizer.step(evaluate)  # type: ignore[no-untyped-call]
        assert torch.equal(rows.detach()[number], own.detach())


def test_searches_are_answered_together() -> None:
    asked: list[str] = []

    def search(name: str, times: int) -> Callable[[Ask], None]:
        def run(ask: Ask) -> None:
            for _ in range(times):
                asked.append(name)
                ask()

        return run

    answer_together([search("a", 1), search("b", 3), search("c", 2)], lambda: asked.append("|"))
    assert "".join(asked) == "abc|bc|b|"


def test_what_a_search_raises_is_raised() -> None:
    ended: list[str] = []

    def fails(ask: Ask) -> None:
        ask()
        raise ValueError("no")

    def waits(ask: Ask) -> None:
        try:
            ask()
            ask()
        finally:
            ended.append("waits")

    with pytest.raises(ValueError, match="no"):
        answer_together([waits, fails], lambda: None)
    assert ended == ["waits"]

    def interrupt() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        answer_together([waits, waits], interrupt)
    assert ended == ["waits"] * 3


@pytest.fixture
def four_seats(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a processor without AVX-512."""
    monkeypatch.setattr("gradveil.attacks.width.SEATS", 4)
    monkeypatch.setattr("gradveil.leakage.lots.SEATS", 4)


@pytest.mark.usefixtures("four_seats")
def test_the_quickest_width_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [0.0]
    monkeypatch.setattr("gradveil.attacks.width.time.perf_counter", lambda: clock[0])
    seconds, calls = {4: 3.0, 8: 5.0, 16: 11.0}, []

    def evaluate(low: int, high: int) -> list[int]:
        calls.append(high - low)
        clock[0] += seconds[high - low]
        return list(range(low, high))

    width = Width(16)
    for _ in range(12):
        assert width.evaluate(evaluate) == list(range(16))
    assert set(calls) == {4, 8, 16}
    assert width.chosen == 8


@pytest.mark.usefixtures("four_seats")
def test_widths_with_other_last_digits_are_not_tried() -> None:
    width = Width(32)
    numbers = {4: 1.0, 8: 1.0, 16: 1.0 + 2**-52, 32: 1.0}
    width.keep_equal(lambda one: torch.tensor([numbers[one]], dtype=torch.float64))
    assert set(width.trials) == {4, 8, 32}
    for _ in range(9):
        width.evaluate(lambda low, high: list(range(low, high)))
    assert width.chosen in (4, 8, 32)


@pytest.mark.usefixtures("four_seats")
def test_a_width_that_the_memory_does_not_hold_is_given_up() -> None:
    def evaluate(low: int, high: int) -> list[int]:
        if high - low > most:
            raise torch.OutOfMemoryError("too wide")
        return list(range(low, high))

    most, width = 8, Width(32)
    for _ in range(20):
        assert width.evaluate(evaluate) == list(range(32))
    assert width.chosen in (4, 8)
    most = 4
    for _ in range(3):
        assert width.evaluate(evaluate) == list(range(32))
    assert width.chosen == 4
    most = 2
    with pytest.raises(torch.OutOfMemoryError):
        width.evaluate(evaluate)


# --- records


@pytest.mark.parametrize("changes", [{}, {"defense": "gaussian:1e-3", "attacker": "adaptive"}], ids=str)
def test_records_do_not_depend_on_which_attacks_shared_a_loop(
    fashion: Dataset, small_net: nn.Module, tmp_path: Path, changes: dict[str, object]
) -> None:
    key = ScenarioKey("fashion-mnist-tenth", "convnet-2", Stage(), "none", "fast", 3, 0)
    scenario = replace(key, **changes).parse()  # type: ignore[arg-type]
    five = measure(scenario, small_net, fashion.test, [0, 1, 2, 3, 4], tmp_path / "five")
    assert {record.scenario.together for record in five} == {True}
    alone = measure(replace(scenario, together=True), small_net, fashion.test, [3], tmp_path / "alone")
    assert alone == five[3:4]
    other = measure(scenario, small_net, fashion.test, [3], tmp_path / "other")[0]
    assert not other.scenario.together
    assert other.scenario.setting == alone[0].scenario.setting


@pytest.mark.usefixtures("four_seats")
@pytest.mark.parametrize(
    ("attacks", "workers", "size"), [(1, 1, 4), (4, 2, 4), (20, 2, 4), (48, 2, 8), (100, 2, 8), (5, 1, 4), (8, 1, 8)]
)
def test_there_are_loops_for_all_workers_and_no_seat_is_empty(attacks: int, workers: int, size: int) -> None:
    assert lot_size(CPU, attacks, workers) == size


def test_attacks_of_several_defenses_share_a_loop_and_records_do_not_say_so(
    fashion: Dataset, small_net: nn.Module, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = ScenarioKey("fashion-mnist-tenth", "convnet-2", Stage(), "none", "fast", 3, 0, together=True)
    columns = [("none", "plain"), ("prune:0.5", "plain"), ("gaussian:1e-3", "adaptive"), ("3-1-7", "adaptive")]
    scenarios = [replace(key, defense=defense, attacker=attacker).parse() for defense, attacker in columns]
    alone = [
        measure(scenario, small_net, fashion.test, [0, 1], tmp_path / str(number))
        for number, scenario in enumerate(scenarios)
    ]
    runs: list[int] = []
    minimise = together.minimise_in_lots

    def counting(lot: list[Restart], on_iteration: OnIteration | None) -> list[Reconstruction]:
        runs.append(len(lot))
        return minimise(lot, on_iteration)

    monkeypatch.setattr(together, "minimise_in_lots", counting)
    cells = [Cell(scenario, small_net, (0, 1)) for scenario in scenarios]
    assert measure_all(cells, fashion.test, tmp_path / "all") == alone
    assert max(runs) >= 4  # more than one defense has images
