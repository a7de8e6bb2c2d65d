"""Policy files: whole, checked, refused in one line."""

import json
from pathlib import Path

import pytest

from gradveil.errors import GradveilError
from gradveil.transforms import Policy, PolicyFile, Provenance, load_policy, load_policy_file, register, save_policy

CONTENT = PolicyFile(
    Policy.parse("3-1-7+translate_y:3-18-18"),
    {"privacy": 0.41, "accuracy": -85.25},
    Provenance(dataset="fashion-mnist-tenth", model="resnet20", seed=7),
)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    save_policy(tmp_path / "best.json", CONTENT)
    return tmp_path / "best.json"


def test_round_trip(path: Path) -> None:
    assert load_policy_file(path) == CONTENT
    assert load_policy(str(path)) == CONTENT.policy
    assert [file.name for file in path.parent.iterdir()] == ["best.json"]


def test_long_members_survive(tmp_path: Path) -> None:
    content = PolicyFile(Policy.parse("0-1-2-3-4", longest=5))
    save_policy(tmp_path / "long.json", content)
    assert load_policy_file(tmp_path / "long.json") == content


def test_text_or_file(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(path.parent)
    (path.parent / "best").write_bytes(path.read_bytes())
    (path.parent / "9").write_bytes(path.read_bytes())
    assert load_policy("best") == load_policy("best.json") == CONTENT.policy
    assert load_policy("9") == Policy.parse("9")  # a file of that name does not hide the policy
    with pytest.raises(GradveilError, match="unknown operation 'bset'"):
        load_policy("bset")


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"policy": "3-1-8"}, "checksum"),
        ({"scores": {"privacy": 0.4}}, "checksum"),
        ({"sha256": "0" * 64}, "checksum"),
        ({"format": 2}, "format 2, this gradveil reads format 1"),
        ({"format": True}, "format: expected a whole number, got 'True'"),
        ({"extra": 1}, "unknown field 'extra'"),
        ({"policy": 3}, "policy: expected a text, got '3'"),
        ({"scores": []}, "scores: expected an object, got '[]'"),
    ],
)
def test_changed_files_are_refused(path: Path, changes: dict[str, object], said: str) -> None:
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))
    assert said in refusal(path)


def test_missing_field(path: Path) -> None:
    body = json.loads(path.read_text())
    del body["provenance"]
    path.write_text(json.dumps(body))
    assert "missing field 'provenance'" in refusal(path)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"garbage " * 1_310_720, "10485760 bytes, expected at most"),
        (b"garbage", "not JSON"),
        (b"", "not JSON"),
        (b"\xff\xfe{}", "'utf-8' codec can't decode"),
        (b"[" * 200_000, "not JSON"),
        (b'{"scores": {"a": NaN}}', "not JSON"),
        (b'{"format": ' + b"9" * 5000 + b"}", "not JSON"),
        (b"[1, 2]", "a JSON object, got a list"),
    ],
)
def test_other_content_is_refused_in_one_line(tmp_path: Path, content: bytes, said: str) -> None:
    (tmp_path / "odd.json").write_bytes(content)
    assert said in refusal(tmp_path / "odd.json")


def test_nothing_there(tmp_path: Path) -> None:
    assert "No such file" in refusal(tmp_path / "none.json")
    assert "expected a file" in refusal(tmp_path)


def test_endless_scores_are_not_written(tmp_path: Path) -> None:
    with pytest.raises(GradveilError, match="not a finite number"):
        save_policy(tmp_path / "bad.json", PolicyFile(CONTENT.policy, {"privacy": float("nan")}))
    assert list(tmp_path.iterdir()) == []


def test_operation_unknown_here_is_named(tmp_path: Path) -> None:
    from gradveil.transforms import OPERATIONS

    register("elsewhere", lambda images, magnitude: images)
    save_policy(tmp_path / "own.json", PolicyFile(Policy.parse("elsewhere:1")))
    del OPERATIONS["elsewhere"]
    assert "unknown operation 'elsewhere'" in refusal(tmp_path / "own.json")


def refusal(path: Path) -> str:
    with pytest.raises(GradveilError) as caught:
        load_policy(f"{path}" if path.suffix else f"{path}/")
    message = str(caught.value)
    assert "\n" not in message
    assert len(message) < 400
    return message
