"""What can be claimed from attacks: the (eps, delta, gamma) of Gao et al. (2021), and the same with identification."""

from gradveil.auditing.accuracy import AccuracyLoss
from gradveil.auditing.findings import Findings
from gradveil.auditing.messages import in_messages
from gradveil.proportions import Proportion, percent_round_up, round_up


def statements(found: Findings, loss: AccuracyLoss | None) -> tuple[str, ...]:
    """What can be claimed in a sentence each: Pr[PSNR(x*, T(x)) < eps] >= 1 - delta, accuracy loss < gamma, as in the paper.

    The last one is the same with identification: Pr[the private image is not first among its decoys] >= 1 - delta.
    """
    against = f"for {found.defense} against the attacks tried on {found.model}, {found.stage}"
    several = in_messages(len(found.images), len({one.unit for one in found.images}))
    gamma = "not measured" if loss is None else f"{round_up(loss.gamma):.3f}"
    cost = "the accuracy was not measured"
    if loss is not None:
        source = "by the test set alone" if loss.source == "test set" else f"over {loss.seeds} training seeds"
        cost = f"the accuracy falls by less than {100 * round_up(loss.gamma):.1f} points ({source})"

    def claim(eps: str, happened: Proportion, what: str) -> str:
        if happened.upper >= 1:
            return f"Nothing can be claimed at {eps} {against}, n={happened.n}{several}: every image was {what}."
        delta = round_up(happened.upper)
        return (
            f"({eps}, {delta:.3f}, {gamma}) {against}, n={happened.n}{several}: at 95% confidence each, fewer than "
            f"{percent_round_up(delta)} of images like these are {what}, and {cost}."
        )

    said = [claim(f"{one.eps:g} dB", one.reached, f"rebuilt at {one.eps:g} dB or better") for one in found.success]
    if found.identified is not None and found.picked_out is not None:
        decoys = f"{found.identified.decoys:.0f}"
        said.append(claim("identified", found.picked_out, f"picked out of {decoys} others of their class"))
    return tuple(said)
