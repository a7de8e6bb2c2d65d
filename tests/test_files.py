from pathlib import Path

import pytest

from gradveil.io.files import write_json, write_text, writing


def test_a_failed_write_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "file.txt"
    write_text(path, "old")

    def fail() -> None:
        with writing(path) as temporary:
            temporary.write_text("half")
            raise RuntimeError("killed")

    with pytest.raises(RuntimeError):
        fail()
    assert path.read_text() == "old"
    assert list(path.parent.iterdir()) == [path]


def test_written_files_have_ordinary_permissions(tmp_path: Path) -> None:
    plain = tmp_path / "plain"
    plain.write_text("")
    write_text(tmp_path / "ours", "")
    assert (tmp_path / "ours").stat().st_mode == plain.stat().st_mode


def test_json_refuses_what_is_no_number(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="not JSON compliant"):
        write_json(tmp_path / "x.json", {"a": float("nan")})
    assert list(tmp_path.iterdir()) == []
