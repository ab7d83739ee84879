"""A command line that cannot be read is told in one line."""

from __future__ import annotations

import sys

import pytest

from gogh_core.cli import main


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["frob"], "No such command 'frob'; see `gogh --help`"),
        (["cap"], "Missing argument 'watts'; see `gogh cap --help`"),
        (["cap", "9000", "--frob"], "No such option: --frob"),
        (["cap", "many"], "Invalid value for 'watts'"),
        (["bench", "frob"], "No such command 'frob'; see `gogh bench --help`"),
    ],
)
def test_what_is_wrong_with_a_command_line_is_one_line(
    words: list[str],
    said: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(sys, "argv", ["gogh", *words])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2
    printed = capsys.readouterr().err.strip()
    assert printed.startswith("gogh: " + said)
    assert "\n" not in printed
