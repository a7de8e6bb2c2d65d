"""The datasets that have a name. One added entry gives the command-line choice, the listed row and the tests."""

from gradveil.datasets.entries import Archive, CatalogueEntry
from gradveil.datasets.readers import (
    EMBEDDED_TEST,
    EMBEDDED_TRAIN,
    IDX_FILES,
    read_cifar10,
    read_cifar100,
    read_embedded,
    read_idx,
)
from gradveil.datasets.trees import read_medical_mnist, read_tiny_imagenet

_FASHION_HOST = "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com"
_CIFAR_HOST = "https://www.cs.toronto.edu/~kriz"
_TINY_HOST = "http://cs231n.stanford.edu"


def _archive(host: str, file: str, md5: str, size: int) -> Archive:
    return Archive(file, f"{host}/{file}", md5, size)


_ENTRIES = (
    CatalogueEntry(
        name="fashion-mnist-tenth",
        title="a tenth of Fashion-MNIST, inside the package",
        train=6_000,
        test=1_000,
        shape=(1, 28, 28),
        classes=10,
        licence="MIT, (c) 2017 Zalando SE",
        redistributable=True,
        read=read_embedded,
        layouts=((*EMBEDDED_TRAIN, *EMBEDDED_TEST),),
        embedded=True,
    ),
    CatalogueEntry(
        name="fashion-mnist",
        title="Fashion-MNIST (Xiao et al., 2017)",
        train=60_000,
        test=10_000,
        shape=(1, 28, 28),
        classes=10,
        licence="MIT, (c) 2017 Zalando SE",
        redistributable=True,
        read=read_idx,
        layouts=(IDX_FILES,),
        folders=("FashionMNIST/raw",),
        archives=tuple(
            _archive(_FASHION_HOST, f"{name}.gz", md5, size)
            for name, md5, size in zip(
                IDX_FILES,
                (
                    "8d4fb7e6c68d591d4c3dfef9ec88bf0d",
                    "25c81989df183df01b3e8a0aad5dffbe",
                    "bef4ecab320f06d8554ea6380940ec79",
                    "bb300cfdad3c16e7a12a480ee83cd310",
                ),
                (26_421_880, 29_515, 4_422_102, 5_148),
                strict=True,
            )
        ),
        placing="the four *-ubyte.gz files",
    ),
    CatalogueEntry(
        name="cifar10",
        title="CIFAR-10 (Krizhevsky, 2009)",
        train=50_000,
        test=10_000,
        shape=(3, 32, 32),
        classes=10,
        licence="none stated for the images",
        redistributable=False,
        read=read_cifar10,
        layouts=(("data_batch_1.bin",),),
        folders=("cifar-10-batches-bin",),
        packed=("cifar-10-binary.tar.gz", "cifar-10-binary.tar"),
        archives=(_archive(_CIFAR_HOST, "cifar-10-binary.tar.gz", "c32a1d4ab5d03f1284b67883e8d87530", 170_052_171),),
        placing="cifar-10-binary.tar.gz or the folder cifar-10-batches-bin (the binary version, not the python one)",
    ),
    CatalogueEntry(
        name="cifar100",
        title="CIFAR-100 with fine labels (Krizhevsky, 2009)",
        train=50_000,
        test=10_000,
        shape=(3, 32, 32),
        classes=100,
        licence="none stated for the images",
        redistributable=False,
        read=read_cifar100,
        layouts=(("train.bin", "fine_label_names.txt"),),
        folders=("cifar-100-binary",),
        packed=("cifar-100-binary.tar.gz", "cifar-100-binary.tar"),
        archives=(_archive(_CIFAR_HOST, "cifar-100-binary.tar.gz", "03b5dce01913d631647c71ecec9e9cb8", 168_513_733),),
        placing="cifar-100-binary.tar.gz or the folder cifar-100-binary (the binary version, not the python one)",
    ),
    CatalogueEntry(
        name="tiny-imagenet",
        title="Tiny ImageNet (Stanford CS231n)",
        train=100_000,
        test=10_000,
        shape=(3, 64, 64),
        classes=200,
        licence="research use only",
        redistributable=False,
        read=read_tiny_imagenet,
        layouts=(("train/n01443537", "val"),),
        folders=("tiny-imagenet-200",),
        packed=("tiny-imagenet-200.zip", "tiny-imagenet*.zip", "tiny-imagenet*.tar", "tiny-imagenet*.tar.gz"),
        archives=(_archive(_TINY_HOST, "tiny-imagenet-200.zip", "90528d7ca1a48142e341f4ef8d21d0de", 248_100_043),),
        placing="tiny-imagenet-200.zip or the folder tiny-imagenet-200",
    ),
    CatalogueEntry(
        name="medical-mnist",
        title="Medical MNIST, six kinds of scans",
        train=47_163,
        test=11_791,
        shape=(1, 64, 64),
        classes=6,
        licence="CC BY-SA 4.0 (per MONAI)",
        redistributable=True,
        read=read_medical_mnist,
        layouts=(("train/AbdomenCT", "train/HeadCT"), ("AbdomenCT", "HeadCT")),
        folders=("MedNIST",),
        packed=("medical-mnist*.tar", "medical-mnist*.tar.gz", "medical-mnist*.zip", "MedNIST.tar.gz"),
        placing="its six class folders (AbdomenCT, BreastMRI, CXR, ChestCT, Hand, HeadCT), or a tar or zip of them "
        "named medical-mnist*, e.g. from the Kaggle dataset 'Medical MNIST' or from MONAI's MedNIST.tar.gz",
    ),
)

DATASETS: dict[str, CatalogueEntry] = {entry.name: entry for entry in _ENTRIES}
