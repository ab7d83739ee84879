"""A person's word about a plan, and the switch that stops everything.

Approvals only grow: a plan is asked about, and then approved, rejected, expired or superseded, with
who, when and why. The first answer counts: it is read and written in one transaction, so of two at
the same time one is refused and told who was first. A newer plan closes the questions about older
ones, when it asks itself or is handed over. The pause
switch is a file below `home`, so that it works while the database is busy and costs nothing to
look at before each action; who turned it, when and why is kept in the store as well.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Literal

import duckdb
import pyarrow as pa

from gogh_core.errors import InvalidInput
from gogh_core.settings import Settings
from gogh_core.store import Store, append_rows, fetch, fetch_rows

__all__ = [
    "Approval",
    "Pause",
    "approval_of",
    "ask_approval",
    "asked",
    "decide",
    "pause",
    "paused",
    "resume",
    "show_form",
]

Decision = Literal["asked", "approved", "rejected", "expired", "superseded"]

_TIME = pa.timestamp("us", tz="UTC")
_APPROVALS = pa.schema(
    {
        "plan_id": pa.string(),
        "decision": pa.string(),
        "who": pa.string(),
        "why": pa.string(),
        "ts": _TIME,
    }
)
_FORMS = pa.schema({"plan_id": pa.string(), "run_id": pa.string(), "ts": _TIME})
_PAUSES = pa.schema({"paused": pa.bool_(), "who": pa.string(), "why": pa.string(), "ts": _TIME})


@dataclass(frozen=True, slots=True)
class Approval:
    """The newest word about a plan's approval."""

    plan_id: str
    decision: Decision
    who: str
    why: str
    at: datetime

    def told(self) -> str:
        """Such as `approved by ann at 2026-01-05 09:00:00 UTC: quiet night`."""
        line = f"{self.decision} by {self.who} at {self.at:%Y-%m-%d %H:%M:%S} UTC"
        return f"{line}: {self.why}" if self.why else line


@dataclass(frozen=True, slots=True)
class Pause:
    """Who stopped everything, when and why."""

    who: str
    why: str
    at: str


def _write(connection: duckdb.DuckDBPyConnection, word: Approval) -> Approval:
    row = {
        "plan_id": word.plan_id,
        "decision": word.decision,
        "who": word.who,
        "why": word.why,
        "ts": word.at,
    }
    append_rows(connection, "approvals", pa.Table.from_pylist([row], _APPROVALS))
    return word


def _word(
    connection: duckdb.DuckDBPyConnection,
    plan_id: str,
    now: datetime | None = None,
    timeout_s: float | None = None,
) -> Approval | None:
    """The newest word about a plan; one whose time is over is expired, but that is not written."""
    rows = fetch(connection, "cluster_approvals", plan_id=plan_id).to_pylist()
    if not rows:
        return None
    asked_at = rows[0].pop("asked_at")
    word = Approval(**rows[0])
    if word.decision != "asked" or now is None or timeout_s is None:
        return word
    if now - asked_at <= timedelta(seconds=timeout_s):
        return word
    return Approval(plan_id, "expired", "gogh", f"nobody answered within {timeout_s:g} s", now)


def ask_approval(store: Store, plan_id: str, reasons: Sequence[str], now: datetime) -> Approval:
    """Ask for a person's word, instead of about older plans; asking again changes nothing."""
    with store.write() as connection:
        word = _word(connection, plan_id)
        if word is not None:
            return word
        why = f"plan {plan_id} asks in its place"
        fetch(connection, "cluster_supersede", plan_id=plan_id, handed_over=False, why=why, now=now)
        return _write(connection, Approval(plan_id, "asked", "gogh", "; ".join(reasons), now))


def approval_of(
    store: Store, plan_id: str, *, now: datetime | None = None, timeout_s: float | None = None
) -> Approval | None:
    """The newest word about a plan; a question not answered in time expires here."""
    with store.read() as connection:
        word = _word(connection, plan_id, now, timeout_s)
    if word is None or word.decision != "expired":
        return word
    with store.write() as connection:  # an answer may have come in between, or it was written
        word, before = _word(connection, plan_id, now, timeout_s), _word(connection, plan_id)
        if word is not None and word != before:
            _write(connection, word)
    return word


def asked(
    store: Store, *, now: datetime | None = None, timeout_s: float | None = None
) -> list[dict[str, Any]]:
    """Questions that wait for a person's word, about the newest plan first.

    With a time those whose own is over are left out. `run_id` names the run of the UI that has a
    form for it, where there is one.
    """
    since = None if now is None or timeout_s is None else now - timedelta(seconds=timeout_s)
    with store.read() as connection:
        return fetch_rows(connection, "cluster_asked", since=since)


def show_form(store: Store, plan_id: str, run_id: str, now: datetime) -> None:
    """Remember which run of the UI shows the form for this question."""
    row = {"plan_id": plan_id, "run_id": run_id, "ts": now}
    store.append("approval_forms", pa.Table.from_pylist([row], _FORMS))


def decide(
    store: Store,
    plan_id: str,
    *,
    approve: bool,
    who: str,
    why: str,
    now: datetime,
    timeout_s: float | None = None,
) -> Approval:
    """A person's word; the first one counts, whoever comes later is told whose it was."""
    with store.write() as connection:
        before, word = _word(connection, plan_id), _word(connection, plan_id, now, timeout_s)
        if word is not None and word.decision == "asked":
            decision: Decision = "approved" if approve else "rejected"
            return _write(connection, Approval(plan_id, decision, who, why, now))
        if word is not None and word != before:
            _write(connection, word)
    if word is None:
        raise InvalidInput(
            "no approval was asked for", where=f"plan {plan_id}", todo="`gogh plans` lists those"
        )
    raise InvalidInput(f"was already {word.told()}", where=f"plan {plan_id}")


def _switch(settings: Settings) -> Path:
    return settings.home / "paused.json"


def paused(settings: Settings) -> Pause | None:
    """Who stopped everything; None when nobody did. A switch that cannot be read counts as on."""
    try:
        raw = json.loads(_switch(settings).read_text(encoding="utf-8"))
        return Pause(str(raw["who"]), str(raw["why"]), str(raw["at"]))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError):
        return Pause("unknown", "the switch cannot be read", "unknown")


def pause(settings: Settings, store: Store | None, *, who: str, why: str, now: datetime) -> Pause:
    """Stop everything: no action is sent any more."""
    path = _switch(settings)
    path.parent.mkdir(parents=True, exist_ok=True)
    word = Pause(who, why, now.isoformat())
    fresh = path.with_suffix(f".{os.getpid()}.tmp")
    fresh.write_text(json.dumps({"who": who, "why": why, "at": word.at}), encoding="utf-8")
    os.replace(fresh, path)
    _keep(store, True, who, why, now)
    return word


def resume(settings: Settings, store: Store | None, *, who: str, why: str, now: datetime) -> bool:
    """Let actions go on; whether they were stopped."""
    was = paused(settings) is not None
    _switch(settings).unlink(missing_ok=True)
    if was:
        _keep(store, False, who, why, now)
    return was


def _keep(store: Store | None, state: bool, who: str, why: str, now: datetime) -> None:
    if store is not None and store.path.exists():
        row = {"paused": state, "who": who, "why": why, "ts": now}
        store.append("pauses", pa.Table.from_pylist([row], _PAUSES))
