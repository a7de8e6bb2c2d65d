import hashlib
import threading
from contextlib import contextmanager
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
import torch
from layouts import balanced, class_folders, colour, make_tar, write_idx

from gradveil.datasets import DATASETS, Archive, bar, listing, load
from gradveil.errors import GradveilError
from gradveil.types import Dataset


@contextmanager
def serving(files: dict[str, bytes], *, cut: bool = False):
    """An http server on localhost; with `cut` it promises whole files and hangs up half-way."""
    asked: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            name = self.path.lstrip("/")
            asked.append(name)
            if name not in files:
                self.send_error(404)
                return
            self.send_response(200)
            self.send_header("Content-Length", str(len(files[name])))
            self.end_headers()
            self.wfile.write(files[name][: len(files[name]) // 2] if cut else files[name])

        def log_message(self, format, *values):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", asked
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.fixture
def small(fashion) -> Dataset:
    return Dataset("small", balanced(fashion.train, 10), balanced(fashion.test, 5))


@pytest.fixture
def official(tmp_path, small) -> dict[str, bytes]:
    write_idx(tmp_path / "server", small.train, small.test, packed=True)
    return {path.name: path.read_bytes() for path in (tmp_path / "server").iterdir()}


def published(files: dict[str, bytes], url: str) -> tuple[Archive, ...]:
    return tuple(
        Archive(name, f"{url}/{name}", hashlib.md5(content).hexdigest(), len(content))
        for name, content in sorted(files.items())
    )


def leftovers(folder) -> list[str]:
    return [str(path.relative_to(folder)) for path in folder.rglob("*")]


class Recorder:
    def __init__(self):
        self.jobs: dict[str, list[int]] = {}

    @contextmanager
    def __call__(self, title, total, unit):
        self.jobs[title] = [total, 0]

        def advance(units):
            self.jobs[title][1] += units

        yield advance


def test_a_download_is_checked_kept_and_found_again(tmp_path, official, small, shrink):
    place, recorder = tmp_path / "new" / "place", Recorder()
    with serving(official) as (url, asked):
        shrink("fashion-mnist", train=100, test=50, archives=published(official, url))
        got = load("fashion-mnist", data_dir=place, progress=recorder)
        assert torch.equal(got.train.images, small.train.images)
        assert sorted(asked) == sorted(official)
        load("fashion-mnist", data_dir=place, progress=recorder)
        assert len(asked) == 4
    assert recorder.jobs == {name: [len(content)] * 2 for name, content in official.items()}
    assert sorted(leftovers(place / "fashion-mnist")) == sorted(official)
    assert next(row.present for row in listing(place) if row.name == "fashion-mnist") == str(place / "fashion-mnist")
    assert len(load("fashion-mnist", data_dir=place, download=False).test) == 50


def test_a_downloaded_tar_is_read_as_it_is(tmp_path, fashion, shrink):
    class_folders(tmp_path / "made/train", colour(fashion.train, 2, 64), ["n01443537", "n01629819"], 1, ".JPEG")
    class_folders(tmp_path / "made/val", colour(fashion.test, 2, 64), ["n01443537", "n01629819"], 1, ".JPEG")
    files = {"tiny-imagenet-200.tar": make_tar(tmp_path / "made", tmp_path / "x.tar").read_bytes()}
    with serving(files) as (url, _):
        shrink("tiny-imagenet", archives=published(files, url))
        assert len(load("tiny-imagenet", data_dir=tmp_path / "place").train) == 2
    assert leftovers(tmp_path / "place/tiny-imagenet") == ["tiny-imagenet-200.tar"]


def test_a_wrong_checksum_keeps_nothing(tmp_path, official, shrink):
    with serving(official) as (url, _):
        wrong = tuple(replace(archive, md5="0" * 32) for archive in published(official, url))
        shrink("fashion-mnist", train=100, test=50, archives=wrong)
        with pytest.raises(GradveilError, match=r"has md5 [0-9a-f]{32}, expected 0{32}.*nothing was kept") as caught:
            load("fashion-mnist", data_dir=tmp_path / "place")
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "place").exists()


def test_an_interrupted_download_keeps_nothing_and_the_next_one_goes_on(tmp_path, official, shrink):
    place = tmp_path / "place"
    with serving(official, cut=True) as (url, _):
        shrink("fashion-mnist", train=100, test=50, archives=published(official, url))
        with pytest.raises(GradveilError, match=r"cannot download t10k-images-idx3-ubyte\.gz \(.*by hand and put it"):
            load("fashion-mnist", data_dir=place)
    assert not place.exists()
    (place / "fashion-mnist").mkdir(parents=True)
    done = "t10k-images-idx3-ubyte.gz"
    (place / "fashion-mnist" / done).write_bytes(official[done])
    with serving(official) as (url, asked):
        shrink("fashion-mnist", archives=published(official, url))
        assert len(load("fashion-mnist", data_dir=place).train) == 100
    assert sorted(asked) == sorted(set(official) - {done})


def test_a_download_stopped_by_the_user_keeps_nothing(tmp_path, official, shrink):
    @contextmanager
    def impatient(title, total, unit):
        def advance(units):
            raise KeyboardInterrupt

        yield advance

    with serving(official) as (url, _):
        shrink("fashion-mnist", archives=published(official, url))
        with pytest.raises(KeyboardInterrupt):
            load("fashion-mnist", data_dir=tmp_path / "place", progress=impatient)
    assert not (tmp_path / "place").exists()


def test_a_missing_file_on_the_server_is_an_error(tmp_path, official, shrink):
    with serving({}) as (url, _):
        shrink("fashion-mnist", archives=published(official, url))
        with pytest.raises(GradveilError, match=r"cannot download .*404"):
            load("fashion-mnist", data_dir=tmp_path)


def test_no_network_says_where_to_put_the_file(tmp_path, shrink):
    with serving({}) as (url, _):
        pass  # now nobody listens on that port
    shrink("cifar10", archives=published({"cifar-10-binary.tar.gz": b"x"}, url))
    with pytest.raises(GradveilError) as caught:
        load("cifar10", data_dir=tmp_path)
    message = str(caught.value)
    assert f"put it into {tmp_path / 'cifar10'}" in message
    assert "refused" in message
    assert "\n" not in message
    assert len(message) < 400


def test_download_off_says_what_to_put_where(tmp_path):
    with pytest.raises(GradveilError, match=r"cifar100 is not in .*downloading is off.*cifar-100-binary\.tar\.gz"):
        load("cifar100", data_dir=tmp_path, download=False)


def test_a_place_that_cannot_be_written_is_named(tmp_path, official, shrink):
    (tmp_path / "fashion-mnist").write_text("a file where a folder should be")
    shrink("fashion-mnist", archives=published(official, "http://127.0.0.1:9"))
    with pytest.raises(GradveilError, match=r"cannot write .*fashion-mnist.*choose another data folder"):
        load("fashion-mnist", data_dir=tmp_path)


def test_the_bar_is_silent_where_stderr_is_no_terminal(capsys):
    with bar("file", 10, "bytes") as advance:
        advance(10)
    assert capsys.readouterr() == ("", "")


def test_the_bar_shows_title_amount_and_time_on_a_terminal(capsys, monkeypatch):
    for name, value in {"FORCE_COLOR": "1", "TERM": "xterm", "COLUMNS": "100"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("NO_COLOR", raising=False)
    with bar("archive.tar", 2_000_000, "bytes") as advance:
        advance(1_000_000)
    out, err = capsys.readouterr()
    assert out == ""
    assert "archive.tar" in err
    assert "1.0/2.0 MB" in err


def test_published_checksums_and_addresses_are_whole():
    archives = [archive for entry in DATASETS.values() for archive in entry.archives]
    assert len(archives) == 7
    for archive in archives:
        assert len(bytes.fromhex(archive.md5)) == 16
        assert archive.url.endswith(f"/{archive.file}")
    assert len({archive.md5 for archive in archives}) == 7
