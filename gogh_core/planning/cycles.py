"""Which run plans which cycle: every cycle exactly once, the newest request wins.

A run asks for its turn (`take_turn`). What it gets:

- `mine`: it holds the cycle and plans, or goes on where a dead holder stopped (`plan_id` is set
  when that one had stored its plan already);
- `done`: the cycle has come to its end before; the run does nothing;
- `busy`: another living process is at this very cycle; the run does nothing;
- `superseded`: a newer request came while it waited.

The states of a cycle: queued → planning → planned → emitted; or waiting (for approval), rejected,
superseded, failed (may be run again), missed (nobody came in its window).
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Literal

import duckdb

from gogh_core.domain import Cycle
from gogh_core.errors import InvalidInput
from gogh_core.planning.claims import Holder, alive, wall
from gogh_core.planning.request import Request
from gogh_core.settings import Settings
from gogh_core.store import Store, fetch

__all__ = ["CycleLost", "Turn", "begin", "end_cycle", "keep", "list_cycles", "take_turn"]

_ENDED = ("emitted", "waiting", "rejected", "superseded")
_MAX_MISSED = 2000
"""After a very long pause only the newest windows are listed one by one."""
_POLL_S = 0.2


class CycleLost(Exception):
    """Somebody else has the cycle now: this run was taken for dead, or a newer request came."""


@dataclass(frozen=True, slots=True)
class Turn:
    """What a run got when it asked for its turn."""

    kind: Literal["mine", "done", "busy", "superseded"]
    cycle: Cycle
    token: str = ""
    plan_id: str | None = None
    state: str = "planning"


def take_turn(
    store: Store,
    settings: Settings,
    request: Request,
    *,
    cycle: Cycle | None,
    now: datetime,
    key: str = "",
    patience_s: float | None = None,
) -> Turn:
    """Claim the cycle and wait until it is this run's turn, at most `patience_s`."""
    with store.write() as connection:
        turn = _claim(connection, settings, request, cycle=cycle, now=now, key=key)
        go = begin(connection, settings, turn, now) if turn.kind == "mine" else turn
    if go is not None:
        return go
    if patience_s is None:
        patience_s = _timeout(settings) + settings.cycle.budget_s
    deadline = time.monotonic() + patience_s
    while time.monotonic() < deadline:
        time.sleep(_POLL_S)
        with store.write() as connection:
            go = begin(connection, settings, turn, now)
        if go is not None:
            return go
    with store.write() as connection:
        _end(connection, turn.cycle, "failed", f"no turn came in {patience_s:.0f} s", now)
    return Turn("busy", turn.cycle)


def begin(
    connection: duckdb.DuckDBPyConnection, settings: Settings, turn: Turn, now: datetime
) -> Turn | None:
    """Start if nobody else plans; None means wait."""
    _fence(connection, turn)
    older, newer = _others(connection, settings, turn)
    if newer:
        _end(connection, turn.cycle, "superseded", f"by the newer {newer[-1]['cycle_id']}", now)
        return Turn("superseded", turn.cycle)
    if any(row["lives"] and row["state"] != "queued" for row in older):
        fetch(connection, "planning_beat", **_beat(turn))
        return None
    for row in older:
        if not row["lives"]:
            detail = f"its process died; {turn.cycle.id} goes on"
            fetch(
                connection,
                "planning_set_state",
                cycle_id=row["cycle_id"],
                state="failed",
                detail=detail,
            )
    state = "planned" if turn.plan_id else "planning"
    fetch(connection, "planning_set_state", cycle_id=turn.cycle.id, state=state, detail=None)
    fetch(connection, "planning_beat", **_beat(turn))
    return Turn("mine", turn.cycle, turn.token, turn.plan_id, state)


def keep(connection: duckdb.DuckDBPyConnection, settings: Settings, turn: Turn) -> None:
    """A sign of life; raises CycleLost when the cycle is not this run's any more."""
    _fence(connection, turn)
    _, newer = _others(connection, settings, turn)
    if newer:
        raise CycleLost(f"superseded by the newer {newer[-1]['cycle_id']}")
    fetch(connection, "planning_beat", **_beat(turn))


def end_cycle(
    connection: duckdb.DuckDBPyConnection,
    cycle: Cycle,
    state: str,
    detail: str | None,
    now: datetime,
    *,
    degraded: Sequence[str] = (),
    seconds: Mapping[str, float] | None = None,
) -> None:
    """The cycle has come to an end, this way or that."""
    rounded = {name: round(value, 4) for name, value in (seconds or {}).items()}
    fetch(
        connection,
        "planning_end",
        cycle_id=cycle.id,
        state=state,
        detail=detail,
        degraded=json.dumps(list(degraded)),
        seconds=json.dumps(rounded),
        ended_at=now,
    )


def list_cycles(store: Store, *, rows: int = 20, missed: bool = False) -> list[dict[str, Any]]:
    """The newest cycles first; with `missed` only windows that nobody planned."""
    with store.read() as connection:
        return _rows(connection, "planning_list", rows=rows, missed=missed)


def _claim(
    connection: duckdb.DuckDBPyConnection,
    settings: Settings,
    request: Request,
    *,
    cycle: Cycle | None,
    now: datetime,
    key: str,
) -> Turn:
    before = _rows(connection, "planning_by_key", request_key=key) if key else []
    if before:
        cycle = Cycle(before[0]["window_start"], before[0]["revision"])
    else:
        cycle = _newest(connection, settings, request, cycle, now)
    found = _rows(connection, "planning_cycle", cycle_id=cycle.id)
    holder = Holder.me()
    claim = {"cycle_id": cycle.id, "heartbeat_at": wall(), **holder.columns()}
    if found:
        row = found[0]
        if row["state"] in _ENDED:
            return Turn("done", cycle, plan_id=row["plan_id"], state=row["state"])
        active = row["state"] in ("queued", "planning", "planned")
        if active and alive(row, _timeout(settings)):
            return Turn("busy", cycle, state=row["state"])
        if row["token"] is not None:
            fetch(connection, "planning_take_over", **claim)
            fetch(connection, "planning_set_state", cycle_id=cycle.id, state="queued", detail=None)
            return Turn("mine", cycle, holder.token, row["plan_id"])
    revisions = _rows(connection, "planning_revisions", window_start=cycle.window_start)
    later = [row for row in revisions if row["revision"] > cycle.revision]
    late = any(row["state"] in ("planned", "emitted", "waiting") for row in later)
    if not found:
        if request.scheduled and cycle.revision == 0:
            _record_missed(connection, settings, cycle, now)
        fetch(
            connection,
            "planning_insert_cycle",
            cycle_id=cycle.id,
            window_start=cycle.window_start,
            revision=cycle.revision,
            reason=request.reason,
            state="superseded" if late else "queued",
            begun_at=now,
        )
    fetch(connection, "planning_insert_claim", request_key=key, request=request.to_json(), **claim)
    if late:
        _end(connection, cycle, "superseded", "a newer revision was planned before it", now)
        return Turn("superseded", cycle)
    return Turn("mine", cycle, holder.token)


def _newest(
    connection: duckdb.DuckDBPyConnection,
    settings: Settings,
    request: Request,
    asked: Cycle | None,
    now: datetime,
) -> Cycle:
    """The cycle to plan: a late run takes the newest window, a replan the next revision of it."""
    current = Cycle.at(now, settings.cycle.window_s)
    if asked is not None and asked.window_start > current.window_start + timedelta(
        seconds=settings.cycle.window_s
    ):
        raise InvalidInput(
            f"window {asked.id} lies more than one window ahead of {now:%Y-%m-%dT%H:%M:%SZ}",
            todo="plan it when it comes",
        )
    if asked is not None and asked.window_start >= current.window_start:
        return asked
    if request.scheduled:
        return current
    revisions = _rows(connection, "planning_revisions", window_start=current.window_start)
    return Cycle(current.window_start, revisions[0]["revision"] + 1 if revisions else 1)


def _record_missed(
    connection: duckdb.DuckDBPyConnection, settings: Settings, cycle: Cycle, now: datetime
) -> None:
    found = _rows(connection, "planning_last_scheduled", window_start=cycle.window_start)
    last = found[0]["window_start"]
    if last is None:
        return
    step = timedelta(seconds=settings.cycle.window_s)
    passed = Cycle.at(cycle.window_start - step, settings.cycle.window_s)
    for _ in range(_MAX_MISSED):
        if passed.window_start <= last:
            return
        fetch(
            connection,
            "planning_insert_missed",
            cycle_id=passed.id,
            window_start=passed.window_start,
            detail=f"no run began in this window; {cycle.id} came next",
            now=now,
        )
        passed = Cycle.at(passed.window_start - step, settings.cycle.window_s)


def _fence(connection: duckdb.DuckDBPyConnection, turn: Turn) -> None:
    found = _rows(connection, "planning_cycle", cycle_id=turn.cycle.id)
    if not found or found[0]["token"] != turn.token:
        raise CycleLost(f"{turn.cycle.id} was taken over by another process")


def _end(
    connection: duckdb.DuckDBPyConnection, cycle: Cycle, state: str, detail: str, now: datetime
) -> None:
    end_cycle(connection, cycle, state, detail, now)


def _timeout(settings: Settings) -> float:
    return 2 * settings.cycle.budget_s


def _beat(turn: Turn) -> dict[str, Any]:
    return {"cycle_id": turn.cycle.id, "token": turn.token, "heartbeat_at": wall()}


def _others(
    connection: duckdb.DuckDBPyConnection, settings: Settings, turn: Turn
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Cycles that are under way: older ones, with whether they live, and newer ones that live."""
    mine = (turn.cycle.window_start, turn.cycle.revision)
    older, newer = [], []
    for row in _rows(connection, "planning_active"):
        row["lives"] = alive(row, _timeout(settings))
        if (row["window_start"], row["revision"]) < mine:
            older.append(row)
        elif row["cycle_id"] != turn.cycle.id and row["lives"]:
            newer.append(row)
    return older, newer


def _rows(
    connection: duckdb.DuckDBPyConnection, name: str, **parameters: Any
) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = fetch(connection, name, **parameters).to_pylist()
    return found
