"""A mean that knows how sure it is."""

import math
import statistics
from dataclasses import dataclass


@dataclass(frozen=True)
class Estimate:
    """The mean of `values`, with its standard error; `evaluations` counts the gradients it cost."""

    values: tuple[float, ...]
    evaluations: int

    @property
    def n(self) -> int:
        return len(self.values)

    @property
    def mean(self) -> float:
        return statistics.fmean(self.values)

    @property
    def se(self) -> float | None:
        """Standard error of the mean; None where a single value says nothing of the spread."""
        return statistics.stdev(self.values) / math.sqrt(self.n) if self.n > 1 else None

    def summary(self) -> dict[str, float | int | None]:
        """The figures as plain data, for JSON."""
        return {"mean": self.mean, "se": self.se, "n": self.n, "evaluations": self.evaluations}

    def __str__(self) -> str:
        return f"{self.mean:.4f} ± {self.se:.4f} (n={self.n})" if self.se is not None else f"{self.mean:.4f} (n=1)"
