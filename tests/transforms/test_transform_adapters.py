"""Policies inside other people's pipelines."""

import pickle
from collections.abc import Callable

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor
from torch.utils.data import DataLoader, TensorDataset

from gradveil.errors import GradveilError
from gradveil.transforms import OPERATIONS, Policy, PolicyDataset, PolicyTransform, register
from gradveil.transforms.adapters import content_index

datasets = pytest.importorskip("datasets")
POLICY = Policy.parse("3-1-7+43-18-18")


class Pictures:
    """What a torchvision dataset is to its user: PIL images through `transform`, labels beside them."""

    def __init__(self, images: Tensor, transform: Callable[[Image.Image], object] | None = None) -> None:
        self.images = images
        self.transform = transform

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, index: int) -> tuple[object, int]:
        picture = to_pil(self.images[index])
        return (picture if self.transform is None else self.transform(picture)), index % 10


class Compose:
    """As torchvision's."""

    def __init__(self, *steps: Callable[[object], object]) -> None:
        self.steps = steps

    def __call__(self, image: object) -> object:
        for step in self.steps:
            image = step(image)
        return image


def to_pil(image: Tensor) -> Image.Image:
    pixels = image.permute(1, 2, 0).numpy()
    return Image.fromarray(pixels[:, :, 0].copy() if image.shape[0] == 1 else pixels.copy())


def from_pil(picture: object) -> Tensor:
    assert isinstance(picture, Image.Image)
    pixels = np.array(picture)
    return torch.from_numpy(pixels.reshape(picture.height, picture.width, -1)).permute(2, 0, 1)


def expected(images: Tensor, *, seed: int = 0, epoch: int = 0, policy: Policy = POLICY) -> Tensor:
    """The batch call with the same draw."""
    return policy(images, seed=seed, epoch=epoch, indices=torch.tensor([content_index(image) for image in images]))


@pytest.mark.parametrize(
    "text", ["3-1-7+43-18-18", "12-6-10", "2-9-8", "0-11-37", "identity", "shear_x:4-blur:5-zoom:3"]
)
@pytest.mark.parametrize("channels", [1, 3])
def test_every_kind_of_image_gets_the_same_pixels(text: str, channels: int, grey: Tensor) -> None:
    images = grey[: 10 * channels].view(10, channels, 28, 28)
    policy = Policy.parse(text)
    transform = PolicyTransform(policy, seed=2)
    wanted = expected(images, seed=2, policy=policy)
    assert torch.equal(transform(images), wanted)
    for image, done in zip(images, wanted, strict=True):
        assert torch.equal(transform(image), done)
        assert torch.equal(from_pil(transform(to_pil(image))), done)
        last = image.permute(1, 2, 0).numpy()
        assert np.array_equal(transform(last), done.permute(1, 2, 0).numpy())
        as_floats = transform(image.double() / 255)
        assert as_floats.dtype == torch.float64
        assert torch.equal((as_floats * 255).round().to(torch.uint8), done)
        if channels == 1:
            assert np.array_equal(transform(image[0].numpy()), done[0].numpy())


def test_pil_images_keep_their_mode(colour: Tensor) -> None:
    transform = PolicyTransform(str(POLICY))
    picture = to_pil(colour[0])
    assert transform(picture).mode == "RGB"
    assert transform(picture.convert("L")).mode == "L"
    assert transform(picture.convert("P")).mode == "RGB"
    assert transform(picture.convert("1")).mode == "L"
    with pytest.raises(GradveilError, match="mode RGBA must be converted"):
        transform(picture.convert("RGBA"))


def test_inputs_are_not_changed(colour: Tensor) -> None:
    transform = PolicyTransform(Policy.parse("0"))
    array = colour[0].permute(1, 2, 0).contiguous().numpy().copy()
    floats = colour[:2].float() / 255
    copies = array.copy(), floats.clone()
    transform(array)
    transform(floats)
    assert np.array_equal(array, copies[0])
    assert torch.equal(floats, copies[1])


@pytest.mark.parametrize(
    ("image", "said"),
    [
        (torch.zeros(28, 28, dtype=torch.uint8), "must be \\(C, H, W\\)"),
        (torch.zeros(2, 8, 8, dtype=torch.uint8), "images must be uint8"),
        (torch.zeros(3, 8, 8, dtype=torch.int64), "images must be uint8"),
        (torch.full((3, 8, 8), 1.5), "must lie in \\[0, 1\\]"),
        (torch.full((3, 8, 8), float("nan")), "must lie in \\[0, 1\\]"),
        (np.zeros((1, 2, 3, 4, 5), dtype=np.uint8), "a numpy image must be"),
        ([[1, 2], [3, 4]], "must be a PIL image, a tensor or a numpy array, got list"),
    ],
)
def test_other_things_are_refused(image: Tensor, said: str) -> None:
    with pytest.raises(GradveilError, match=said):
        PolicyTransform(POLICY)(image)


def test_own_operations_work_in_adapters(colour: Tensor) -> None:
    before = dict(OPERATIONS)
    try:
        register("upside_down", lambda images, magnitude: images.flip(2))
        done = PolicyTransform(Policy.parse("upside_down:0-0"))(to_pil(colour[0]))
        assert torch.equal(from_pil(done), ~colour[0].flip(1))
    finally:
        OPERATIONS.clear()
        OPERATIONS.update(before)


@pytest.mark.parametrize("workers", [0, 1, 2])
def test_loader_gives_the_same_images_for_any_number_of_workers(workers: int, colour: Tensor) -> None:
    images = colour[:40]
    pictures = Pictures(images, Compose(PolicyTransform(POLICY, seed=3), from_pil))
    loader = DataLoader(pictures, batch_size=16, num_workers=workers)
    assert torch.equal(torch.cat([batch for batch, _ in loader]), expected(images, seed=3))


@pytest.mark.parametrize("workers", [0, 1, 2])
def test_wrapped_dataset_draws_by_index_for_any_number_of_workers(workers: int, colour: Tensor) -> None:
    images = colour[:40]
    data = PolicyDataset(TensorDataset(images, torch.arange(40)), POLICY, seed=3)
    loader = DataLoader(data, batch_size=16, num_workers=workers, persistent_workers=workers > 0)
    for epoch in (0, 1):  # workers that outlive the first epoch hear of the second
        data.set_epoch(epoch)
        assert torch.equal(torch.cat([batch for batch, _ in loader]), POLICY(images, seed=3, epoch=epoch))


def test_wrapped_dataset_takes_tuples_lists_dicts_and_bare_images(colour: Tensor) -> None:
    image = colour[5]
    wanted = POLICY(image[None], indices=torch.tensor([5]))[0]

    def sixth(item: object) -> object:
        return PolicyDataset([item] * 6, POLICY)[5]

    items = ((image, 7), [image, 7], {"image": image, "y": 7}, image)
    (first, label), listed, mapped, bare = (sixth(item) for item in items)
    assert label == listed[1] == mapped["y"] == 7
    for got in (first, listed[0], mapped["image"], bare):
        assert torch.equal(got, wanted)
    assert torch.equal(PolicyDataset([image] * 6, POLICY)[-1], wanted)
    with pytest.raises(GradveilError, match="items must be an image"):
        sixth("no image")


def test_hugging_face_set_transform(colour: Tensor) -> None:
    rows = {"image": [to_pil(image) for image in colour[:12]], "label": list(range(12))}
    features = datasets.Features({"image": datasets.Image(), "label": datasets.Value("int64")})
    data = datasets.Dataset.from_dict(rows, features=features)
    data.set_transform(PolicyTransform(POLICY, seed=1).on_batch("image"))
    wanted = expected(colour[:12], seed=1)
    batch = data[:12]
    assert batch["label"] == list(range(12))
    assert torch.equal(torch.stack([from_pil(picture) for picture in batch["image"]]), wanted)
    assert torch.equal(from_pil(data[7]["image"]), wanted[7])
    with pytest.raises(GradveilError, match="no column 'img' in the batch: there are 'image', 'label'"):
        PolicyTransform(POLICY).on_batch("img")(rows)


def test_lightning_data_module(colour: Tensor) -> None:
    from lightning import LightningDataModule

    class Module(LightningDataModule):
        def train_dataloader(self) -> DataLoader[object]:
            return DataLoader(Pictures(colour[:8], Compose(PolicyTransform(POLICY), from_pil)), batch_size=8)

    ((images, _),) = list(Module().train_dataloader())
    assert torch.equal(images, expected(colour[:8]))


def test_a_partition_gets_the_draws_of_the_whole(colour: Tensor) -> None:
    """A client's partition is a slice; drawing by content keeps an image's draw wherever it ends up."""
    transform = PolicyTransform(POLICY, seed=9)
    whole = transform(colour[:30])
    parts = [transform(colour[start : start + 10]) for start in (0, 10, 20)]
    assert torch.equal(torch.cat(parts), whole)


def test_pickle_and_epoch(colour: Tensor) -> None:
    transform = PolicyTransform(POLICY, seed=4)
    transform.set_epoch(2)
    copy = pickle.loads(pickle.dumps(transform))
    assert (copy.epoch, repr(copy)) == (2, "PolicyTransform('3-1-7+43-18-18', seed=4)")
    assert torch.equal(copy(colour[:6]), expected(colour[:6], seed=4, epoch=2))


def test_one_index_for_one_image(colour: Tensor) -> None:
    transform = PolicyTransform(POLICY)
    assert torch.equal(transform(colour[3], index=3), POLICY(colour[:4])[3])
    with pytest.raises(GradveilError, match="one index cannot number a batch of 2"):
        transform(colour[:2], index=3)
