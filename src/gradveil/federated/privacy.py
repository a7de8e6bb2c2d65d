"""What a collaborative training proves, where its defense proves anything."""

from collections import Counter

from gradveil.defenses.parts import private_part
from gradveil.federated.participant import Participant
from gradveil.federated.plan import FederatedPlan


def epsilon_of(plan: FederatedPlan, participants: list[Participant]) -> float | None:
    """The largest epsilon of any participant's images at the defense's delta, by Opacus' accountant; None without dp-sgd.

    A participant takes a step in every round in which it is chosen and does not drop out. Whether its answer arrived does not
    matter. Its images are in a batch with chance batch / images. Neighbours are sets of images that differ by one image. The
    epsilon holds against those who do not know the seed. It does not count what is shared twice: rounds repeated after a kill
    from other weights, or the mean and deviation of the training images in a model's normalisation.
    """
    private = private_part(plan.make_defense())
    if private is None:
        return None
    steps: Counter[int] = Counter()
    for number in range(plan.rounds):
        steps.update(plan.chosen_participants(number))
        steps.subtract(plan.dropped_participants(number))
    rates = {(one.batch / len(one.indices), steps[one.number]) for one in participants}
    return max(private.epsilon(rate, count) for rate, count in rates)


def delta_of(plan: FederatedPlan) -> float | None:
    """The delta that goes with it."""
    private = private_part(plan.make_defense())
    return None if private is None else private.delta
