"""Pages name commands that exist; the README's own are run by `tests/e2e/test_readme.py`."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import typer

from gogh_core.cli import app
from tests.conftest import PROJECT

PAGES = [PROJECT / "README.md", PROJECT / "CONTRIBUTING.md", *sorted(PROJECT.glob("docs/*.md"))]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_command_a_page_names_is_there(page: Path) -> None:
    known = set(typer.main.get_command(app).list_commands(None))  # type: ignore[attr-defined,arg-type]
    named = set(re.findall(r"(?:^|`|&& )gogh ([a-z][a-z-]*)", page.read_text(), re.MULTILINE))
    assert named - known == set()
