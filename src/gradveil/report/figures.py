"""The plots of a study: as SVG inside a page, and as files to print."""

import re
import tempfile
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from html import escape
from pathlib import Path

from markupsafe import Markup

from gradveil.auditing.accuracy import accuracy_interval
from gradveil.auditing.study import Study
from gradveil.leakage.scenario import defense_title
from gradveil.naming import slug
from gradveil.plots.leakage import LeakageRow, plot_leakage
from gradveil.plots.look import BLUE, FAINT, INK, LINE, ORANGE, QUIET, TONES, WIDTH
from gradveil.plots.tradeoff import TradeoffPoint, plot_tradeoff
from gradveil.report.board import shade_of

NARROW = 3.7  # inches, for telephones
# Plotted colours become those of the page, which change with day and night.
_COLORS = {INK: "ink", QUIET: "quiet", LINE: "line", FAINT: "faint", BLUE: "accent", ORANGE: "leaks", "#ffffff": "card"}
# "faint" is a grey already.
_COLORS |= {color: "faint-leak" if tone == "faint" else tone for tone, (color, _) in TONES.items()}


@dataclass(frozen=True)
class Plot:
    """A plot of one model; `label` says in words what it shows, `write(path, width=..., titled=...)` makes the file."""

    name: str
    label: str
    write: Callable[..., None]

    @property
    def inline_svg(self) -> Markup:
        """For a page, once for wide and once for narrow screens; the style sheet shows one of them."""
        return Markup("").join(
            embed_svg(self.write, name=f"{self.name}-{size}", label=self.label, kind=size, width=width)
            for size, width in (("wide", WIDTH), ("narrow", NARROW))
        )


def leakage_plot(study: Study, dataset: str, model: str) -> Plot:
    """Leakage per stage and defense."""
    rows = leakage_rows(study, dataset, model)
    said = "; ".join(f"{row.stage}, {defense_title(row.defense)}: {_percent(row.mean)}" for row in rows)
    return Plot(
        _plot_name("leakage", dataset, model),
        f"How many others of its class the private image ranks above, by chance 50%. {said}",
        partial(plot_leakage, rows=rows, tolerance=study.run.tolerance),
    )


def tradeoff_plot(study: Study, dataset: str, model: str) -> Plot | None:
    """Privacy against accuracy; None where no accuracy is known."""
    points = tradeoff_points(study, dataset, model)
    if not points:
        return None
    said = "; ".join(
        f"{defense_title(p.defense)}: above {p.percentile:.0%} at {p.accuracy:.1%} accuracy" for p in points
    )
    return Plot(
        _plot_name("tradeoff", dataset, model),
        f"Leakage and accuracy. {said}",
        partial(plot_tradeoff, points=points, tolerance=study.run.tolerance),
    )


def leakage_rows(study: Study, dataset: str, model: str) -> list[LeakageRow]:
    """A row for every defense of one network at every stage."""
    rows = []
    for setting, judgments in study.stages.items():
        for one in judgments if setting[:2] == (dataset, model) else ():
            found = one.findings.identified
            mean = (None, None, None) if found is None else (found.percentile, found.low, found.high)
            own = tuple(one.findings.worst.percentiles.values())
            rows.append(LeakageRow(str(one.findings.stage), one.findings.defense, shade_of(one.verdict), own, *mean))
    return rows


def tradeoff_points(study: Study, dataset: str, model: str) -> list[TradeoffPoint]:
    """The defenses whose accuracy is known and whose images have decoys, each at the stage that decides."""
    points = []
    for one in study.summaries[dataset, model] if study.run.describes(dataset, model) else ():
        accuracies = [trained for trained in study.run.accuracies if trained.defense == one.overall.defense]
        found = one.worst.identified
        if accuracies and found is not None:
            leakage = (found.percentile, found.low, found.high)
            known = accuracy_interval(accuracies)
            points.append(TradeoffPoint(one.overall.defense, shade_of(one.overall), *leakage, *known))
    return points


def write_figures(study: Study, folder: Path) -> list[Path]:
    """All plots at print size, 200 dots to the inch, and as SVG: `folder/figures/*.png` and `*.svg`."""
    paths = []
    for dataset, model in study.summaries:
        for plot in (leakage_plot(study, dataset, model), tradeoff_plot(study, dataset, model)):
            for suffix in ("png", "svg") if plot is not None else ():
                assert plot is not None
                path = folder / "figures" / f"{plot.name}.{suffix}"
                _write_plot(plot.write, path)
                paths.append(path)
    return paths


def embed_svg(write: Callable[..., None], *, name: str, label: str, kind: str, width: float) -> Markup:
    """A plot as inline SVG: without head and size, in the page's colours, with names of its own."""
    with tempfile.TemporaryDirectory() as place:
        path = Path(place) / "plot.svg"
        _write_plot(write, path, width=width, titled=False)
        text = path.read_text(encoding="utf-8")
    match = re.search(r'<svg[^>]*viewBox="([^"]+)"[^>]*>(.*)</svg>', text, re.DOTALL)
    assert match is not None
    body = re.sub(r"<metadata>.*?</metadata>|<style[^>]*>.*?</style>|<!--.*?-->", "", match[2], flags=re.DOTALL)
    # Only inside tags: what the user named is text.
    body = re.sub(r"<[^>]+>", partial(_restyle, prefix=name), body)
    head = f'<svg class="plot {kind}" viewBox="{match[1]}" role="img" aria-label="{escape(label)}">'
    return Markup(head + body + "</svg>")


def _restyle(tag: re.Match[str], *, prefix: str) -> str:
    text = re.sub(r' id="(?!m|p)[^"]*"', "", tag[0])
    text = re.sub(r'( id="|href="#|url\(#)', rf"\g<1>{prefix}-", text)
    text = re.sub(r"font: ([\d.]+)px [^;\"]*", r"font-size: \1px", text)
    for color, name in _COLORS.items():
        text = text.replace(color, f"var(--{name})")
    return text


def _write_plot(write: Callable[..., None], path: Path, **options: object) -> None:
    with warnings.catch_warnings():
        # A name may have letters that the plot's font lacks; it is still readable in the tables.
        warnings.filterwarnings("ignore", message="Glyph .* missing from")
        write(path, **options)


def _percent(fraction: float | None) -> str:
    return "no decoys" if fraction is None else f"{fraction:.0%}"


def _plot_name(kind: str, dataset: str, model: str) -> str:
    return slug(kind, dataset, model)[:120]
