"""docs/security.md names tests: each of them is there, and runs."""

from __future__ import annotations

import re
from pathlib import Path

PROJECT = Path(__file__).resolve().parent.parent
PAGE = (PROJECT / "docs" / "security.md").read_text(encoding="utf-8")


def test_every_test_that_the_page_names_is_there() -> None:
    files = sorted((PROJECT / "tests").rglob("*.py"))
    there = {n for f in files for n in re.findall(r"def (test_\w+)\(", f.read_text("utf-8"))}
    named = set(re.findall(r"`(test_\w+)`", PAGE))
    assert len(named) > 60
    assert named - there == set()


def test_every_file_and_room_that_the_page_names_is_there() -> None:
    paths = set(re.findall(r"`((?:tests|gogh_core)/[\w./]+)`", PAGE))
    assert len(paths) > 10
    assert [path for path in sorted(paths) if not (PROJECT / path).exists()] == []


def test_each_boundary_says_what_shows_it() -> None:
    sections = re.split(r"(?m)^## ", PAGE)[1:]
    silent = [s.splitlines()[0] for s in sections if "test" not in s]
    assert silent == []
