"""Figure 4 (Figure 3 of the replication): private images, what is shared, and what is rebuilt."""

from dataclasses import replace

from gradveil.experiments.catalogue.common import CIFAR, NONE, QUICK, QUICK_RESNET, SHORT, TENTH, smoke_grid
from gradveil.experiments.experiment import Experiment, Part
from gradveil.experiments.grid import Grid

# The first three test images, not chosen ones.
PICTURES = 3
# Those pairs of data and network that the figure has, each with the first policy of Table 1.
_PAPER = (
    Grid("cifar100", "resnet20-4", (NONE, "3-1-7"), images=PICTURES, pictures=PICTURES),
    Grid("cifar100", "convnet", (NONE, "21-13-3"), images=PICTURES, pictures=PICTURES),
    Grid("fashion-mnist@32", "resnet20-4", (NONE, "19-15-45"), images=PICTURES, pictures=PICTURES),
    Grid("fashion-mnist@32", "convnet", (NONE, "42-28-42"), images=PICTURES, pictures=PICTURES),
)
_SMALL = {"cifar100": CIFAR, "fashion-mnist@32": TENTH, "resnet20-4": "resnet20", "convnet": "convnet-8"}


def _small(grid: Grid) -> Part:
    """As Table 1 has it at the cpu scale: all its images are attacked, and the first are shown."""
    names = (_SMALL[grid.dataset], _SMALL[grid.model])
    attack = QUICK_RESNET if grid.model == "resnet20-4" else QUICK
    return replace(grid, dataset=names[0], model=names[1], attacks=(attack,), recipe=SHORT, images=100)


GALLERY = Experiment(
    name="gallery",
    title="Private, shared and rebuilt images",
    published="Figure 4 (Gao et al., 2021); Figure 3 (Drabent et al., 2022)",
    paper=_PAPER,
    cpu=tuple(map(_small, _PAPER)),
    smoke=(smoke_grid(_PAPER[3]),),
    differs="As table1, whose attacks these are. Below a rebuilt image stands its PSNR to the shared one.",
)
