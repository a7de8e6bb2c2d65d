"""Small plots inside a page: SVG with axes, in the page's colours, as wide as a telephone; a row of them fills a screen."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from markupsafe import Markup

WIDTH, HEIGHT = 320.0, 150.0
LEFT, RIGHT, TOP, BOTTOM = 36.0, 10.0, 10.0, 34.0


@dataclass
class Panel:
    """One plot. Data are in [0, 1] across and in `low`..`high` upwards; marks are drawn in the order in which they are added.

    `ticks` are named places on either axis, `label` says in words what is shown.
    """

    label: str
    x_ticks: Sequence[tuple[float, str]]
    y_ticks: Sequence[tuple[float, str]]
    x_name: str
    low: float = 0.0
    high: float = 1.0
    parts: list[Markup] = field(default_factory=list)

    def x(self, value: float) -> str:
        return f"{LEFT + value * (WIDTH - LEFT - RIGHT):.1f}"

    def y(self, value: float) -> str:
        inside = min(self.high, max(self.low, value))
        return f"{TOP + (self.high - inside) / (self.high - self.low) * (HEIGHT - TOP - BOTTOM):.1f}"

    def line(self, points: Sequence[tuple[float, float]], kind: str) -> None:
        places = " ".join(f"{self.x(x)},{self.y(y)}" for x, y in points)
        self.parts.append(Markup('<polyline class="line {}" points="{}"/>').format(kind, places))

    def level(self, value: float, kind: str) -> None:
        """A line from side to side."""
        self.line([(0, value), (1, value)], kind)

    def bar(self, left: float, right: float, value: float, kind: str, said: str) -> None:
        """From the zero line up, or down, to `value`."""
        base = min(self.high, max(self.low, 0.0))
        top, bottom = sorted((float(self.y(value)), float(self.y(base))))
        self.parts.append(
            Markup('<rect class="{}" x="{}" y="{}" width="{}" height="{}"><title>{}</title></rect>').format(
                kind, self.x(left), f"{top:.1f}", f"{float(self.x(right)) - float(self.x(left)):.1f}",
                f"{max(0.5, bottom - top):.1f}", said,
            )
        )  # fmt: skip

    def dot(self, x: float, mean: float, low: float, high: float, kind: str, said: str) -> None:
        """A mean with its interval."""
        at = self.x(x)
        self.parts.append(
            Markup(
                '<g class="{}"><title>{}</title><line class="range" x1="{}" x2="{}" y1="{}" y2="{}"/><circle cx="{}" cy="{}" '
                'r="4.5"/></g>'
            ).format(kind, said, at, at, self.y(low), self.y(high), at, self.y(mean))
        )

    @property
    def svg(self) -> Markup:
        """The plot with its axes."""
        right, bottom = WIDTH - RIGHT, HEIGHT - BOTTOM
        axes = [
            Markup(
                '<line class="grid" x1="{}" x2="{}" y1="{}" y2="{}"/><text class="y" x="{}" y="{}">{}</text>'
            ).format(LEFT, right, self.y(at), self.y(at), LEFT - 5, self.y(at), name)
            for at, name in self.y_ticks
        ]
        for at, name in self.x_ticks:
            side = "start" if at < 0.02 else "end" if at > 0.98 else "middle"
            axes.append(
                Markup('<text class="x" text-anchor="{}" x="{}" y="{}">{}</text>').format(
                    side, self.x(at), bottom + 12, name
                )
            )
        name = Markup('<text class="x name" text-anchor="middle" x="{}" y="{}">{}</text>').format(
            (LEFT + right) / 2, HEIGHT - 5, self.x_name
        )
        return Markup('<svg class="panel" viewBox="0 0 {:g} {:g}" role="img" aria-label="{}">{}{}{}</svg>').format(
            WIDTH, HEIGHT, self.label, Markup("").join(axes), name, Markup("").join(self.parts)
        )


def percent_ticks(*values: float) -> list[tuple[float, str]]:
    """Places on an axis of fractions, named in percent."""
    return [(value, f"{value:.0%}") for value in values]
