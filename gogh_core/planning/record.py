"""A plan in the store: itself, its placements, moves, switches, waiting jobs and estimates.

Everything of one plan is written in one transaction, together with the cycle's new state; a run
that lost its cycle writes nothing.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.compute as pc

from gogh_core.allocation import Problem
from gogh_core.domain import Plan
from gogh_core.errors import StoreError
from gogh_core.planning.cycles import Turn, keep
from gogh_core.planning.expected import placement_rates
from gogh_core.planning.problem import Draft
from gogh_core.planning.ways import Rate
from gogh_core.settings import Settings
from gogh_core.store import Store, append_rows, fetch

__all__ = ["last_plan", "load_plan", "store_plan"]

_TIME = pa.timestamp("us", tz="UTC")


def store_plan(
    store: Store,
    settings: Settings,
    turn: Turn,
    plan: Plan,
    *,
    draft: Draft,
    options: pa.Table,
    version: str,
    now: datetime,
) -> None:
    """Store the plan and say that the cycle is planned; CycleLost when it is not ours any more."""
    problem = draft.problem
    tables = {
        "plans": _plan_row(plan, turn.cycle.id, now),
        "placements": _placements(plan, draft.promised, placement_rates(options, problem, plan)),
        "moves": _moves(plan),
        "waiting": _waiting(plan),
        "power_actions": _power_actions(plan),
        "estimates": _stamped(
            _estimates(plan, problem, options),
            cycle_id=turn.cycle.id,
            model_version=version,
            estimated_at=now,
        ),
    }
    with store.write() as connection:
        keep(connection, settings, turn)
        for name, rows in tables.items():
            if rows.num_rows:
                append_rows(connection, name, rows)
        cycle_id = turn.cycle.id
        fetch(connection, "planning_set_plan", cycle_id=cycle_id, plan_id=plan.id)
        fetch(connection, "planning_set_state", cycle_id=cycle_id, state="planned", detail=None)


def load_plan(store: Store, plan_id: str) -> Plan:
    """A stored plan."""
    with store.read() as connection:
        rows = fetch(connection, "planning_plan", plan_id=plan_id).to_pylist()
    if not rows:
        raise StoreError("is not in the store", where=f"plan {plan_id}")
    return Plan.from_dict(json.loads(rows[0]["plan_json"]), where=f"plan {plan_id}")


def last_plan(connection: duckdb.DuckDBPyConnection) -> Plan | None:
    """The newest plan that was handed over; None before the first."""
    rows = fetch(connection, "planning_last_plan").to_pylist()
    return Plan.from_dict(json.loads(rows[0]["plan_json"])) if rows else None


def _rows(rows: list[dict[str, Any]], **columns: pa.DataType) -> pa.Table:
    return pa.Table.from_pylist(rows, schema=pa.schema(columns))


def _plan_row(plan: Plan, cycle_id: str, now: datetime) -> pa.Table:
    row = {
        "plan_id": plan.id,
        "cycle_id": cycle_id,
        "status": plan.status,
        "solver": plan.solver,
        "solve_s": plan.solve_s,
        "cost_w": plan.cost_w,
        "bound_w": plan.bound_w,
        "gap": plan.gap,
        "power_w": plan.spent.get("power_w"),
        "running": len({placement.job for placement in plan.placements}),
        "waiting": len(plan.waiting),
        "plan_json": plan.to_json(),
        "problem_sha256": plan.versions.get("problem_sha256"),
        "created_at": now,
    }
    text, number, whole = pa.string(), pa.float64(), pa.int32()
    kinds = [text, text, text, text, number, number, number, number, number, whole, whole, text]
    kinds += [text, _TIME]
    return pa.Table.from_pylist([row], schema=pa.schema(list(zip(row, kinds, strict=True))))


def _placements(plan: Plan, promised: Mapping[str, float], rates: Sequence[Rate]) -> pa.Table:
    return _rows(
        [
            {
                "plan_id": plan.id,
                "job_id": placement.job,
                "server_id": slot.server,
                "gpus": list(slot.gpus),
                "partner_job_id": placement.partner,
                "throughput": placement.throughput,
                "required_throughput": promised.get(placement.job, 0.0),
                "power_limit_w": placement.power_limit_w,
                "expected": rate.mean,
                "expected_low": rate.low,
                "expected_high": rate.high,
            }
            for placement, rate in zip(plan.placements, rates, strict=True)
            for slot in placement.slots
        ],
        plan_id=pa.string(),
        job_id=pa.string(),
        server_id=pa.string(),
        gpus=pa.list_(pa.int32()),
        partner_job_id=pa.string(),
        throughput=pa.float64(),
        required_throughput=pa.float64(),
        power_limit_w=pa.float64(),
        expected=pa.float64(),
        expected_low=pa.float64(),
        expected_high=pa.float64(),
    )


def _moves(plan: Plan) -> pa.Table:
    def text(slots: Any) -> str:
        return json.dumps([slot.to_dict() for slot in slots])

    rows = [
        {
            "step": move.step,
            "job_id": move.job,
            "kind": "move",
            "from_slots": text(move.source),
            "to_slots": text(move.target),
            "reason": move.reason,
        }
        for move in plan.moves
    ]
    rows += [
        {
            "step": stop.step,
            "job_id": stop.job,
            "kind": "stop",
            "from_slots": text(stop.source),
            "to_slots": None,
            "reason": stop.reason,
        }
        for stop in plan.stops
    ]
    return _rows(
        [{"plan_id": plan.id, **row} for row in rows],
        plan_id=pa.string(),
        step=pa.int32(),
        job_id=pa.string(),
        kind=pa.string(),
        from_slots=pa.string(),
        to_slots=pa.string(),
        reason=pa.string(),
    )


def _waiting(plan: Plan) -> pa.Table:
    return _rows(
        [{"plan_id": plan.id, "job_id": w.job, "reason": w.reason} for w in plan.waiting],
        plan_id=pa.string(),
        job_id=pa.string(),
        reason=pa.string(),
    )


def _power_actions(plan: Plan) -> pa.Table:
    rows: list[dict[str, Any]] = [
        {"server_id": switch.id, "action": switch.action} for switch in plan.servers
    ]
    limits = {
        (slot.server, gpu): placement.power_limit_w
        for placement in plan.placements
        if placement.power_limit_w is not None
        for slot in placement.slots
        for gpu in slot.gpus
    }
    rows += [
        {"server_id": server, "gpu_index": gpu, "action": "limit", "watts": watts}
        for (server, gpu), watts in sorted(limits.items())
    ]
    return _rows(
        [{"plan_id": plan.id, "gpu_index": None, "watts": None, **row} for row in rows],
        plan_id=pa.string(),
        server_id=pa.string(),
        gpu_index=pa.int32(),
        action=pa.string(),
        watts=pa.float64(),
    )


def _estimates(plan: Plan, problem: Problem, options: pa.Table) -> list[dict[str, Any]]:
    """Of every class alone, and of the pairs that were chosen: what can be compared afterwards."""
    chosen = set()
    for placement in plan.placements:
        if placement.partner is not None:
            mine = problem.job_of[placement.job].job_class
            theirs = problem.job_of[placement.partner].job_class
            kind = problem.server_of[placement.slots[0].server].gpu_type
            chosen.add((kind, mine, theirs))
    usual = pc.is_null(options["power_limit_w"])
    alone = options.filter(pc.and_(usual, pc.is_null(options["class_b"]))).to_pylist()
    rows = [_estimate(row, "a") for row in alone]
    if chosen:
        for row in options.filter(pc.and_(usual, pc.is_valid(options["class_b"]))).to_pylist():
            if (row["gpu_type"], row["class_a"], row["class_b"]) in chosen:
                rows.append(_estimate(row, "a"))
            same = row["class_a"] == row["class_b"]
            if not same and (row["gpu_type"], row["class_b"], row["class_a"]) in chosen:
                rows.append(_estimate(row, "b"))
    return rows


def _stamped(rows: list[dict[str, Any]], **stamps: Any) -> pa.Table:
    return _rows(
        [{**row, **stamps} for row in rows],
        cycle_id=pa.string(),
        job_class=pa.string(),
        gpu_type=pa.string(),
        gpus=pa.int32(),
        partner_class=pa.string(),
        mean=pa.float64(),
        low=pa.float64(),
        high=pa.float64(),
        power_w=pa.float64(),
        feasible_probability=pa.float64(),
        network=pa.string(),
        model_version=pa.string(),
        estimated_at=_TIME,
    )


def _estimate(row: dict[str, Any], side: str) -> dict[str, Any]:
    other = "b" if side == "a" else "a"
    mean, low = row[f"mean_{side}"], row[f"throughput_{side}"]
    return {
        "job_class": row[f"class_{side}"],
        "gpu_type": row["gpu_type"],
        "gpus": row["gpus"],
        "partner_class": row[f"class_{other}"],
        "mean": mean,
        "low": low,
        # Intervals are symmetric in logarithms.
        "high": mean * mean / low if low > 0 else mean,
        "power_w": row["power_w"],
        "feasible_probability": row["feasible_probability"],
        "network": row["network"],
    }
