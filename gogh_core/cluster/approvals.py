"""A person's word about a plan, and the switch that stops everything.

Approvals only grow: asked, approved, rejected, expired, each with who, when and why. The pause
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

import pyarrow as pa

from gogh_core.errors import InvalidInput
from gogh_core.settings import Settings
from gogh_core.store import Store, fetch

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
]

Decision = Literal["asked", "approved", "rejected", "expired"]

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
_PAUSES = pa.schema({"paused": pa.bool_(), "who": pa.string(), "why": pa.string(), "ts": _TIME})


@dataclass(frozen=True, slots=True)
class Approval:
    """The newest word about a plan's approval."""

    plan_id: str
    decision: Decision
    who: str
    why: str
    at: datetime


@dataclass(frozen=True, slots=True)
class Pause:
    """Who stopped everything, when and why."""

    who: str
    why: str
    at: str


def _write(store: Store, word: Approval) -> Approval:
    row = {
        "plan_id": word.plan_id,
        "decision": word.decision,
        "who": word.who,
        "why": word.why,
        "ts": word.at,
    }
    store.append("approvals", pa.Table.from_pylist([row], _APPROVALS))
    return word


def ask_approval(store: Store, plan_id: str, reasons: Sequence[str], now: datetime) -> Approval:
    """Ask for a person's word; asking again changes nothing."""
    word = approval_of(store, plan_id)
    if word is not None:
        return word
    return _write(store, Approval(plan_id, "asked", "gogh", "; ".join(reasons), now))


def approval_of(
    store: Store, plan_id: str, *, now: datetime | None = None, timeout_s: float | None = None
) -> Approval | None:
    """The newest word about a plan; a question not answered in time expires here."""
    with store.read() as connection:
        rows = fetch(connection, "cluster_approvals", plan_id=plan_id).to_pylist()
    if not rows:
        return None
    first, last = rows[0], rows[-1]
    is_open = last["decision"] == "asked"
    if (
        is_open
        and now is not None
        and timeout_s is not None
        and now - first["ts"] > timedelta(seconds=timeout_s)
    ):
        why = f"nobody answered within {timeout_s:g} s"
        return _write(store, Approval(plan_id, "expired", "gogh", why, now))
    return Approval(last["plan_id"], last["decision"], last["who"], last["why"], last["ts"])


def asked(store: Store) -> list[dict[str, Any]]:
    """Plans that wait for a person's word, newest first."""
    with store.read() as connection:
        rows: list[dict[str, Any]] = fetch(connection, "cluster_asked").to_pylist()
    return rows


def decide(
    store: Store, plan_id: str, *, approve: bool, who: str, why: str, now: datetime
) -> Approval:
    """A person's word; a plan that was decided before is not decided again."""
    before = approval_of(store, plan_id)
    if before is None:
        raise InvalidInput(
            "no approval was asked for", where=f"plan {plan_id}", todo="`gogh plans` lists those"
        )
    if before.decision != "asked":
        raise InvalidInput(
            f"was {before.decision} already, by {before.who} at {before.at:%Y-%m-%d %H:%M:%S} UTC",
            where=f"plan {plan_id}",
        )
    decision: Decision = "approved" if approve else "rejected"
    return _write(store, Approval(plan_id, decision, who, why, now))


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
