"""The wheel holds what the package needs, and says what it is."""

import re
import zipfile
from pathlib import Path

import pytest

import gradveil as gv

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "src" / "gradveil"


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> zipfile.ZipFile:
    wheels = pytest.importorskip("hatchling.builders.wheel")
    builder = wheels.WheelBuilder(str(ROOT))
    (path,) = builder.build(directory=str(tmp_path_factory.mktemp("dist")), versions=["standard"])
    return zipfile.ZipFile(path)


def test_every_file_of_the_package_is_in_the_wheel(wheel: zipfile.ZipFile) -> None:
    files = {
        f"gradveil/{path.relative_to(PACKAGE).as_posix()}"
        for path in PACKAGE.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert any(name.endswith(".html.j2") for name in files)
    assert any(name.startswith("gradveil/datasets/embedded/") for name in files)
    packed = set(wheel.namelist())
    assert files <= packed
    assert {name.split("/")[0] for name in packed} == {"gradveil", f"gradveil-{gv.__version__}.dist-info"}


def test_its_page_works_outside_of_the_repository(wheel: zipfile.ZipFile) -> None:
    about = wheel.read(f"gradveil-{gv.__version__}.dist-info/METADATA").decode()
    page = about.partition("\n\n")[2]
    assert "](docs/" not in page
    assert all(target.startswith("https://") for target in re.findall(r"\]\(([^)]*)\)", page))
    assert "<!--" not in page
    assert "\n| `dp-sgd:noise=0.3,norm=8` |" in page  # the finding is there
    assert "## Install" in page
    assert "rebuilds from the gradient" not in page  # the caption of a picture that is not there


def test_its_metadata(wheel: zipfile.ZipFile) -> None:
    about = wheel.read(f"gradveil-{gv.__version__}.dist-info/METADATA").decode()
    for line in (
        "Name: gradveil",
        f"Version: {gv.__version__}",
        "Requires-Python: >=3.11",
        "License-Expression: Apache-2.0",
    ):
        assert f"\n{line}\n" in about
    assert "# gradveil" in about  # README is the page of the package index
    assert "Description-Content-Type: text/markdown" in about
    assert b"gradveil = gradveil.__main__:main" in wheel.read(f"gradveil-{gv.__version__}.dist-info/entry_points.txt")
    assert f"version: {gv.__version__}\n" in (ROOT / "CITATION.cff").read_text()
