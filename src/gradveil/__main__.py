"""`python -m gradveil` is `gradveil`."""

from gradveil.stopping import Stopping


def main() -> None:
    """Run the command line; signals are heard before anything that takes long to import."""
    stopping = Stopping()
    from gradveil.cli import main as run

    run(stopping)


if __name__ == "__main__":
    main()
