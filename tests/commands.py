"""The command line in processes of its own that can be killed."""

import multiprocessing
import os
import sys
from contextlib import redirect_stderr, redirect_stdout
from multiprocessing.context import ForkServerProcess
from pathlib import Path

# Imports take seconds; processes forked from one that has done them need none.
FORKED = multiprocessing.get_context("forkserver")
FORKED.set_forkserver_preload(["gradveil.cli", "gradveil.training", "gradveil.federated", "torch._dynamo"])


def start_command(*arguments: str) -> ForkServerProcess:
    """`gradveil` with these arguments, at work in the background and silent."""
    process = FORKED.Process(target=_run, args=(arguments,))
    process.start()
    return process


def _run(arguments: tuple[str, ...]) -> None:
    import torch

    from gradveil.cli import main

    torch.set_num_threads(1)
    sys.argv = ["gradveil", *arguments]
    with Path(os.devnull).open("w") as nowhere, redirect_stdout(nowhere), redirect_stderr(nowhere):
        main()
