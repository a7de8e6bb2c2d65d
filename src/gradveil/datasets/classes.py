"""Names for classes that have none."""

from gradveil.errors import GradveilError

MOST_CLASSES = 100_000


def numbered_classes(largest: int, where: str) -> tuple[str, ...]:
    """The classes "0", "1", ... up to the `largest` label of the images `where` says."""
    if largest >= MOST_CLASSES:
        raise GradveilError(
            f"{where}: expected labels 0 to {MOST_CLASSES - 1}, got {largest}: number the classes from 0 on"
        )
    return tuple(map(str, range(largest + 1)))
