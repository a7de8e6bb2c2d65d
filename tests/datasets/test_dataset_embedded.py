import hashlib
import subprocess
import sys

import numpy as np
import pytest
import torch
from PIL import Image

from gradveil.datasets import DATASETS, load
from gradveil.datasets.places import EMBEDDED
from gradveil.errors import GradveilError


def test_embedded_images_are_the_chosen_ones(fashion):
    # Digests of what tools/make_fashion_mnist_tenth.py --check had compared pixel by pixel with the official files.
    digests = [
        hashlib.sha256(part.images.numpy().tobytes() + part.labels.numpy().astype(np.uint8).tobytes()).hexdigest()
        for part in (fashion.train, fashion.test)
    ]
    assert digests == [
        "9e1675a70be0a9ffe5ac1163db2234f99baeadd05d5d54e17fff48ee63b78daa",
        "2bc95e421908073afe0eb91e9bb4fa878e9833dac583019eaa66d3404e1f1645",
    ]


def test_embedded_classes_are_balanced_and_mixed(fashion):
    assert torch.bincount(fashion.train.labels).tolist() == [600] * 10
    assert torch.bincount(fashion.test.labels).tolist() == [100] * 10
    assert len(fashion.train.labels[:64].unique()) == 10
    assert fashion.train.classes[9] == "Ankle boot"
    assert len(np.unique(fashion.train.images.numpy().reshape(6000, -1), axis=0)) == 6000


def test_embedded_files_are_small_and_carry_their_notice():
    sizes = [path.stat().st_size for path in EMBEDDED.glob("*.xz")]
    assert len(sizes) == 3
    assert max(sizes) < 2_000_000
    assert sum(sizes) < 3_000_000
    notice = (EMBEDDED / "NOTICE").read_text()
    assert "Copyright (c) 2017 Zalando SE, https://tech.zalando.com" in notice
    assert "Permission is hereby granted, free of charge" in notice


def test_size_and_subset_act_together(fashion):
    small = load("fashion-mnist-tenth@32[:10%]", seed=5)
    assert small.name == "fashion-mnist-tenth@32[:10%]"
    assert small.train.images.shape == (600, 1, 32, 32)
    assert small.test.images.shape == (1000, 1, 32, 32)
    assert torch.bincount(small.train.labels).tolist() == [60] * 10
    for index in (0, 999):
        picture = Image.fromarray(fashion.test.images[index, 0].numpy()).resize((32, 32), Image.Resampling.BILINEAR)
        assert np.array_equal(np.asarray(picture), small.test.images[index, 0].numpy())


def test_the_seed_decides_the_subset_and_nothing_else(fashion):
    first, again, other = (load("fashion-mnist-tenth[:100]", seed=seed) for seed in (0, 0, 1))
    assert torch.equal(first.train.images, again.train.images)
    assert not torch.equal(first.train.images, other.train.images)
    assert torch.equal(first.test.images, fashion.test.images)


def test_unknown_names_list_the_known_and_suggest_the_closest(tmp_path):
    with pytest.raises(GradveilError) as caught:
        load("CIFAR-10")
    assert "did you mean 'cifar10'" in str(caught.value)
    assert all(name in str(caught.value) for name in DATASETS)
    with pytest.raises(GradveilError, match="folder:"):
        load(str(tmp_path))


def test_loading_embedded_images_imports_no_heavy_package():
    code = (
        "import sys; from gradveil.datasets import load; load('fashion-mnist-tenth'); "
        "print({'PIL', 'pooch', 'requests', 'datasets', 'rich', 'torchvision'} & set(sys.modules))"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "set()\n"
