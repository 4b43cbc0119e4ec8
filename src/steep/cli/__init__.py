"""The `steep` command. A subcommand is a function in a file of this folder, and a line in `COMMANDS`.

`main` turns every `SteepError` into one line with the fix and exit code 2, and Ctrl-C into 130, so a command only
parses, calls and prints.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Sequence
from functools import partial
from typing import Annotated, Any

import typer

from steep.cli import analyze, bench, catalog, compare, corrupt, data, demo, info, predict, report, train
from steep.cli.memory import keep_freed_memory
from steep.cli.output import console
from steep.errors import SteepError, SteepWarning
from steep.version import __version__

COMMANDS = (
    *(analyze.analyze, bench.bench, compare.compare, corrupt.corrupt, demo.demo, info.info, predict.predict),
    *(report.report, train.train),
    *(catalog.methods, catalog.models, catalog.recipes),
)

app = typer.Typer(
    name="steep",
    help="A trained image classifier keeps working when its data drifts.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,  # main() decides what an error looks like
    context_settings={"help_option_names": ["-h", "--help"]},
)

for _command in COMMANDS:
    app.command()(_command)
app.add_typer(data.data, name="data")


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"steep {__version__}")
        raise typer.Exit


@app.callback()
def _steep(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Show the version and exit.")
    ] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show the whole trace of an error.")] = False,
) -> None:
    """A trained image classifier keeps working when its data drifts."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code: 0, 2 for a wrong call or wrong data, 130 for Ctrl-C."""
    keep_freed_memory()
    with warnings.catch_warnings():
        warnings.showwarning = partial(_show_warning, warnings.showwarning)
        return _run(list(sys.argv[1:] if arguments is None else arguments))


def _run(words: list[str]) -> int:
    debug = "--debug" in words  # anywhere, since it is typed behind a command that has just failed
    try:
        app(args=[word for word in words if word != "--debug"], prog_name="steep")
    except SystemExit as error:
        if _was_interrupted(error):  # older typer says 1
            return 130
        return error.code if isinstance(error.code, int) else 0 if error.code is None else 1
    except KeyboardInterrupt:
        return 130
    except SteepError as error:
        if debug:
            raise
        console().print(f"error: {error}", style="red")
        return 2
    return 0


def _show_warning(
    show_others: Callable[..., None], message: Warning | str, category: type[Warning], *rest: Any, **options: Any
) -> None:
    """Print a warning of steep as one line, every other as Python does."""
    if issubclass(category, SteepWarning):
        console().print(f"warning: {message}", style="yellow")
    else:
        show_others(message, category, *rest, **options)


def _was_interrupted(error: BaseException | None) -> bool:
    while error is not None:
        if isinstance(error, KeyboardInterrupt):
            return True
        error = error.__cause__ or error.__context__
    return False
