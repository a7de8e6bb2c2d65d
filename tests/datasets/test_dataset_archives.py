import io
import tarfile
import zipfile

import pytest
from layouts import class_folders, make_tar, make_zip

from gradveil.datasets import archives, load
from gradveil.datasets.archives import open_archive
from gradveil.errors import GradveilError


@pytest.fixture
def tree(tmp_path, fashion):
    class_folders(tmp_path / "tree", fashion.train.images, ["a", "b"], 3)
    return tmp_path / "tree"


def make(kind, tree, tmp_path):
    if kind == "zip":
        return make_zip(tree, tmp_path / "x.zip")
    return make_tar(
        tree, tmp_path / f"x.{kind}", {"tar": "w", "tgz": "w:gz", "tar.bz2": "w:bz2", "tar.xz": "w:xz"}[kind]
    )


@pytest.mark.parametrize("kind", ["tar", "tgz", "tar.bz2", "tar.xz", "zip"])
def test_every_kind_of_archive_holds_the_same_tree(kind, tree, tmp_path):
    archive = open_archive(make(kind, tree, tmp_path))
    assert archive.walk("") == (
        ["a/000.png", "a/001.png", "a/002.png", "b/000.png", "b/001.png", "b/002.png"],
        ["a", "b"],
    )
    assert archive.walk("b")[0] == ["000.png", "001.png", "002.png"]
    assert archive.read("b/001.png") == (tree / "b/001.png").read_bytes()
    with pytest.raises(GradveilError, match=r"x\..* has no file b/9\.png"):
        archive.read("b/9.png")
    assert len(load(f"folder:{tmp_path}/x.{kind}").train) == 4


@pytest.mark.parametrize("kind", ["tar", "tgz", "tar.xz", "zip"])
@pytest.mark.parametrize("damage", ["cut", "empty", "noise"])
def test_damaged_archives_are_named(kind, damage, tree, tmp_path):
    path = make(kind, tree, tmp_path)
    whole = path.read_bytes()
    # Cut inside the last member: the padding behind a tar may be missing without harm.
    cut = whole[: 512 * 9 + 100] if kind == "tar" else whole[: len(whole) // 2]
    path.write_bytes({"cut": cut, "empty": b"", "noise": b"\x07" * 3000}[damage])
    with pytest.raises(GradveilError, match=r"x\..* is not a readable archive .*fetch it again"):
        open_archive(path)


def test_a_damaged_zip_member_is_found_by_its_checksum(tree, tmp_path):
    path = make("zip", tree, tmp_path)
    content = bytearray(path.read_bytes())
    start = content.index(b"IDAT") + 40
    content[start : start + 8] = b"\x00" * 8
    path.write_bytes(content)
    with pytest.raises(GradveilError, match=r"x\.zip is not a readable archive"):
        load(f"folder:{path}")


def tar_with(path, name, kind=tarfile.REGTYPE):
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, "/etc/passwd"
    with tarfile.open(path, "w") as archive:
        archive.addfile(info, io.BytesIO(b""))
    return path


@pytest.mark.parametrize("name", ["../x.png", "/etc/x.png", "a/../../x.png", "a\\..\\x.png", "C:/x.png"])
def test_names_that_point_outside_are_refused(name, tmp_path):
    with pytest.raises(GradveilError, match=r"x\.tar holds an unsafe name"):
        open_archive(tar_with(tmp_path / "x.tar", name))
    with zipfile.ZipFile(tmp_path / "x.zip", "w") as archive:
        archive.writestr(name, b"")
    with pytest.raises(GradveilError, match=r"x\.zip holds an unsafe name"):
        open_archive(tmp_path / "x.zip")


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE, tarfile.CHRTYPE])
def test_links_and_devices_in_a_tar_are_refused(kind, tmp_path):
    with pytest.raises(GradveilError, match=r"x\.tar holds a link or a special file \(a/x\.png\)"):
        open_archive(tar_with(tmp_path / "x.tar", "a/x.png", kind))


def test_sparse_members_of_a_tar_are_refused(tmp_path):
    # A header of 512 bytes may declare a sparse file of any size.
    (tmp_path / "x.tar").write_bytes(tar_with(tmp_path / "plain.tar", "a/x.png", tarfile.GNUTYPE_SPARSE).read_bytes())
    with pytest.raises(GradveilError, match=r"x\.tar holds a link or a special file"):
        open_archive(tmp_path / "x.tar")


@pytest.mark.parametrize("kind", [b"0", b"L"], ids=["file", "long name"])
def test_sizes_that_no_number_holds_are_refused(kind, tree, tmp_path):
    path = make("tar", tree, tmp_path)
    data = bytearray(path.read_bytes())
    start = data.find(b"a/000.png")
    data[start + 124 : start + 136] = b"\x80" + b"\x7f" * 11  # a size of eleven bytes
    data[start + 156 : start + 157] = kind
    data[start + 148 : start + 156] = b" " * 8
    data[start + 148 : start + 156] = b"%06o\0 " % sum(data[start : start + 512])
    path.write_bytes(data)
    with pytest.raises(GradveilError, match=r"x\.tar is not a readable archive"):
        open_archive(path)


def test_a_zip_member_without_a_name_is_refused(tmp_path):
    with zipfile.ZipFile(tmp_path / "x.zip", "w") as archive:
        archive.writestr("#.png", b"")
    # Python ends a name at its first NUL.
    (tmp_path / "x.zip").write_bytes((tmp_path / "x.zip").read_bytes().replace(b"#.png", b"\0.png"))
    with pytest.raises(GradveilError, match=r"x\.zip is not a readable archive"):
        open_archive(tmp_path / "x.zip")


def test_names_may_start_with_the_present_folder(tree, tmp_path):
    with tarfile.open(tmp_path / "x.tar", "w") as archive:
        archive.add(tree, ".")
    with zipfile.ZipFile(tmp_path / "x.zip", "w") as packed:
        for path in tree.rglob("*.png"):
            packed.write(path, f"x/{path.relative_to(tree)}")
    (tmp_path / "x.zip").write_bytes(
        (tmp_path / "x.zip").read_bytes().replace(b"x/a/", b"./a/").replace(b"x/b/", b"./b/")
    )
    for name in ("x.tar", "x.zip"):
        assert load(f"folder:{tmp_path / name}").train.classes == ("a", "b")


def test_links_in_a_zip_are_refused(tmp_path):
    info = zipfile.ZipInfo("a/x.png")
    info.external_attr = 0o120777 << 16
    with zipfile.ZipFile(tmp_path / "x.zip", "w") as archive:
        archive.writestr(info, "/etc/passwd")
    with pytest.raises(GradveilError, match=r"x\.zip holds a link"):
        open_archive(tmp_path / "x.zip")


def test_bombs_are_refused(tmp_path, monkeypatch):
    (tmp_path / "zeros").mkdir()
    (tmp_path / "zeros/x.bin").write_bytes(bytes(8_000_000))
    with pytest.raises(GradveilError, match=r"x\.zip unpacks to 8,000,000 bytes"):
        open_archive(make_zip(tmp_path / "zeros", tmp_path / "x.zip"))
    with pytest.raises(GradveilError, match=r"x\.tgz unpacks to more than"):
        open_archive(make_tar(tmp_path / "zeros", tmp_path / "x.tgz", "w:gz"))
    monkeypatch.setattr(archives, "MAX_MEMBER_BYTES", 1_000_000)
    with pytest.raises(GradveilError, match=r"x\.bin is 8,000,000 bytes"):
        open_archive(make_tar(tmp_path / "zeros", tmp_path / "x.tar"))


def test_too_many_members_are_refused(tree, tmp_path, monkeypatch):
    monkeypatch.setattr(archives, "MAX_MEMBERS", 5)
    with pytest.raises(GradveilError, match=r"holds 6 files; at most 5"):
        open_archive(make("tar", tree, tmp_path))
