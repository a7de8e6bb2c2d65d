"""What an attack is: it rebuilds images from what was shared."""

from collections.abc import Callable
from typing import TYPE_CHECKING, ClassVar, Literal, Protocol

from gradveil.attacks.evidence import Evidence
from gradveil.attacks.reconstruction import Reconstruction

if TYPE_CHECKING:
    from gradveil.attacks.inversion import Inversion

# What the attacker knows of the labels: given, read off the gradient, or searched for together with the image.
LabelKnowledge = Literal["known", "read", "joint"]
# Called after every iteration; for progress bars.
OnIteration = Callable[[], None]


class KnownDefense(Protocol):
    """A defense as far as an attack is concerned: it changes the search of an attacker who knows it."""

    def adapt(self, attack: "Inversion", evidence: Evidence) -> "Attack": ...


class Attack(Protocol):
    """Rebuilds images from a gradient.

    An attack of your own needs `__call__` only; give it a `name`, under which records keep its results. The other members
    have defaults for attacks that do not search step by step.

        @dataclass(frozen=True)
        class Grey(Attack):
            name: str = "grey"

            def __call__(self, evidence, *, seed=0, on_iteration=None):
                images = torch.full((evidence.images, *evidence.image_shape), 0.5)
                return Reconstruction(images, evidence.labels, distance=0.0)
    """

    # Whether a defense can be tried out on every guess.
    can_simulate: ClassVar[bool] = False
    name: str = ""
    labels: LabelKnowledge = "known"
    # The first guess of a search, in a word.
    start: str = "none"

    def __call__(self, evidence: Evidence, *, seed: int = 0, on_iteration: OnIteration | None = None) -> Reconstruction:
        """Rebuild the images behind `evidence`; same seed, same result."""
        ...

    @property
    def steps(self) -> int:
        """How often `on_iteration` is called at most."""
        return 1

    @property
    def rebuilds_private_images(self) -> bool:
        """Whether the result shows the private images rather than those that the network saw."""
        return False

    def with_known_statistics(self) -> "Attack":
        """The attack of an attacker who has the batch statistics; one that does not search stays as it is."""
        return self

    def adapt_to(self, defense: KnownDefense, evidence: Evidence) -> "Attack":
        """The attack of an attacker who knows the defense; an attack that does not search stays as it is."""
        return self
