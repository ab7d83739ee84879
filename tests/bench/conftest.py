"""The command as a user runs it."""

from __future__ import annotations

import sys
from collections.abc import Callable

import pytest

from gogh_core.cli import main


@pytest.fixture
def gogh(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., tuple[int, str, str]]:
    """Runs the command; gives (exit code, what it printed, what it complained)."""

    def run(*arguments: object) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["gogh", *map(str, arguments)])
        try:
            main()
            code = 0
        except SystemExit as left:
            code = int(left.code or 0)
        printed = capsys.readouterr()
        return code, printed.out, printed.err

    return run
