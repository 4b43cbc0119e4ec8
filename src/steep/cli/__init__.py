"""The `steep` command: one file per subcommand, each with a `register(app)`.

To add one, write `steep/cli/<name>.py` and put its name into `COMMANDS`. `main` turns every `SteepError` into one line
with the fix and exit code 2, and Ctrl-C into 130, so a command only parses, calls and prints.
"""

from __future__ import annotations

import importlib
import sys
import warnings
from collections.abc import Callable, Sequence
from typing import Annotated, Any

import typer

from steep.errors import SteepError, SteepWarning

COMMANDS = (
    "analyze",
    "bench",
    "catalog",
    "corrupt",
    "data",
    "demo",
    "info",
    "predict",
    "report",
    "train",
)

app = typer.Typer(
    name="steep",
    help="A trained image classifier keeps working when its data drifts.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,  # main() decides what an error looks like
    context_settings={"help_option_names": ["-h", "--help"]},
)

for _name in COMMANDS:
    importlib.import_module(f"steep.cli.{_name}").register(app)


def _version(asked: bool) -> None:
    if asked:
        import steep

        typer.echo(f"steep {steep.__version__}")
        raise typer.Exit


@app.callback()
def _steep(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version and exit.")
    ] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show the whole trace of an error.")] = False,
) -> None:
    """A trained image classifier keeps working when its data drifts."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code: 0, 2 for a wrong call or wrong data, 130 for Ctrl-C."""
    with warnings.catch_warnings():
        warnings.showwarning = _warned(warnings.showwarning)
        return _run(list(sys.argv[1:] if arguments is None else arguments))


def _run(given: list[str]) -> int:
    debug = "--debug" in given  # anywhere, since it is typed behind a command that has just failed
    try:
        app(args=[word for word in given if word != "--debug"], prog_name="steep")
    except SystemExit as error:
        if _interrupted(error):  # older typer says 1
            return 130
        return error.code if isinstance(error.code, int) else 0 if error.code is None else 1
    except KeyboardInterrupt:
        return 130
    except SteepError as error:
        if debug:
            raise
        from rich.console import Console

        Console(stderr=True, soft_wrap=True, highlight=False, emoji=False).print(
            f"error: {error}", style="red", markup=False
        )
        return 2
    return 0


def _warned(usual: Callable[..., None]) -> Callable[..., None]:
    """Print steep's own warnings as one line, all others as Python does."""

    def show(message: Warning | str, category: type[Warning], *rest: Any, **options: Any) -> None:
        if not issubclass(category, SteepWarning):
            usual(message, category, *rest, **options)
            return
        from rich.console import Console

        Console(stderr=True, soft_wrap=True, highlight=False, emoji=False).print(
            f"warning: {message}", style="yellow", markup=False
        )

    return show


def _interrupted(error: BaseException | None) -> bool:
    while error is not None:
        if isinstance(error, KeyboardInterrupt):
            return True
        error = error.__cause__ or error.__context__
    return False
