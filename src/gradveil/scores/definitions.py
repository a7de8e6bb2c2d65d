"""Which gradients S_pri compares, and at which points of the way from noise to the image."""

from dataclasses import dataclass, replace

import numpy as np

from gradveil.errors import GradveilError


@dataclass(frozen=True)
class Definition:
    """How S_pri is computed: cosine per tensor or over the whole gradient, and the points and weights of the area."""

    per_tensor: bool
    points: tuple[float, ...]
    weights: tuple[float, ...]

    @property
    def evaluations(self) -> int:
        """Gradients needed per image: the image's own, which is also the one at point 1, and one per other point."""
        return 1 + sum(point != 1 for point in self.points)


def riemann(points: int) -> Definition:
    """The paper's Eq. 5-7: cosine of the flattened gradient, left Riemann sum of `points` points."""
    return Definition(False, tuple(i / points for i in range(points)), (1 / points,) * points)


def trapezoid(intervals: int) -> Definition:
    """The published code: mean of the tensors' cosines, trapezoid over `intervals` intervals."""
    ends = {0, intervals}
    weights = tuple((0.5 if i in ends else 1.0) / intervals for i in range(intervals + 1))
    return Definition(True, tuple(i / intervals for i in range(intervals + 1)), weights)


DEFINITIONS = {"paper": riemann(20), "code": trapezoid(20)}


def shorten(definition: Definition, points: int, *, end: bool) -> Definition:
    """The Gauss rule of a published sum: `points` points that give the same sum for polynomials of degree 2 `points` - 1.

    With `end`, one of the points is 1 (Gauss-Radau, degree 2 `points` - 2): there the image is compared with itself, which
    costs nothing. The rule is that of the sum and not of the integral, so nothing is lost to the sum's own coarseness.
    Stieltjes' recurrence, then the eigenvectors of the Jacobi matrix (Golub and Welsch, 1969; Golub, 1973).
    """
    if not 1 + end <= points < len(definition.points):
        raise GradveilError(
            f"can shorten {len(definition.points)} points to {1 + end} to {len(definition.points) - 1}, got {points}"
        )
    at, mass = np.array(definition.points), np.array(definition.weights)
    before, now = np.zeros_like(at), np.ones_like(at)
    alpha, beta = np.zeros(points), np.zeros(points)
    last = 1.0
    for k in range(points):
        norm = float(mass @ now**2)
        alpha[k], beta[k] = float(mass @ (at * now**2)) / norm, norm / last
        before, now, last = now, (at - alpha[k]) * now - (beta[k] if k else 0) * before, norm
    if end:
        older, newer = 0.0, 1.0  # the recurrence's polynomials at 1
        for k in range(points - 1):
            older, newer = newer, (1 - alpha[k]) * newer - (beta[k] if k else 0) * older
        alpha[-1] = 1 - beta[-1] * older / newer
    off_diagonal = np.sqrt(beta[1:])
    nodes, vectors = np.linalg.eigh(np.diag(alpha) + np.diag(off_diagonal, 1) + np.diag(off_diagonal, -1))
    if end:
        nodes[-1] = 1.0  # exactly, so that it is recognised as free
    weights = beta[0] * vectors[0] ** 2
    return replace(definition, points=tuple(nodes.tolist()), weights=tuple(weights.tolist()))
