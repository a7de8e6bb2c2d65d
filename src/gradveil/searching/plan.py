"""How far a search goes, as data."""

import math
from dataclasses import dataclass

from gradveil.errors import GradveilError
from gradveil.naming import lookup
from gradveil.scores import Scorer
from gradveil.searching.controls import CONTROLS
from gradveil.searching.sampling import SAMPLERS, MakeSampler

# Sampling goes on while too few policies pass the filter, but not for ever.
MOST_DRAWS = 10
# The race may look so often at every policy, on average.
LOOKS_PER_POLICY = 13


@dataclass(frozen=True)
class SearchPlan:
    """How far a search goes.

    It looks at `policies` from the sampler and keeps `keep`. The sampler is a name in `SAMPLERS`, or your own function of
    (seed, channels). Every policy sees `first_look` images. Then those see twice as many that could be on either side of the
    line between in and out; who cannot get in drops out. `confidence` is that of all rounds together. With `sharing`, policies
    that make similar images lend each other strength; without, each stands on its own looks.

    It ends when nobody else could get in, or the images or `gradients` are spent. By default these are 13 first looks per policy
    (26 gradients for the published score, whose procedure takes over 2,000) and what the last measurement takes. The winners are
    measured again on `fresh` images that the race has not seen. First looks, the accuracy of those who lead, and the last
    measurement are never cut short. `hybrid` of the best that share no function are joined in the end.
    """

    policies: int = 1500
    keep: int = 10
    sampler: str | MakeSampler = "random"
    redundancy: float = 2.0
    confidence: float = 0.95
    first_look: int = 2
    fresh: int = 100
    gradients: int | None = None
    sharing: bool = True
    hybrid: int = 2

    def __post_init__(self) -> None:
        _ = self.make_sampler
        if not 1 <= self.keep <= self.policies:
            raise GradveilError(f"the search must keep 1 to {self.policies} policies (its budget), got {self.keep}")
        check_confidence(self.confidence)
        if not 0 < self.redundancy < math.inf:
            raise GradveilError(f"the allowed redundancy must be more than 0 and finite, got {self.redundancy}")
        if self.hybrid < 1:
            raise GradveilError(f"a hybrid has at least 1 policy, got {self.hybrid}")
        if self.first_look < 1:
            raise GradveilError(f"a first look needs at least 1 image, got {self.first_look}")
        if self.fresh < 0 or (self.gradients is not None and self.gradients < 1):
            raise GradveilError(f"fresh images and gradients cannot be {self.fresh} and {self.gradients}")

    @property
    def make_sampler(self) -> MakeSampler:
        """`sampler` itself, or the one it names."""
        return lookup(SAMPLERS, self.sampler, "sampler") if isinstance(self.sampler, str) else self.sampler

    def last_gradients(self, scorer: Scorer, batches: int) -> int:
        """What is set aside for the end: the last measurement, controls, and a partner for the hybrid.

        `batches` are the gradients of one policy's S_acc, which that partner needs, and every control but untransformed images,
        whose S_acc is known.
        """
        fresh = min(self.fresh, scorer.images // 2) * max(1, scorer.privacy_score.evaluations)
        return (self.keep + CONTROLS) * fresh + CONTROLS * batches

    def most_gradients(self, scorer: Scorer, batches: int) -> int:
        """What a search may take in all, unless first looks alone take more."""
        race = LOOKS_PER_POLICY * look_gradients(scorer) * self.policies
        return self.gradients or race + self.last_gradients(scorer, batches)

    def expected_gradients(self, scorer: Scorer) -> int:
        """About what a search takes: most spend what they may. A sampler that learns needs S_acc of every policy."""
        batches = scorer.accuracy_gradients
        first = self.first_look * look_gradients(scorer) + (0 if self.sampler == "random" else batches)
        least = self.policies * first + self.last_gradients(scorer, batches)
        return max(least, self.most_gradients(scorer, batches))


def check_confidence(confidence: float) -> None:
    """Refuse what no interval has."""
    if not 0.5 <= confidence < 1:
        raise GradveilError(f"confidence must be at least 0.5 and less than 1, got {confidence}")


def look_gradients(scorer: Scorer) -> int:
    """Gradients of a first look at one image."""
    return max(1, (scorer.privacy_score.quick or scorer.privacy_score).evaluations)
