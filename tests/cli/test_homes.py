"""A home that cannot be made or written: every command says so in one line.

The commands come from the command line itself, so that a new one is covered on the day it comes.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

from gogh_core.cli import app, main

NEEDS_NO_HOME = {
    ("down",): "nothing runs there, which is what it says",
    ("query",): "without a name it lists the queries",
    ("settings",): "shows what is set",
    ("contracts", "list"): "shows what comes with GOGH",
    ("models", "list"): "shows what comes with GOGH, and what is below home where there is any",
}
OTHERWISE = {
    ("sql",): ("SELECT 1",),
    ("watch",): ("--once",),
    ("agent",): ("--samples", "1"),
    ("demo",): ("--home", "{home}"),
}


def commands(command: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Every command with a `1` for each thing it must be told."""
    if hasattr(command, "list_commands"):
        for name in command.list_commands(None):
            # Benchmarks make a home of their own in a temporary folder.
            if name != "bench":
                yield from commands(command.get_command(None, name), (*path, name))
        return
    asked = [parameter for parameter in command.params if parameter.required]
    # 1 is a name, a number and a file that is not there: what is judged is the home.
    words = [("1",) if p.param_type_name == "argument" else (p.opts[0], "1") for p in asked]
    yield (*path, *(word for pair in words for word in pair), *OTHERWISE.get(path, ()))


COMMANDS = list(commands(typer.main.get_command(app)))


@pytest.fixture(params=["{tmp}/file", "{tmp}/file/home", "/proc/gogh", "/sys/kernel"])
def home(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A file, below a file, where nothing can be made, and a folder nobody may write to."""
    (tmp_path / "file").write_text("mine")
    return Path(request.param.format(tmp=tmp_path))


def test_the_list_of_commands_is_whole() -> None:
    assert len(COMMANDS) > 30
    assert {("status",), ("up",), ("watch", "--once")} <= set(COMMANDS)
    assert set(NEEDS_NO_HOME) <= set(COMMANDS)


def test_every_command_says_it_in_one_line(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("GOGH_HOME", str(home))
    monkeypatch.chdir(tmp_path)
    wrong = []
    for command in COMMANDS:
        words = [word.format(home=home) for word in command]
        monkeypatch.setattr(sys, "argv", ["gogh", *words])
        try:
            main()
            code: Any = 0
        except SystemExit as ended:
            code = ended.code
        except OSError as error:  # a traceback, which is what nobody should see
            code = f"{type(error).__name__}: {error}"
        said = capsys.readouterr().err.strip()
        if command in NEEDS_NO_HOME:
            fine = code == 0
        else:
            fine = code in (1, 2) and said.startswith("gogh: ") and "\n" not in said
        if not fine:
            wrong.append((command, code, said))
    assert wrong == []
