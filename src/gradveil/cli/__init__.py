"""The command line: names become objects here, and nowhere else."""

import inspect
import io
import os
import signal
import sys
from collections.abc import Callable
from typing import Annotated, Any

import click
import typer
from typer.core import TyperCommand
from typer.models import ArgumentInfo

from gradveil.cli.attack import attack
from gradveil.cli.audit import audit
from gradveil.cli.curious import curious
from gradveil.cli.data import data
from gradveil.cli.defenses import defenses
from gradveil.cli.demo import demo
from gradveil.cli.federate import federate
from gradveil.cli.invert import invert
from gradveil.cli.operations import operations
from gradveil.cli.options import expand
from gradveil.cli.policies import apply, count, show
from gradveil.cli.recommend import recommend
from gradveil.cli.report import report
from gradveil.cli.reproduce import reproduce
from gradveil.cli.score import score
from gradveil.cli.search import search
from gradveil.cli.train import train
from gradveil.errors import GradveilError
from gradveil.io.files import FULL
from gradveil.stopping import STOPPED, Stopping, exit_code
from gradveil.version import __version__

# Characters of an error.
_LONGEST_LINE = 1000

app = typer.Typer(
    name="gradveil",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
    help="""Test whether the gradients you share in federated learning give your training images away.

    Test whether a defense survives an attacker who knows it. Search for defenses, and train with them.

    Start with **gradveil demo**: it needs no data and ends with a page to look at.

    A typical way through:

        gradveil attack    --model lenet --attack idlg --indices 0:4
        gradveil audit     --model lenet --defenses prune:0.95,gaussian:0.03 --images 16 --iterations 200
        gradveil recommend --model lenet --budget 10
        gradveil federate  --model lenet --defense prune:0.95 --curious fast
    """,
)


def _help(command: Callable[..., object]) -> str:
    """Its docstring with the examples in a fence: typer may take their indentation away, and then runs them together."""
    text, heading, examples = (inspect.getdoc(command) or "").partition("Examples:\n\n")
    return f"{text}{heading}```\n{inspect.cleandoc(examples)}\n```" if heading else text


def _explaining(command: Callable[..., object]) -> type[TyperCommand]:
    """A command whose arguments have their help: click from 8.5 on takes it away again after typer has set it."""
    parameters = inspect.signature(command).parameters.items()
    infos = {name: getattr(one.annotation, "__metadata__", (None,))[0] for name, one in parameters}

    class Explaining(TyperCommand):
        def __init__(self, *arguments: Any, **settings: Any) -> None:
            super().__init__(*arguments, **settings)
            for one in self.params:
                if one.name is not None and isinstance(info := infos.get(one.name), ArgumentInfo):
                    one.help = info.help

    return Explaining


def _add(app: typer.Typer, *commands: Callable[..., None]) -> None:
    for command in commands:
        app.command(help=_help(command), cls=_explaining(command))(expand(command))


_add(
    app,
    demo,
    data,
    audit,
    recommend,
    train,
    score,
    search,
    operations,
    defenses,
    apply,
    attack,
    invert,
    federate,
    curious,
    report,
    reproduce,
)
about_policies = typer.Typer(no_args_is_help=True, help="Show what a policy does. Count how many policies there are.")
_add(about_policies, show, count)
app.add_typer(about_policies, name="policies")


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(__version__)
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version and exit.", is_eager=True, callback=_print_version)
    ] = False,
) -> None:
    """What holds for every command."""


def main(stopping: Stopping | None = None) -> None:
    """Run the command line, and exit. What a user can mend is one line on standard error and exit code 2.

    `stopping` is of a process that does nothing else, until its very end. Without it, signals are given back.
    """
    if stopping is not None:
        sys.exit(_run_until_stopped(stopping))
    stopping = Stopping()
    try:
        sys.exit(_run_until_stopped(stopping))
    finally:
        stopping.restore()


def _run_until_stopped(stopping: Stopping) -> int:
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # names of files may be no text
    code = None
    try:
        try:
            stopping.phase = "working"
            code = _run()
        finally:
            stopping.phase = "ending"
    except BaseException as error:
        # Once there was a signal, it is the reason, whatever else it led to.
        if not stopping.received and not isinstance(error, KeyboardInterrupt | click.exceptions.Abort):
            raise
    if code is None or stopping.received:
        code = exit_code((stopping.received or [signal.SIGINT])[0])
        _say(STOPPED)
    stopping.code = code
    return code


def _run() -> int:
    """The exit code of the command; all that it has to say is said then."""
    try:
        code = app(standalone_mode=False)
        if sys.stdout is not None:  # as where a shell was told to close it
            sys.stdout.flush()
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else 1
    except GradveilError as error:
        _say(str(error))
    except click.exceptions.NoArgsIsHelpError as error:
        error.show()
    except click.ClickException as error:
        _say(error.format_message())
    except BrokenPipeError:
        # Whoever reads has read enough. What is left in the buffer must not be written at the end either.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except OSError as error:
        if error.filename is None and error.errno not in FULL:
            raise
        _say(f"{error.filename or 'writing'}: {error.strerror}")
    else:
        return code if isinstance(code, int) else 0
    return 2


def _say(message: str) -> None:
    line = " ".join(message.split())
    if len(line) > _LONGEST_LINE:  # what was given may be of any length; what is wrong with it is said at both ends
        line = f"{line[: _LONGEST_LINE // 2]} ... {line[-_LONGEST_LINE // 2 :]}"
    typer.echo(f"gradveil: {line}", err=True)
