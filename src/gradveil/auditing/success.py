"""How often an attack succeeds, and the (eps, delta, gamma) that can be claimed from it (Gao et al., 2021)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from gradveil.auditing.accuracy import AccuracyLoss
from gradveil.auditing.proportions import Proportion, percent_round_up, proportion, round_up
from gradveil.training.stage import Stage


@dataclass(frozen=True)
class Success:
    """How many images some attack rebuilt at PSNR >= eps; `delta` is the smallest that can be claimed at 95% confidence.

    `reached` estimates Pr[PSNR >= eps]. `indices` are those images. For `by_null` of them a guess of one colour is as close.
    """

    eps: float
    reached: Proportion
    delta: float
    by_null: int
    indices: tuple[int, ...]
    text: str

    @property
    def beyond_null(self) -> int:
        """Images that reach eps although one colour does not."""
        return self.reached.count - self.by_null


def success(runs: Mapping[int, Sequence[tuple[float, float]]], eps: float) -> Success:
    """The success at one threshold, from (PSNR, PSNR of the null) of every run on every image; no run at all is no success.

    The images have to be sampled at random from those the claim is about.
    """
    found = {index: [null for psnr, null in tried if psnr >= eps] for index, tried in runs.items()}
    indices = tuple(sorted(index for index, nulls in found.items() if nulls))
    reached = proportion(len(indices), len(runs))
    by_null = sum(min(found[index]) >= eps for index in indices)
    return Success(eps, reached, reached.upper, by_null, indices, _words(reached, eps, by_null))


def statement(found: Success, loss: AccuracyLoss | None, *, defense: str, model: str, stage: Stage) -> str:
    """The (eps, delta, gamma) of the paper in one sentence: Pr[PSNR(x*, T(x)) < eps] >= 1 - delta, accuracy loss < gamma."""
    against = f"against the attacks tried on {model}, {stage}, worst case per image, n={found.reached.n}"
    if found.delta >= 1:
        return f"Nothing can be claimed for {defense} at {found.eps:g} dB {against}: every image reached it."
    delta, gamma = round_up(found.delta), "not measured" if loss is None else f"{round_up(loss.gamma):.3f}"
    cost = "the accuracy was not measured"
    if loss is not None:
        source = "by the test set alone" if loss.source == "test set" else f"over {loss.seeds} training seeds"
        cost = f"the accuracy falls by less than {100 * round_up(loss.gamma):.1f} points ({source})"
    return (
        f"({found.eps:g} dB, {delta:.3f}, {gamma}) for {defense} {against}: at 95% confidence each, fewer than "
        f"{percent_round_up(delta)} of images like these are rebuilt at {found.eps:g} dB or better, and {cost}."
    )


def _words(reached: Proportion, eps: float, by_null: int) -> str:
    if reached.count == reached.n:
        everybody = "the only image" if reached.n == 1 else f"all {reached.n} images"
        said = f"{everybody} reached {eps:g} dB; no fraction below 100% can be claimed"
    else:
        how_many = "no image" if reached.count == 0 else f"{reached.count} image{'s' if reached.count > 1 else ''}"
        bound = f"fewer than {percent_round_up(reached.upper)} do"
        said = f"{how_many} of {reached.n} reached {eps:g} dB; at 95% confidence {bound}"
    return f"{said} (for {by_null} of them a guess of one colour does too)" if by_null else said
