"""The experiments by name, each a short declaration. One added line gives the command, the listed row and the tests."""

from gradveil.experiments.catalogue.adaptive import ADAPTIVE
from gradveil.experiments.catalogue.attacks import ATTACKS
from gradveil.experiments.catalogue.convergence import CONVERGENCE
from gradveil.experiments.catalogue.correlation import CORRELATION
from gradveil.experiments.catalogue.defenses import DEFENSES
from gradveil.experiments.catalogue.gallery import GALLERY
from gradveil.experiments.catalogue.gradsim import GRADSIM_PATH
from gradveil.experiments.catalogue.inverting_gradients import INVERTING_GRADIENTS
from gradveil.experiments.catalogue.layers import LAYERS
from gradveil.experiments.catalogue.operations import OPERATIONS_TINY_IMAGENET, SINGLE_OPERATIONS
from gradveil.experiments.catalogue.precode import PRECODE, PRECODE_SWEEP
from gradveil.experiments.catalogue.search_cost import SEARCH_COST
from gradveil.experiments.catalogue.stages import STAGES
from gradveil.experiments.catalogue.table1 import TABLE1
from gradveil.experiments.catalogue.transfer import TRANSFER, TRANSFER_TINY_IMAGENET
from gradveil.experiments.experiment import Experiment

EXPERIMENTS: dict[str, Experiment] = {
    one.name: one
    for one in (
        TABLE1,
        GALLERY,
        GRADSIM_PATH,
        DEFENSES,
        ATTACKS,
        TRANSFER,
        CONVERGENCE,
        LAYERS,
        SINGLE_OPERATIONS,
        CORRELATION,
        TRANSFER_TINY_IMAGENET,
        OPERATIONS_TINY_IMAGENET,
        SEARCH_COST,
        PRECODE,
        PRECODE_SWEEP,
        INVERTING_GRADIENTS,
        ADAPTIVE,
        STAGES,
    )
}
