"""The journal: what was intended, sent, confirmed, failed and skipped, each with its time.

Tables that only grow (`sql/migrations/003_cluster.sql`): a crash at any point leaves a journal that
says how far a plan got, and nothing that was once written is changed. `Journal` writes for one
plan; several actions that get further at once are one transaction.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Literal

import pyarrow as pa

from gogh_core.cluster.actions import Action
from gogh_core.cluster.statefile import state_from_dict, state_to_dict
from gogh_core.domain import ClusterState
from gogh_core.store import Store, append_rows, fetch, fetch_rows

__all__ = [
    "SETTLED",
    "ActionRecord",
    "ActionState",
    "Execution",
    "Journal",
    "basis_of",
    "disruptions",
    "executions",
]

ActionState = Literal["intended", "sent", "confirmed", "failed", "skipped"]
SETTLED: tuple[ActionState, ...] = ("confirmed", "failed", "skipped")
# States of a plan that is handed over without an action being sent.
_SHOWN = ("advised", "dry_run")

_TIME = pa.timestamp("us", tz="UTC")
_ACTIONS = pa.schema(
    {
        "plan_id": pa.string(),
        "action_id": pa.string(),
        "cycle_id": pa.string(),
        "ordinal": pa.int32(),
        "kind": pa.string(),
        "job_id": pa.string(),
        "server_id": pa.string(),
        "action_json": pa.string(),
    }
)
_ACTION_EVENTS = pa.schema(
    {
        "plan_id": pa.string(),
        "action_id": pa.string(),
        "state": pa.string(),
        "reason": pa.string(),
        "ts": _TIME,
        "seq": pa.int64(),
    }
)
_EXECUTION_EVENTS = pa.schema(
    {
        "plan_id": pa.string(),
        "cycle_id": pa.string(),
        "manager": pa.string(),
        "state": pa.string(),
        "detail": pa.string(),
        "ts": _TIME,
        "seq": pa.int64(),
    }
)
_BASES = pa.schema({"plan_id": pa.string(), "basis_json": pa.string(), "ts": _TIME})


@dataclass(frozen=True, slots=True)
class ActionRecord:
    """One action and how far it got."""

    action: Action
    state: ActionState
    reason: str = ""
    intended_at: datetime | None = None
    sent_at: datetime | None = None
    times_sent: int = 0
    settled_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class Execution:
    """The newest word about one plan."""

    plan_id: str
    cycle_id: str
    manager: str
    state: str
    detail: str
    begun_at: datetime
    changed_at: datetime


class Journal:
    """The journal of one plan."""

    def __init__(
        self,
        store: Store,
        plan_id: str,
        cycle_id: str,
        manager: str,
        clock: Callable[[], datetime],
    ) -> None:
        self._store = store
        self.plan_id = plan_id
        self._cycle_id = cycle_id
        self._manager = manager
        self._clock = clock
        with store.read() as connection:
            seq = fetch(connection, "cluster_last_seq", plan_id=plan_id)
            found = fetch_rows(connection, "cluster_execution", plan_id=plan_id)
            rows = fetch_rows(connection, "cluster_journal", plan_id=plan_id)
            newer = fetch(connection, "cluster_newer", plan_id=plan_id)["plan_id"].to_pylist()
        self._seq = int(seq["seq"][0].as_py())
        self.before = Execution(**found[0]) if found else None
        """The newest word about this plan before this process had one; None: there is none."""
        self.newer: str | None = newer[0] if newer else None
        """The plan that runs, where it is newer than this one."""
        self._records = {record.action.id: record for record in map(_record, rows)}
        self._unwritten: list[dict[str, Any]] = []

    def records(self) -> tuple[ActionRecord, ...]:
        """The plan's actions as they stand now, in their order."""
        return tuple(self._records.values())

    def begin(
        self,
        actions: Sequence[Action],
        skipped: Mapping[str, str],
        basis: ClusterState,
        *,
        abandoned: bool = False,
    ) -> None:
        """Write every action as intended (or skipped, with the reason): all of them or none.

        From here on the plan counts as handed over, unless it is abandoned.
        """
        now = self._clock()
        rows = [
            {
                "plan_id": self.plan_id,
                "action_id": action.id,
                "cycle_id": self._cycle_id,
                "ordinal": ordinal,
                "kind": str(action.kind),
                "job_id": action.job,
                "server_id": action.server,
                "action_json": action.to_json(),
            }
            for ordinal, action in enumerate(actions)
        ]
        events = [self._event(action.id, "intended", action.reason, now) for action in actions]
        events += [self._event(name, "skipped", why, now) for name, why in skipped.items()]
        state = [self._execution_event("running", "", now)]
        with self._store.write() as connection:
            if not abandoned:
                self._hand_over(connection, now)
            self._keep_basis(connection, basis, now)
            append_rows(connection, "actions", pa.Table.from_pylist(rows, _ACTIONS))
            append_rows(connection, "action_events", pa.Table.from_pylist(events, _ACTION_EVENTS))
            append_rows(
                connection, "execution_events", pa.Table.from_pylist(state, _EXECUTION_EVENTS)
            )
        self.before = None
        self._records = {action.id: ActionRecord(action, "intended") for action in actions}
        for event in events:
            self._follow(event)

    def note(self, steps: Iterable[tuple[str, ActionState, str]]) -> None:
        """Remember that actions got further; `write` and `mark` put it into the journal."""
        now = self._clock()
        for name, state, reason in steps:
            event = self._event(name, state, reason, now)
            self._unwritten.append(event)
            self._follow(event)

    def write(self) -> None:
        """Put what is remembered into the journal, in one transaction."""
        if self._unwritten:
            rows = pa.Table.from_pylist(self._unwritten, _ACTION_EVENTS)
            self._store.append("action_events", rows)
            self._unwritten = []

    def mark(self, state: str, detail: str = "", basis: ClusterState | None = None) -> None:
        """Write what became of the plan as a whole; the same word twice is written once."""
        before = self.before
        if before is not None and (before.state, before.detail) == (state, detail):
            self.write()
            return
        now = self._clock()
        rows = [self._execution_event(state, detail, now)]
        events = pa.Table.from_pylist(self._unwritten, _ACTION_EVENTS)
        with self._store.write() as connection:
            if state in _SHOWN:
                self._hand_over(connection, now)
            if basis is not None:
                self._keep_basis(connection, basis, now)
            append_rows(connection, "action_events", events)
            append_rows(
                connection, "execution_events", pa.Table.from_pylist(rows, _EXECUTION_EVENTS)
            )
        self._unwritten = []

    def _follow(self, event: Mapping[str, Any]) -> None:
        """What the journal's view will say once the event is written."""
        record = self._records[event["action_id"]]
        state, now = event["state"], event["ts"]
        self._records[event["action_id"]] = replace(
            record,
            state=state,
            reason=event["reason"],
            intended_at=record.intended_at or (now if state == "intended" else None),
            sent_at=record.sent_at or (now if state == "sent" else None),
            times_sent=record.times_sent + (state == "sent"),
            settled_at=now if state in SETTLED else record.settled_at,
        )

    def _event(self, name: str, state: str, reason: str, now: datetime) -> dict[str, Any]:
        self._seq += 1
        return {
            "plan_id": self.plan_id,
            "action_id": name,
            "state": state,
            "reason": reason,
            "ts": now,
            "seq": self._seq,
        }

    def _execution_event(self, state: str, detail: str, now: datetime) -> dict[str, Any]:
        self._seq += 1
        return {
            "plan_id": self.plan_id,
            "cycle_id": self._cycle_id,
            "manager": self._manager,
            "state": state,
            "detail": detail,
            "ts": now,
            "seq": self._seq,
        }

    def _keep_basis(self, connection: Any, basis: ClusterState, now: datetime) -> None:
        if fetch(connection, "cluster_basis", plan_id=self.plan_id).num_rows:
            return
        row = {
            "plan_id": self.plan_id,
            "basis_json": json.dumps(state_to_dict(basis), ensure_ascii=False),
            "ts": now,
        }
        append_rows(connection, "bases", pa.Table.from_pylist([row], _BASES))

    def _hand_over(self, connection: Any, now: datetime) -> None:
        """This plan runs from now on; older ones and the questions about them end here."""
        why = f"plan {self.plan_id} took its place"
        fetch(connection, "cluster_handed_over", plan_id=self.plan_id, now=now)
        fetch(
            connection,
            "cluster_supersede",
            plan_id=self.plan_id,
            handed_over=True,
            why=why,
            now=now,
        )


def _record(row: Mapping[str, Any]) -> ActionRecord:
    return ActionRecord(
        Action.from_json(row["action_json"]),
        row["state"],
        row["reason"],
        row["intended_at"],
        row["sent_at"],
        int(row["times_sent"]),
        row["settled_at"],
    )


def basis_of(store: Store, plan_id: str) -> ClusterState | None:
    """The state a plan was made for, where it was kept."""
    with store.read() as connection:
        rows = fetch(connection, "cluster_basis", plan_id=plan_id).to_pylist()
    return state_from_dict(json.loads(rows[0]["basis_json"])) if rows else None


def executions(store: Store, limit: int = 20) -> list[dict[str, Any]]:
    """What became of the plans that were tried, newest first."""
    with store.read() as connection:
        rows: list[dict[str, Any]] = fetch(
            connection, "cluster_executions", limit=limit
        ).to_pylist()
    return rows


def disruptions(store: Store, since: datetime) -> dict[str, int]:
    """How often plans moved or stopped each job since that moment; others are not listed."""
    with store.read() as connection:
        rows = fetch(connection, "cluster_disruptions", since=since).to_pylist()
    return {row["job_id"]: int(row["disruptions"]) for row in rows}
