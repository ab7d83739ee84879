"""Suites as files: one JSON file of Great Expectations for each table, read like code.

A file has `name`, `meta` and `expectations`; each expectation has `type`, `kwargs` and `meta` with
`level` (`refuse`: bad rows go to quarantine, more than `allowed_share` of them refuse the batch;
`warn`: recorded only) and `says`, the sentence people read. A fault names the file and the line.
Beside a suite of your own may lie `<table>.sql`, the query that computes its helper columns; the
ones that come with GOGH are `sql/steps/contracts_<table>.sql`.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

from gogh_core.errors import InvalidContract, InvalidInput
from gogh_core.settings import Settings
from gogh_core.store import statement

__all__ = ["Check", "Suite", "load_suite", "load_suites", "parse_suite"]

_LEVELS = ("warn", "refuse")
_ALLOWED_SHARE = 0.2
_ALLOWED_ROWS = 3


@dataclass(frozen=True, slots=True)
class Check:
    """One expectation of a suite and the line it begins on."""

    type: str
    kwargs: Mapping[str, Any]
    level: str
    allowed_share: float
    says: str
    line: int

    @property
    def column(self) -> str | None:
        """The column it is about, for people."""
        for key in ("column", "column_B", "column_A"):
            if key in self.kwargs:
                return str(self.kwargs[key])
        listed = self.kwargs.get("column_list")
        return ",".join(map(str, listed)) if listed else None

    @property
    def columns(self) -> tuple[str, ...]:
        """Every column it reads."""
        single = [self.kwargs[k] for k in ("column", "column_A", "column_B") if k in self.kwargs]
        return tuple(str(name) for name in (*single, *self.kwargs.get("column_list", ())))


@dataclass(frozen=True, slots=True)
class Suite:
    """The contract of one table."""

    table: str
    where: str
    checks: tuple[Check, ...]
    allowed_rows: int
    """So many bad rows never refuse a batch, however small it is."""
    helpers: str
    """The query of helper columns."""
    sha256: str


def _line(text: str, position: int) -> int:
    return text.count("\n", 0, position) + 1


def _entries(text: str, where: str) -> list[tuple[Any, int]]:
    """The items of the list `expectations` with the line each begins on."""
    decoder = json.JSONDecoder()
    key = text.find('"expectations"')
    at = text.find("[", key) + 1
    found: list[tuple[Any, int]] = []
    while True:
        while text[at] in " \t\r\n,":
            at += 1
        if text[at] == "]":
            return found
        entry, end = decoder.raw_decode(text, at)
        found.append((entry, _line(text, at)))
        at = end


def parse_suite(text: str, *, table: str, where: str, helpers: str) -> Suite:
    """A suite from its text; everything wrong with it is listed with its line."""
    try:
        raw = json.loads(text)
    except json.JSONDecodeError as error:
        raise InvalidContract([f"line {error.lineno}: {error.msg}"], where=where) from error
    if not isinstance(raw, dict) or not isinstance(raw.get("expectations"), list):
        raise InvalidContract(["line 1: it has no list `expectations`"], where=where)
    faults: list[str] = []
    if raw.get("name") != table:
        faults.append(f"line 1: name is {raw.get('name')!r}, not {table!r}")
    meta = raw.get("meta") or {}
    share = meta.get("allowed_share", _ALLOWED_SHARE)
    rows = meta.get("allowed_rows", _ALLOWED_ROWS)
    if not _is_share(share):
        faults.append(f"line 1: allowed_share is {share!r}, not between 0 and 1")
    if not isinstance(rows, int) or rows < 0:
        faults.append(f"line 1: allowed_rows is {rows!r}, not a whole number from 0")
    checks: list[Check] = []
    for entry, line in _entries(text, where):
        fault = _fault(entry)
        if fault:
            faults.append(f"line {line}: {fault}")
            continue
        own = entry.get("meta") or {}
        checks.append(
            Check(
                entry["type"],
                dict(entry.get("kwargs") or {}),
                own["level"],
                float(own.get("allowed_share", share if _is_share(share) else _ALLOWED_SHARE)),
                str(own["says"]),
                line,
            )
        )
    if faults:
        raise InvalidContract(faults, where=where)
    digest = hashlib.sha256((text + helpers).encode()).hexdigest()
    return Suite(table, where, tuple(checks), rows, helpers, digest)


def _is_share(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= 1


def _fault(entry: object) -> str | None:
    """What is wrong with one entry of `expectations`; None when nothing is."""
    if not isinstance(entry, dict):
        return "an expectation is no object"
    meta = entry.get("meta")
    meta = meta if isinstance(meta, dict) else {}
    says = meta.get("says")
    unknown = sorted(set(entry) - {"type", "kwargs", "meta", "id", "notes", "description"})
    share = meta.get("allowed_share", 0)
    rules = (
        (not unknown, f"{unknown[:1]} is no part of an expectation"),
        (
            isinstance(entry.get("type"), str) and entry["type"].startswith("expect_"),
            f"type is {entry.get('type')!r}, no expectation",
        ),
        (isinstance(entry.get("kwargs", {}), dict), "kwargs is no object"),
        (meta.get("level") in _LEVELS, f"meta.level is not one of {', '.join(_LEVELS)}"),
        (
            isinstance(says, str) and bool(says.strip()),
            "meta.says is missing: one sentence that people read",
        ),
        (_is_share(share), f"meta.allowed_share is {share!r}, not between 0 and 1"),
    )
    return next((fault for good, fault in rules if not good), None)


def _helpers(table: str, folder: Path | None) -> str:
    own = folder / f"{table}.sql" if folder else None
    if own is not None and own.exists():
        return own.read_text(encoding="utf-8")
    try:
        return statement(f"contracts_{table}")
    except InvalidInput:
        return statement("contracts_plain")


def load_suite(path: Path) -> Suite:
    """The suite of a file; the table is the file's name."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidContract([f"cannot be read: {error}"], where=str(path)) from error
    helpers = _helpers(path.stem, path.parent)
    return parse_suite(text, table=path.stem, where=str(path), helpers=helpers)


def load_suites(settings: Settings) -> dict[str, Suite]:
    """Every suite by table: those of the settings' folder instead of those that come with GOGH."""
    suites: dict[str, Suite] = {}
    for entry in sorted(resources.files("data_contracts").iterdir(), key=lambda item: item.name):
        if entry.name.endswith(".json"):
            table = entry.name.removesuffix(".json")
            suites[table] = parse_suite(
                entry.read_text(encoding="utf-8"),
                table=table,
                where=f"data_contracts/{entry.name}",
                helpers=_helpers(table, None),
            )
    folder = settings.contracts.directory
    if folder is not None:
        if not folder.is_dir():
            raise InvalidInput("contracts.directory is no folder", where=str(folder))
        for path in sorted(folder.glob("*.json")):
            suites[path.stem] = load_suite(path)
    return suites
