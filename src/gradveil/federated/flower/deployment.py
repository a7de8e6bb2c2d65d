"""A collaborative training on a Flower SuperLink that runs already: write a Flower app, start it, follow its log.

The server's part runs where the SuperLink runs, and what it makes is written there.
"""

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from gradveil.errors import GradveilError
from gradveil.federated.flower.setup import FAILED, LOGGED, NO_TELEMETRY, check_flower
from gradveil.io.files import write_text
from gradveil.version import __version__

if TYPE_CHECKING:
    from gradveil.federated.flower.run import FlowerRun

# Seconds that a command to the SuperLink may take; following the log may take as long as the training.
ANSWER_SECONDS = 60.0
# Seconds between two checks whether a run has ended.
POLL_SECONDS = 5.0
_NAME = "gradveil"
_COLOURS = re.compile(r"\x1b\[[0-9;]*m")


@dataclass(frozen=True)
class SuperLink:
    """The address of a SuperLink, HOST:PORT, and how it is trusted.

    It is trusted by your own certificate (`root_certificates`), by the system's, or without any (`insecure`). An address without
    a port is the name of a connection in your Flower configuration (`flwr config list`).
    """

    address: str
    root_certificates: Path | None = None
    insecure: bool = False

    def __post_init__(self) -> None:
        if self.insecure and self.root_certificates is not None:
            raise GradveilError("SuperLink: expected --insecure or --root-certificates, got both")
        if self.root_certificates is not None and not self.root_certificates.is_file():
            raise GradveilError(f"{self.root_certificates}: no such certificate")
        if not self.address or (self.configured and (self.insecure or self.root_certificates is not None)):
            raise GradveilError(
                f"SuperLink: expected HOST:PORT, or the name of a connection without certificates, got {self.address!r}"
            )

    @property
    def configured(self) -> bool:
        """Whether the connection stands in the user's own Flower configuration."""
        return ":" not in self.address

    @contextmanager
    def connecting(self) -> Iterator["Flwr"]:
        """Flower's command line with this connection. It gets a configuration of its own; the user's stays as it is."""
        if self.configured:
            yield Flwr(self.address, NO_TELEMETRY)
            return
        with tempfile.TemporaryDirectory(prefix="gradveil-flower-") as home:
            lines = [f"[superlink.{_NAME}]", f"address = {_toml(self.address)}"]
            if self.root_certificates is not None:
                lines.append(f"root-certificates = {_toml(str(self.root_certificates.resolve()))}")
            if self.insecure:
                lines.append("insecure = true")
            write_text(Path(home) / "config.toml", "\n".join(lines) + "\n")
            yield Flwr(_NAME, {**NO_TELEMETRY, "FLWR_HOME": home})


@dataclass(frozen=True)
class Flwr:
    """Flower's own command line, asked about one connection."""

    connection: str
    environment: Mapping[str, str]

    def start(self, app: Path) -> int:
        """Start the app, and give the number of the run."""
        return int(str(self._ask("run", str(app), self.connection)["run-id"]))

    def status(self, run: int) -> str:
        """Such as `running` or `finished:completed`."""
        runs = self._ask("list", self.connection, "--run-id", str(run))["runs"]
        return str(runs[0]["status"]) if isinstance(runs, list) and runs else "unknown"

    def stop(self, run: int) -> None:
        self._ask("stop", str(run), self.connection)

    def follow(self, run: int, line: Callable[[str], None]) -> None:
        """Call `line` with everything the run logs until it ends."""
        command = [_flwr(), "log", str(run), self.connection, "--stream"]
        environment = {**os.environ, **self.environment, "PYTHONUNBUFFERED": "1"}
        with subprocess.Popen(
            command,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            stdin=subprocess.DEVNULL,
            text=True,
        ) as process:
            assert process.stdout is not None
            try:
                for text in process.stdout:
                    if plain := _COLOURS.sub("", text).strip():
                        line(plain)
            finally:
                process.terminate()

    def _ask(self, *words: str) -> dict[str, object]:
        """Run a command of Flower, and give the JSON document that it prints."""
        try:
            done = subprocess.run(
                [_flwr(), *words, "--format", "json"],
                env={**os.environ, **self.environment},
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=ANSWER_SECONDS,
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            raise GradveilError(f"flwr {words[0]}: the SuperLink did not answer within {ANSWER_SECONDS:g} s") from error
        # Notes for people may stand around the document.
        begin, end = done.stdout.find("{"), done.stdout.rfind("}")
        try:
            found = json.loads(done.stdout[begin : end + 1])
        except ValueError as error:
            raise GradveilError(f"flwr {words[0]}: {_error_text(done.stderr or done.stdout)}") from error
        if not isinstance(found, dict) or found.get("success") is False:
            raise GradveilError(f"flwr {words[0]}: {_error_text(str(found.get('error-message', found)))}")
        return found


def deploy(run: "FlowerRun", superlink: SuperLink, app: Path, *, line: Callable[[str], None]) -> None:
    """Train as `run` says on the nodes of `superlink`; `line` is called with what gradveil logs there.

    The Flower app is written to the folder `app`. Interrupted, the run is stopped; started again, it goes on where it was.
    """
    check_flower(ray=False)
    write_app(run, app)
    with superlink.connecting() as flower:
        number = flower.start(app)
        line(f"run {number} on {superlink.address}; the server writes to {run.folder} on its machine")
        log: list[str] = []

        def read(text: str) -> None:
            if text.startswith(LOGGED):
                line(text.removeprefix(LOGGED))
            log.append(text)

        try:
            flower.follow(number, read)
            # The log may break off before the run ends.
            while not (status := flower.status(number)).startswith("finished"):
                time.sleep(POLL_SECONDS)
        except KeyboardInterrupt:
            flower.stop(number)
            raise
        if status != "finished:completed":
            ours = [text.removeprefix(LOGGED + FAILED) for text in log if text.startswith(LOGGED + FAILED)]
            raise GradveilError(f"run {number}: {ours[-1] if ours else ' '.join([status, *log[-3:]])}")


def write_app(run: "FlowerRun", app: Path) -> None:
    """The Flower app of a run, for `flwr run APP`: nothing but a pyproject.toml that names gradveil's components.

    gradveil itself must be installed where the SuperLink and the SuperNodes run.
    """
    settings = "\n".join(f"{name} = {_toml(value)}" for name, value in run.to_config().items())
    text = f"""[project]
name = "gradveil-federated"
version = {_toml(__version__)}
description = "A collaborative training of gradveil"
license = "Apache-2.0"
dependencies = []

[tool.flwr.app]
publisher = "gradveil"

[tool.flwr.app.components]
serverapp = "gradveil.federated.flower.app:server_app"
clientapp = "gradveil.federated.flower.app:client_app"

[tool.flwr.app.config]
{settings}
"""
    write_text(app / "pyproject.toml", text)


def _toml(value: str | int | float) -> str:
    # A JSON string is a TOML string but for characters that JSON writes in two halves, or as they are.
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def _flwr() -> str:
    beside = Path(sys.executable).parent / "flwr"
    found = str(beside) if beside.is_file() else shutil.which("flwr")
    if found is None:
        raise GradveilError("flwr, the command line of Flower, is not there: pip install 'gradveil[flower]'")
    return found


def _error_text(text: str) -> str:
    """An error in one line, without the box that Flower draws around it."""
    lines = [line.strip("│╭╰─╮╯ ") for line in text.splitlines()]
    found = " ".join(line for line in lines if line and not line.startswith(("Error ─", "Using SuperLink")))
    return found[-400:] or "no answer"
