"""Every block of code in README, CONTRIBUTING and docs: Python runs, commands fit the command line.

The blocks of a page share a namespace and run in order, in an empty folder. Comments before a block, which readers do not see,
change that:

    <!-- not run: REASON -->                    compiled only
    <!-- in the test: OLD -> NEW; ... -->       run with other text in place of some, to be quick
    <!-- before: CODE -->                       Python that stands for what is the reader's own, run first
"""

import os
import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import click
import pytest
import typer

from gradveil.attacks import AttackSettings, parse_attack
from gradveil.cli import app
from gradveil.cli.audit import with_settings
from gradveil.errors import GradveilError
from gradveil.naming import split_names
from gradveil.transforms import OPERATIONS

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
BLOCK = re.compile(
    r"((?:<!-- (?:not run|in the test|before):(?:(?!-->).)*-->\n+)*)```(\w+)\n(.*?)^ *```", re.DOTALL | re.MULTILINE
)
NOTE = re.compile(r"<!-- (not run|in the test|before):\s*(.*?)\s*-->", re.DOTALL)


@dataclass(frozen=True)
class Block:
    language: str
    code: str
    not_run: str = ""
    before: str = ""

    @property
    def file(self) -> str:
        """The name of the file that it shows, as its first line says: `# my_nets.py`."""
        named = re.match(r"# (\w+\.py)\n", self.code)
        return named[1] if named else ""


def blocks_of(text: str) -> Iterator[Block]:
    for notes, language, shown in BLOCK.findall(text):
        code, said = shown, dict(NOTE.findall(notes))
        for change in filter(None, said.get("in the test", "").split("; ")):
            old, _, new = change.partition(" -> ")
            assert old in code, f"{old!r} is not in the block any more"
            code = code.replace(old, new)
        yield Block(language, code, said.get("not run", ""), said.get("before", ""))


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


@pytest.fixture
def operations() -> Iterator[None]:
    """What a page registers is forgotten after it."""
    before = dict(OPERATIONS)
    yield
    OPERATIONS.clear()
    OPERATIONS.update(before)


WITH_PYTHON = [page for page in PAGES if "```python" in page.read_text()]


@pytest.mark.parametrize("page", WITH_PYTHON, ids=name_of)
@pytest.mark.usefixtures("operations")
@pytest.mark.filterwarnings("ignore::UserWarning", "ignore::FutureWarning")
def test_python_runs(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("GRADVEIL_EXAMPLES", str(ROOT / "examples"))
    names: dict[str, object] = {"__name__": "shown"}
    for block in blocks_of(page.read_text()):
        if block.language == "python":
            if block.file:
                (tmp_path / block.file).write_text(block.code)
            code = compile(block.code, name_of(page), "exec")
            if not block.not_run:
                exec(compile(block.before, name_of(page), "exec"), names)
                exec(code, names)


def commands_of(page: Path) -> Iterator[list[str]]:
    """The words of every command in blocks of console or bash and in the text, comments and output left out."""
    text = page.read_text()
    for block in blocks_of(text):
        if block.language in ("console", "bash", "sh"):
            for line in re.sub(r"\\\n\s*", "", block.code).splitlines():
                if block.language != "console" or line.startswith("$ "):
                    yield _words(line.removeprefix("$ "))
    for line in re.findall(r"(?<!`)`((?:gradveil|make|python -m bench)[ .][^`\n]+)`(?!`)", text):
        yield (
            [*_words(line), "..."] if line.split()[-1].startswith("--") else _words(line)
        )  # an option that is only named


def _words(line: str) -> list[str]:
    words = shlex.split(re.sub(r'"?\$\(\([^)]*\)\)"?', "8", line), comments=True)  # $((...)) of bash is a number here
    while words and (re.fullmatch(r"\w+=.*", words[0]) or words[0] in ("time", "srun")):
        words = words[1:]
    return words


def check(command: click.Command, words: list[str]) -> None:
    """Refuse options that do not exist, values of another kind, and arguments that are too many."""
    if isinstance(command, click.Group):
        assert words, f"{command.name} needs a command"
        if words[0].startswith("-"):
            return
        assert words[0] in command.commands, words[0]
        check(command.commands[words[0]], words[1:])
        return
    context = click.Context(command, info_name=command.name)
    numbers = [re.sub(r"^\$\w+$", "8", word) for word in words]  # $VARIABLES of scripts are numbers or paths
    values, rest, _ = command.make_parser(context).parse_args(numbers)
    assert set(rest) <= {"..."}, f"too many: {rest}"
    for parameter in command.params:
        value = values.get(parameter.name or "")
        if isinstance(value, str) and not isinstance(parameter.type, click.Path):
            parameter.type_cast_value(context, value)
    if attacks := values.get("attacks"):
        check_attacks(attacks, values.get("iterations"))


def check_attacks(attacks: str, iterations: str | None) -> None:
    """Refuse attacks that do not exist, or do not take the iterations given beside them."""
    names, common = with_settings(split_names(attacks), AttackSettings(), int(iterations) if iterations else None)
    for one in names:
        parse_attack(one, iterations=common)


KNOWN = typer.main.get_command(app)


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_commands_fit_the_command_line(page: Path) -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    for words in commands_of(page):
        line = " ".join(words)
        try:
            if words[:1] == ["gradveil"] and len(words) > 1 and words[1].islower():
                check(KNOWN, words[1:])
            elif words[:1] == ["make"]:
                assert {word for word in words[1:] if "=" not in word} <= targets
            elif words[1:2] == ["-m"] and words[2].startswith("bench"):
                path = ROOT / words[2].replace(".", os.sep)
                assert path.with_suffix(".py").is_file() or (path / "__main__.py").is_file()
        except (AssertionError, click.ClickException, GradveilError) as error:
            pytest.fail(f"{line}: {getattr(error, 'message', error)}")


def test_a_wrong_option_or_value_is_seen() -> None:
    with pytest.raises(click.NoSuchOption):
        check(KNOWN, ["audit", "--modle", "lenet"])
    with pytest.raises(click.BadParameter):
        check(KNOWN, ["audit", "--images", "many"])
    with pytest.raises(GradveilError, match="has no iterations"):
        check(KNOWN, ["audit", "--attacks", "analytic", "--iterations", "9"])
    with pytest.raises(AssertionError):
        check(KNOWN, ["audti"])


def test_notes_change_a_block() -> None:
    (block,) = blocks_of("<!-- before: x = 1 -->\n<!-- in the test: y = 100 -> y = 2 -->\n```python\ny = 100\n```\n")
    assert (block.before, block.code, block.not_run) == ("x = 1", "y = 2\n", "")


def test_few_blocks_are_not_run() -> None:
    left_out = [block for page in WITH_PYTHON for block in blocks_of(page.read_text()) if block.not_run]
    assert len(left_out) == 2, [block.not_run for block in left_out]
