import numpy as np
import pytest
import torch
from layouts import colour
from PIL import Image

from gradveil.datasets import dataset_from_samples, from_samples
from gradveil.errors import GradveilError
from gradveil.types import to_unit


class Torchvisionish:
    """As torchvision's datasets look from outside: pairs by index, and names in `classes`."""

    def __init__(self, images, labels, classes=None):
        self.images, self.labels = images, labels
        if classes is not None:
            self.classes = classes

    def __len__(self):
        return len(self.images)

    def __getitem__(self, index):
        return self.images[index], self.labels[index]


def pictures(images):
    return [Image.fromarray(image[0].numpy()) for image in images]


FORMS = {
    "pillow": pictures,
    "array": lambda images: [image[0].numpy() for image in images],
    "array with channels": lambda images: [image.permute(1, 2, 0).numpy() for image in images],
    "bytes": list,
    "bytes without channels": lambda images: [image[0] for image in images],
    "floats": lambda images: list(to_unit(images)),
    "double floats": lambda images: list(images.double() / 255),
}


@pytest.mark.parametrize("form", FORMS)
def test_every_form_of_image_gives_the_same_pixels(fashion, form):
    images, labels = fashion.train.images[:20], fashion.train.labels[:20]
    got = from_samples(Torchvisionish(FORMS[form](images), labels.tolist(), fashion.train.classes))
    assert torch.equal(got.images, images)
    assert torch.equal(got.labels, labels)
    assert got.classes == fashion.train.classes


@pytest.mark.parametrize("convert", [list, lambda labels: list(labels.numpy()), lambda labels: labels.tolist()])
def test_labels_may_be_tensors_or_numbers(fashion, convert):
    labels = fashion.train.labels[:20]
    got = from_samples(Torchvisionish(list(fashion.train.images[:20]), convert(labels)))
    assert torch.equal(got.labels, labels)
    assert got.classes == tuple(str(label) for label in range(int(labels.max()) + 1))


def test_a_dataset_itself_is_samples(fashion):
    assert torch.equal(from_samples(fashion.test).images, fashion.test.images)
    assert from_samples(fashion.test, classes=[*"abcdefghij"]).classes == tuple("abcdefghij")


def test_two_objects_become_a_dataset_of_one_colour_and_one_list_of_classes(fashion):
    grey = Torchvisionish(pictures(fashion.train.images[:4]), [0, 1, 2, 1])
    coloured = Torchvisionish(list(colour(fashion.test, 2, 28)), [0, 1])
    got = dataset_from_samples(grey, coloured, name="mine")
    assert got.name == "mine"
    assert got.train.image_shape == got.test.image_shape == (3, 28, 28)
    assert got.train.classes == got.test.classes == ("0", "1", "2")
    assert torch.equal(got.train.images[:, 1], fashion.train.images[:4, 0])


def test_different_class_names_do_not_make_a_dataset(fashion):
    one = Torchvisionish(pictures(fashion.train.images[:2]), [0, 1], ["cat", "dog"])
    other = Torchvisionish(pictures(fashion.train.images[:2]), [0, 1], ["dog", "eel"])
    with pytest.raises(GradveilError, match="different classes"):
        dataset_from_samples(one, other)


@pytest.mark.parametrize(
    ("image", "label", "message"),
    [
        (torch.full((1, 28, 28), 2.0), 0, r"s\[1\] must hold floats in \[0, 1\].*normalising"),
        (torch.full((1, 28, 28), float("nan")), 0, r"s\[1\] must hold floats"),
        (torch.zeros(1, 28, 28, dtype=torch.int32), 0, r"s\[1\] must be uint8 or float"),
        (torch.zeros(28, 28, 3), 0, r"s\[1\] must be a tensor .*\(28, 28, 3\)"),
        (np.zeros((28, 28)), 0, r"s\[1\] must be a uint8 array .*float64"),
        ("a path", 0, r"s\[1\] must be a Pillow image, an array or a tensor, got str"),
        (np.zeros((20, 30), np.uint8), 0, r"s\[1\] is 30x20, s\[0\] is 28x28; .*transform"),
        (np.zeros((28, 28), np.uint8), -1, r"label of s\[1\] must be a whole number from 0, got -1"),
        (np.zeros((28, 28), np.uint8), 0.5, r"label of s\[1\] must be a whole number from 0, got 0.5"),
        (np.zeros((28, 28), np.uint8), "cat", r"label of s\[1\] must be a whole number, got 'cat'"),
        (np.zeros((28, 28), np.uint8), torch.tensor([0, 1]), r"label of s\[1\] must be a whole number"),
    ],
)
def test_bad_samples_are_named(fashion, image, label, message):
    samples = Torchvisionish([fashion.train.images[0], image], [0, label])
    with pytest.raises(GradveilError, match=message):
        from_samples(samples, name="s")


def test_what_is_not_a_pair_or_empty_is_an_error(fashion):
    with pytest.raises(GradveilError, match=r"samples\[0\] must be a pair \(image, label\), got dict"):
        from_samples([{"image": fashion.train.images[0], "label": 1}])
    with pytest.raises(GradveilError, match="no images"):
        from_samples([])


def test_labels_beyond_the_class_names_are_an_error(fashion):
    with pytest.raises(GradveilError, match=r"0\.\.1 for 2 classes"):
        from_samples(Torchvisionish(list(fashion.train.images[:2]), [0, 7], ["a", "b"]))


def test_a_label_of_billions_is_refused(fashion):
    with pytest.raises(GradveilError, match="samples: expected labels 0 to 99999, got 1000000000000"):
        from_samples([(fashion.train.images[0], 10**12)])
