"""The command line: names become objects here, and nowhere else."""

import inspect
import sys
from collections.abc import Callable
from typing import Annotated

import click
import typer

from gradveil.cli import (
    attack,
    audit,
    curious,
    data,
    defenses,
    demo,
    federate,
    invert,
    operations,
    policies,
    report,
    score,
    search,
    train,
)
from gradveil.errors import GradveilError
from gradveil.version import __version__

app = typer.Typer(
    name="gradveil",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
    help="""Find, apply and honestly test image transformations that keep shared gradients from giving training images away.

    Start with **gradveil demo**: it needs no data and ends with a page to look at.

    A typical way through:

        gradveil train  --dataset fashion-mnist-tenth --model convnet-16 --semi
        gradveil search --weights runs/train/.../last.safetensors
        gradveil attack --model convnet-16 --defense 3-1-7 --indices 0:4
        gradveil audit  --model convnet-16 --defenses 3-1-7,prune:0.95 --images 16 --iterations 200
    """,
)
app.command()(demo.demo)
app.command()(data.data)
app.command()(audit.audit)
app.command()(train.train)
app.command()(score.score)
app.command()(search.search)
app.command()(operations.operations)
app.command()(defenses.defenses)
app.add_typer(policies.policies, name="policies")
app.command()(policies.apply)
app.command()(attack.attack)
app.command()(invert.invert)
app.command()(federate.federate)
app.command()(curious.curious)
app.command()(report.report)


def _help(command: Callable[..., object] | None) -> str:
    """Its docstring with the examples in a fence: typer may take their indentation away, and then runs them together."""
    text, heading, examples = (inspect.getdoc(command) or "").partition("Examples:\n\n")
    return f"{text}{heading}```\n{inspect.cleandoc(examples)}\n```" if heading else text


for _command in (*app.registered_commands, *policies.policies.registered_commands):
    _command.help = _help(_command.callback)


@app.callback()
def options(
    version: Annotated[bool, typer.Option("--version", help="Print the version and exit.", is_eager=True)] = False,
) -> None:
    """Options of gradveil itself."""
    if version:
        typer.echo(__version__)
        raise typer.Exit


def main() -> None:
    """Run the command line; whatever a user can mend is one line on standard error and exit code 2."""
    try:
        code = app(standalone_mode=False)
    except GradveilError as error:
        _fail(str(error))
    except click.exceptions.NoArgsIsHelpError as error:
        error.show()
        sys.exit(2)
    except click.ClickException as error:
        _fail(error.format_message())
    except OSError as error:
        if error.filename is None:
            raise
        _fail(f"{error.filename}: {error.strerror}")
    except (click.exceptions.Abort, KeyboardInterrupt):
        _fail("stopped; run the same command again to go on", code=130)
    else:
        sys.exit(code if isinstance(code, int) else 0)


def _fail(message: str, code: int = 2) -> None:
    typer.echo(f"gradveil: {' '.join(message.split())}", err=True)
    sys.exit(code)
