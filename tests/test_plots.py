import re
import xml.etree.ElementTree as ET
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import matplotlib
import numpy as np
import pytest
from matplotlib.figure import Figure
from matplotlib.text import Text
from PIL import Image

from gradveil.defenses.words import defense_in_words, distinct_words
from gradveil.errors import GradveilError
from gradveil.plots import ScatterPoint, plot_curves, plot_operations, plot_race, plot_scatter
from gradveil.plots.labels import place_labels, spread_apart
from gradveil.plots.layout import axis_limits, shorten
from gradveil.plots.leakage import LeakageRow, plot_leakage
from gradveil.plots.tradeoff import TradeoffPoint, pareto_steps, plot_tradeoff
from gradveil.scores import Estimate
from gradveil.searching import RaceRound

LONG = "translate_x:9-contrast:6-translate_y:2+43-18-18"
Plot = Callable[[Path], None]
RNG = np.random.default_rng(0)


def cloud(count: int) -> list[ScatterPoint]:
    scores = np.random.default_rng(1).normal([0.45, -1.9], [0.03, 0.1], (count, 2)).tolist()
    points = [ScatterPoint(f"{i % 50}-{i // 50}", x, 0.01, y) for i, (x, y) in enumerate(scores)]
    points[0] = replace(points[0], accuracy=-1e5)
    ranked = sorted(points[1:], key=lambda point: point.privacy or 0)
    return [points[0], *(replace(p, kept=i < 10, front=i in (0, 4)) for i, p in enumerate(ranked))]


def scatter(points: list[ScatterPoint]) -> Plot:
    return lambda path: plot_scatter(path, points, threshold=-2)


def curves(**rows: np.ndarray) -> Plot:
    points = np.linspace(0, 1, 6).tolist()
    return lambda path: plot_curves(path, points, {name.replace("_", "-"): values for name, values in rows.items()})


def operations(scores: dict[str, Estimate], baseline: Estimate) -> Plot:
    return lambda path: plot_operations(path, scores, baseline=baseline)


def race(*rounds: RaceRound) -> Plot:
    return lambda path: plot_race(path, rounds)


def leakage(*rows: LeakageRow) -> Plot:
    return lambda path: plot_leakage(path, rows, tolerance=0.6)


def leaking(defense: str, mean: float, stage: str = "untrained", tone: str = "leaks") -> LeakageRow:
    return LeakageRow(stage, defense, tone, (mean - 0.1, mean, mean + 0.1), mean, mean - 0.05, mean + 0.05)


def tradeoff(*points: TradeoffPoint, width: float = 8.0) -> Plot:
    return lambda path: plot_tradeoff(path, points, tolerance=0.6, width=width)


def halving(count: int) -> list[RaceRound]:
    names, rounds, images = [f"{i}-1-7" for i in range(count)], [], 8
    while len(names) > 3:
        rounds.append(
            RaceRound(images, {name: float(RNG.normal(0.45, 0.02)) for name in names}, frozenset(names[1::2]))
        )
        names, images = names[::2], 2 * images
    return [*rounds, RaceRound(images, dict.fromkeys(names, 0.4))]


def same(count: int, value: float = 0.4) -> Estimate:
    return Estimate((value,) * count, 0)


SPREAD = Estimate((0.3, 0.4, 0.55), 0)
TIES = [ScatterPoint(LONG.replace("43", str(i)), 0.4, 0.01, -1.9, True, True) for i in range(24)]
# By what is awkward about it: how to plot it, and what the reader must find written.
PLOTS: dict[str, tuple[Plot, list[str]]] = {
    "scatter of one": (scatter([ScatterPoint("3-1-7", 0.4, None, -1.9, True, True)]), ["3-1-7", "n = 1 policy"]),
    "scatter of many": (scatter(cloud(1500)), ["n = 1,500 policies", "1 off the frame", "Pareto front (2)", "kept (10)"]),
    "scatter of ties": (scatter(TIES), ["A to V", LONG.replace("43", "0"), "20 most private of 24"]),
    "scatter of long names": (scatter([replace(p, policy=LONG) if p.kept else p for p in cloud(30)]), [LONG]),
    "scatter without the best": (
        scatter([ScatterPoint("1", 0.4, None, -1.9), ScatterPoint("2", 0.5, None, float("nan"))]),
        ["1 without finite scores"],
    ),
    "scatter with what to beat": (
        scatter([*cloud(60), ScatterPoint("identity", 0.5, None, -1.5, control=True)]),
        ["identity", "to beat (1)", "n = 60 policies"],
    ),
    "scatter with unscored": (
        scatter([ScatterPoint("7", 0.4, 0.1, -1.9, True), *(ScatterPoint("8", None, None, -9.0 - i) for i in range(30))]),
        ["S_pri not computed, at the right (30)"],
    ),
    "curves of one image": (curves(none=np.ones((1, 6))), ["S_pri 1.000", "n = 1 image", "none"]),
    "curves": (
        curves(none=np.linspace(0, 1, 18).reshape(3, 6), _3_1_7=np.linspace(0, 1, 12).reshape(2, 6)),
        ["-3-1-7", "standard deviation", "± 0.2", "n = 2 to 3 images"],
    ),
    "operations": (
        operations({f"{i} op:{i}": Estimate(tuple(RNG.normal(0.4, 0.1, 9)), 0) for i in range(50)}, SPREAD),
        ["0 op:0", "49 op:49", "untransformed 0.417", "95% interval", "n = 3 to 9 images"],
    ),
    "operations of one image": (operations({LONG: same(1)}, same(1, 0.5)), [LONG, "n = 1 image per score"]),
    "operations all alike": (operations({f"{i}": same(2) for i in range(8)}, same(2)), ["in blue the 5 most private"]),
    "operations with one undefined": (
        operations({"invert:7": SPREAD, "bad": same(2, float("nan"))}, SPREAD), ["1 without a finite score"]
    ),
    "race": (race(*halving(1500)), ["n = 1,500 policies", "1,500", "750", "0-1-7", "images seen"]),
    "race of one": (race(RaceRound(100, {LONG: 0.4})), [LONG, "n = 1 policy"]),
    "race all alike": (
        race(*(RaceRound(10 * k, {f"{i}-1-7": 0.4 for i in range(30)}) for k in range(1, 30))), ["0-1-7", "and 10 more"]
    ),
    "leakage of one": (leakage(LeakageRow("untrained", "none", "leaks", (0.7,), 0.7, 0.0, 1.0)), ["no defense", "n = 1 image"]),
    "leakage": (
        leakage(*(leaking(*named, stage) for stage in ("untrained", "trained") for named in (("none", 0.5), (LONG, 0.8)))),
        ["no defense", shorten(defense_in_words(LONG), 34), "trained", "n = 3 images", "further right leaks more", "chance 50%",
         "tolerance 60%"],
    ),
    "leakage of all and of none": (
        leakage(LeakageRow("untrained", "none", "leaks", (1.0,) * 90, 1.0, 0.97, 1.0), leaking("3-1-7", 0.1, tone="protects")),
        ["shift, contrast", "100", "n = 3 to 90 images"],
    ),
    "leakage without decoys": (leakage(LeakageRow("untrained", "none", "unclear", (), None, None, None)), ["n = 0 images"]),
    "leakage of odd names": (leakage(leaking("none", 0.9), leaking("<b>$x$", 0.5, tone="unclear")), ["<b>$x$"]),
    "leakage of too many": (leakage(*(leaking(f"{i}", 0.1 + i / 90) for i in range(70))), ["The first 60 of 70", "59"]),
    "tradeoff of one": (
        tradeoff(TradeoffPoint("3-1-7", "leaks", 0.8, 0.8, 0.8, 0.9, 0.9, 0.9)), ["shift, contrast", "90%", "chance 50%"]
    ),
    "tradeoff": (
        tradeoff(*(TradeoffPoint(f"prune:{i}", "unclear", *2 * (i / 9, i / 10, i / 8)) for i in range(8)), width=3.7),
        ["pruning 0", "pruning 7", "test accuracy (axis cut)"],
    ),
    "race without an end": (race(RaceRound(9, {"1": 0.4, "2": 0.5}, frozenset("12"))), ["2 finalists"]),
}  # fmt: skip


def test_policies_that_do_different_things_have_different_words() -> None:
    assert defense_in_words("3-1-7") == "shift, contrast"
    assert defense_in_words("43-18-18") == "shift up/down, contrast"
    assert defense_in_words("3-1-7+43-18-18") == "hybrid: shift, contrast | shift up/down, contrast"
    assert defense_in_words("3-1-7+21-1-7") == "hybrid of 2: shift, contrast"
    assert defense_in_words("3+4+0+8") == "hybrid: shift sideways | sharpness | 2 more"
    assert defense_in_words("rotate_left:3") != defense_in_words("rotate_right:3")
    assert defense_in_words("13") == "brightness"  # brighter or darker, by lot
    # Those that differ in strength alone have the same words, and their spelling behind them.
    assert distinct_words(["3", "21"]) == {"3": "shift sideways (3)", "21": "shift sideways (21)"}


def test_the_front_joins_what_nothing_else_beats_in_both() -> None:
    found = {
        "none": (1.0, 0.9),
        "random": (0.5, 0.95),
        "prune:0.9": (0.6, 0.7),
        "3-1-7": (0.8, 0.8),
        "clip:1": (0.9, 0.75),
    }
    points = [TradeoffPoint(name, "leaks", x, x, x, y, y, y) for name, (x, y) in found.items()]
    # Random policies are a control, and clipping is beaten by a policy.
    assert pareto_steps(points) == [(0.6, 0.7), (0.8, 0.7), (0.8, 0.8), (1.0, 0.8), (1.0, 0.9)]


def test_bands_stay_among_cosines(tmp_path: Path) -> None:
    plot_curves(tmp_path / "a.svg", [0.0, 1.0], {"none": np.array([[0.0, 1.0], [1.0, 1.0], [1.0, 0.9]])})
    plot_curves(tmp_path / "b.svg", [0.0, 1.0], {"none": np.array([[0.0, 1.0], [1.0, 1.0], [1.0, 1.0]])})
    for name in ("a.svg", "b.svg"):
        labels = re.findall(r">(\d\.\d+)</text>", (tmp_path / name).read_text())
        # Were bands wider than cosines can be, the axis would go on.
        assert max(map(float, labels)) <= 1


@pytest.mark.parametrize(("plot", "words"), PLOTS.values(), ids=PLOTS)
def test_svg_says_what_it_shows_and_repeats(plot: Plot, words: list[str], tmp_path: Path) -> None:
    plot(tmp_path / "a.svg")
    with matplotlib.rc_context({"font.size": 30, "svg.hashsalt": "other", "axes.grid": False}):  # a user's own taste
        plot(tmp_path / "b.svg")
        assert matplotlib.rcParams["font.size"] == 30
    tree = ET.parse(tmp_path / "a.svg")
    written = "\n".join(element.text or "" for element in tree.iter("{http://www.w3.org/2000/svg}text"))
    for word in words:
        assert word in written
    assert (tmp_path / "a.svg").read_bytes() == (tmp_path / "b.svg").read_bytes()
    assert sorted(file.name for file in tmp_path.iterdir()) == ["a.svg", "b.svg"]


@pytest.mark.parametrize(
    "name",
    [
        "scatter of one",
        "curves of one image",
        "leakage of one",
        "operations of one image",
        "race of one",
        "tradeoff of one",
    ],
)
def test_png_is_whole_and_repeats(name: str, tmp_path: Path) -> None:
    plot = PLOTS[name][0]
    for file in ("a.png", "b.PNG"):
        plot(tmp_path / file)
    with Image.open(tmp_path / "a.png") as picture:
        picture.load()
        assert picture.format == "PNG"
        assert picture.width == 1600
        assert 400 < picture.height < 3000
        assert not {"Software", "Creation Time"} & picture.info.keys()
    assert (tmp_path / "a.png").read_bytes() == (tmp_path / "b.PNG").read_bytes()


OTHERS: list[tuple[str, Plot]] = [
    ("scatter of one", scatter([ScatterPoint("3-1-7", 0.41, None, -1.9, True, True)])),
    ("curves of one image", curves(none=np.full((1, 6), 0.9999))),
    ("operations of one image", operations({LONG: same(1, 0.4001)}, same(1, 0.5))),
    ("race of one", race(RaceRound(101, {LONG: 0.4}))),
    ("leakage of one", leakage(LeakageRow("untrained", "none", "protects", (0.7,), 0.7, 0.0, 1.0))),
    ("tradeoff of one", tradeoff(TradeoffPoint("3-1-7", "leaks", 0.8, 0.7, 0.8, 0.9, 0.9, 0.9))),
]


@pytest.mark.parametrize(("name", "other"), OTHERS)
def test_other_data_give_another_picture(name: str, other: Plot, tmp_path: Path) -> None:
    PLOTS[name][0](tmp_path / "a.svg")
    other(tmp_path / "b.svg")
    assert (tmp_path / "a.svg").read_bytes() != (tmp_path / "b.svg").read_bytes()


@pytest.mark.parametrize("name", ["plot.pdf", "plot", "plot.png.txt"])
@pytest.mark.parametrize("kind", ["scatter of one", "curves", "leakage", "operations", "race", "tradeoff"])
def test_other_suffixes_are_refused(kind: str, name: str, tmp_path: Path) -> None:
    with pytest.raises(GradveilError, match=r"\.png or \.svg") as caught:
        PLOTS[kind][0](tmp_path / "new" / name)
    assert "\n" not in str(caught.value)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "plot",
    [
        scatter([]),
        scatter([ScatterPoint("1", None, None, -1.9)]),
        curves(),
        curves(none=np.ones((3, 5))),
        curves(none=np.ones((0, 6))),
        curves(none=np.full((3, 6), np.nan)),
        operations({}, same(1)),
        operations({"1": same(1)}, same(1, float("nan"))),
        leakage(),
        tradeoff(),
        race(),
        race(RaceRound(8, {})),
        race(RaceRound(0, {"1": 0.4})),
        race(RaceRound(8, {"1": float("inf")})),
    ],
)
def test_nothing_to_plot_is_one_line(plot: Plot, tmp_path: Path) -> None:
    with pytest.raises(GradveilError) as caught:
        plot(tmp_path / "a.svg")
    assert "\n" not in str(caught.value)
    assert not list(tmp_path.iterdir())


def test_area_follows_the_weights(tmp_path: Path) -> None:
    values = np.array([[0.2, 0.6, 1.0]])
    plot_curves(tmp_path / "a.svg", [0, 0.5, 1], {"none": values})
    plot_curves(tmp_path / "b.svg", [1, 0.5, 0], {"none": values[:, ::-1]}, weights=[0, 0.25, 0.75])
    assert "S_pri 0.600 " in (tmp_path / "a.svg").read_text()
    assert "S_pri 0.300 " in (tmp_path / "b.svg").read_text()  # 0.75 x 0.2 + 0.25 x 0.6


@pytest.mark.parametrize("count", [1, 2, 7, 15])
def test_spread_labels_keep_their_order_and_distance(count: int) -> None:
    wanted = sorted(np.random.default_rng(count).normal(0.5, 0.1, count).tolist())
    places = spread_apart(wanted, 0.05, 0.0, 1.0)
    assert min(np.diff(places), default=1) >= 0.05 - 1e-9
    assert places[0] >= 0
    assert places[-1] <= 1
    assert spread_apart([0.1, 0.5, 0.9], 0.05, 0.0, 1.0) == pytest.approx([0.1, 0.5, 0.9])


def test_placed_labels_do_not_overlap() -> None:
    figure = Figure(figsize=(8, 5))
    axes = figure.add_subplot()
    spots = np.random.default_rng(3).uniform(0.2, 0.8, (15, 2))
    assert place_labels(axes, [(f"{i}-18-18", x, y) for i, (x, y) in enumerate(spots.tolist())], spots)
    figure.draw_without_rendering()  # now they are where they will be
    boxes = [Text.get_window_extent(text) for text in axes.texts]
    assert len(boxes) == 15
    assert not any(a.overlaps(b) for i, a in enumerate(boxes) for b in boxes[:i])
    assert not place_labels(axes, [("x" * 300, 0.5, 0.5)], spots, reach=30)


def test_frame_leaves_out_only_what_is_far_off() -> None:
    low, high = axis_limits(np.array([0.4, 0.5]), np.array([0.3, 0.45, 0.5, -1e5]))
    assert 0.2 < low < 0.3
    assert 0.5 < high < 0.6
    low, high = axis_limits(np.array([0.4]), np.empty(0))
    assert low < 0.4 < high


def test_long_names_keep_their_ends() -> None:
    assert shorten(LONG) == LONG
    assert len(shorten(LONG * 3)) == 52
    assert shorten(LONG * 3).startswith("translate_x:9")
    assert shorten(LONG * 3).endswith("43-18-18")
