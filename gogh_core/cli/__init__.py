"""The `gogh` command: each room brings its commands in a module of its own.

`main` is the only entry: it loads the modules, runs the command, and turns every error of ours,
a command line that cannot be read, and what the file system refuses, into one line on standard
error (exit 2 for bad input, 1 for the rest).
"""

from __future__ import annotations

import errno
import importlib
import importlib.util
import os
import sys
from typing import Any

import typer

from gogh_core import __version__
from gogh_core.errors import GoghError, InvalidInput
from gogh_core.settings import keep_private

__all__ = ["app", "main"]

# In the order of `gogh --help`. Each has `register(app)`.
_MODULES = (
    "demo",
    "stack",
    "watching",
    "cycle",
    "orders",
    "data",
    "telemetry",
    "contracts",
    "quarantine",
    "estimation",
    "allocation",
    "status",
    "cluster",
    "simulation",
    "bench",
    "about",
)


def _version(value: bool) -> None:
    if value:
        typer.echo(__version__)
        raise typer.Exit


app = typer.Typer(
    name="gogh",
    help="Plans which job runs on which GPU of a mixed-generation cluster, for the least energy.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


@app.callback()
def _root(
    _: bool = typer.Option(False, "--version", callback=_version, is_eager=True, help="Version."),
) -> None:
    """Plans which job runs on which GPU of a mixed-generation cluster, for the least energy."""


def _register() -> None:
    for name in _MODULES:
        module = f"gogh_core.cli.{name}"
        if importlib.util.find_spec(module) is not None:
            importlib.import_module(module).register(app)


_register()


def main() -> None:
    """Run the command line; every error of ours becomes one line."""
    keep_private()
    try:
        code = app(prog_name="gogh", standalone_mode=False)
    except typer.TyperException as error:
        if error.format_message():  # else Typer has just printed the help that was asked for
            print(f"gogh: {_in_one_line(error)}", file=sys.stderr)
        sys.exit(2)
    except typer.Abort:
        print("gogh: aborted", file=sys.stderr)
        sys.exit(1)
    except InvalidInput as error:
        print(f"gogh: {error}", file=sys.stderr)
        sys.exit(2)
    except GoghError as error:
        print(f"gogh: {error}", file=sys.stderr)
        sys.exit(1)
    except KeyboardInterrupt:
        _end_interrupted()
    except RuntimeError as error:
        # DuckDB's word for Ctrl-C within a query.
        if str(error) != "Query interrupted":
            raise
        _end_interrupted()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            print("gogh: the disk is full; make room and run it again", file=sys.stderr)
            sys.exit(1)
        if error.filename is None:
            raise
        todo = "may you write there? `home` (GOGH_HOME) names the folder of all that GOGH keeps"
        print(f"gogh: {error.filename}: {error.strerror}; {todo}", file=sys.stderr)
        sys.exit(1)
    sys.exit(code if isinstance(code, int) else 0)


def _in_one_line(error: Any) -> str:
    """What a command line did wrong, and which help to read."""
    command = error.ctx.command_path if getattr(error, "ctx", None) else "gogh"
    what = " ".join(error.format_message().split()).rstrip(".")
    return f"{what}; see `{command} --help`"


def _end_interrupted() -> None:
    print("gogh: interrupted", file=sys.stderr)
    sys.exit(130)
