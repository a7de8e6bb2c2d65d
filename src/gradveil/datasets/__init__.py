"""Names to images: `load("cifar10[:10%]")`.

What a name may be is in `names`, what names there are in `catalogue`, where files are looked for in `places`.
"""

from gradveil.datasets.catalogue import DATASETS
from gradveil.datasets.entries import Archive, CatalogueEntry
from gradveil.datasets.listing import DatasetFacts, listing
from gradveil.datasets.loaders import dataset_from_loader, images_from_loader
from gradveil.datasets.loading import load
from gradveil.datasets.samples import Samples, dataset_from_samples, from_samples
from gradveil.datasets.statistics import channel_statistics
from gradveil.progress import Progress, bar, silent

__all__ = [
    "DATASETS",
    "Archive",
    "CatalogueEntry",
    "DatasetFacts",
    "Progress",
    "Samples",
    "bar",
    "channel_statistics",
    "dataset_from_loader",
    "dataset_from_samples",
    "from_samples",
    "images_from_loader",
    "listing",
    "load",
    "silent",
]
