import time

from layouts import MEDICAL, class_folders

from gradveil.datasets import DATASETS, listing


def test_the_listing_has_every_dataset_and_says_where_it_is(tmp_path, fashion):
    (tmp_path / "cifar-10-batches-bin").mkdir()
    (tmp_path / "cifar-10-batches-bin/data_batch_1.bin").write_bytes(b"")
    (tmp_path / "tiny-imagenet-tenth.tar").write_bytes(b"")
    class_folders(tmp_path / "medical-mnist", fashion.train.images, MEDICAL, 1)
    start = time.perf_counter()
    rows = listing(tmp_path)
    assert time.perf_counter() - start < 1
    assert [row.name for row in rows] == list(DATASETS)
    present = {row.name: row.present for row in rows}
    assert present == present | {
        "fashion-mnist-tenth": "embedded",
        "fashion-mnist": "not here",
        "cifar10": str(tmp_path / "cifar-10-batches-bin"),
        "cifar100": "not here",
        "tiny-imagenet": str(tmp_path / "tiny-imagenet-tenth.tar"),
        "medical-mnist": str(tmp_path / "medical-mnist"),
    }
    sizes = {row.name: row.download_megabytes for row in rows}
    assert sizes["fashion-mnist"] == 30.9
    assert sizes["fashion-mnist-tenth"] == sizes["medical-mnist"] == 0


def test_the_listing_of_a_folder_that_does_not_exist(tmp_path):
    assert {row.present for row in listing(tmp_path / "nowhere")} == {"embedded", "not here"}
    assert not (tmp_path / "nowhere").exists()


def test_entries_agree_with_the_images_they_describe(fashion):
    entry = DATASETS["fashion-mnist-tenth"]
    assert (len(fashion.train), len(fashion.test)) == (entry.train, entry.test)
    assert fashion.train.image_shape == entry.shape
    assert len(fashion.train.classes) == entry.classes
