"""One cycle, from its turn to its end: `run_cycle`.

The body reads as the corridor does; what each step does is in `steps`, who may run is in `cycles`.
Where a run dies, the next run of the same cycle goes on: before the plan is stored everything is
made again from the same data, afterwards the stored plan is carried out, and the cluster's own
journal sees to it that nothing is sent twice.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, TypeVar

import duckdb

from gogh_core.cluster import ClusterManager, basis_of, require_password
from gogh_core.domain import ClusterState, Cycle, Plan
from gogh_core.errors import GoghError, StoreError
from gogh_core.planning.aims import aim_of
from gogh_core.planning.alone import disturbed_enough
from gogh_core.planning.budget import Budget
from gogh_core.planning.cycles import CycleLost, Turn, end_cycle, keep, take_turn
from gogh_core.planning.diff import PlanDiff, limits_now, plan_diff
from gogh_core.planning.emit import emit_step, left_out
from gogh_core.planning.expected import expected_rates
from gogh_core.planning.files import keep_files
from gogh_core.planning.orders import Order, give, list_orders, wishes
from gogh_core.planning.record import load_plan, store_plan
from gogh_core.planning.report import CycleReport, Outcome
from gogh_core.planning.request import Request
from gogh_core.planning.steps import (
    Allocated,
    Estimated,
    Ingested,
    allocate_step,
    estimate_step,
    ingest_step,
    read_state,
    record_step,
    retrain_step,
)
from gogh_core.planning.watts import planned_w
from gogh_core.settings import Settings
from gogh_core.store import Store, fetch

T = TypeVar("T")

__all__ = ["clock_of", "run_cycle", "settle_plan"]

Report = Callable[[str, float], None]
Around = Callable[[str, Callable[[], Any]], Any]
"""Runs one step by name and gives back what the call gives: a plain call, or a task of a flow."""
_OUTCOMES: dict[str, Outcome] = {
    "done": "emitted",
    "delivered": "emitted",
    "advised": "emitted",
    "dry_run": "emitted",
    "waiting": "waiting",
    "paused": "waiting",
    "rejected": "rejected",
    "abandoned": "rejected",
    "superseded": "superseded",
    "interrupted": "interrupted",
}


def clock_of(manager: ClusterManager) -> Callable[[], datetime]:
    """The cluster's own clock, the only one of the store."""
    return manager.clock


@dataclass
class _Run:
    """What one run knows so far."""

    settings: Settings
    store: Store
    manager: ClusterManager
    request: Request
    clock: Callable[[], datetime]
    budget: Budget
    turn: Turn
    around: Around
    degraded: list[str] = field(default_factory=list)
    facts: dict[str, Any] = field(default_factory=dict)

    def report(self, outcome: Outcome, detail: str = "", **more: Any) -> CycleReport:
        return CycleReport(
            cycle=self.turn.cycle,
            outcome=outcome,
            request=self.request,
            degraded=tuple(dict.fromkeys(self.degraded)),
            seconds=dict(self.budget.seconds),
            cpu_s=dict(self.budget.cpu_s),
            detail=detail,
            at=self.clock(),
            **{**self.facts, **more},
        )

    def step(self, name: str, work: Callable[[], T]) -> T:
        """One step, with its time counted."""
        with self.budget.step(name):
            done: T = self.around(name, work)
        return done

    def alive(self) -> None:
        """A sign of life between two steps; raises CycleLost when the cycle is another's now."""
        with self.store.write() as connection:
            keep(connection, self.settings, self.turn)


def run_cycle(
    settings: Settings,
    *,
    manager: ClusterManager,
    store: Store,
    cycle: Cycle | None = None,
    request: Request | None = None,
    clock: Callable[[], datetime] | None = None,
    report: Report | None = None,
    key: str = "",
    around: Around = lambda _name, work: work(),
) -> CycleReport:
    """Plan one window and hand the plan over; see CycleReport for how that can end.

    Without `cycle` the newest window is planned (by a request other than the schedule's: its next
    revision). `key` names the run that asks: the same key asks for the same cycle again.
    """
    request = request or Request()
    clock = clock or manager.clock
    budget = Budget(settings.cycle.budget_s, settings.cycle.step_budget_s, report)
    if request.dry_run:
        now = clock()
        turn = Turn("mine", Cycle.at(now, settings.cycle.window_s, _next(store, settings, now)))
        run = _Run(settings, store, manager, request, clock, budget, turn, around)
        return _dry_run(run)
    require_password(settings)
    given = _order(store, settings, manager, request, clock, key) if cycle is None else ()
    turn = take_turn(store, settings, request, cycle=cycle, now=clock(), key=key)
    run = _Run(settings, store, manager, request, clock, budget, turn, around)
    run.facts["given"] = given
    if turn.kind != "mine":
        return _not_mine(run)
    try:
        if turn.plan_id:
            return _resume(run, turn.plan_id)
        return _increment(run) if request.increment else _plan(run)
    except CycleLost as lost:
        return _lost(run, str(lost))
    except BaseException as error:
        _end(run, "failed", str(error) or type(error).__name__)
        raise


def _order(
    store: Store,
    settings: Settings,
    manager: ClusterManager,
    request: Request,
    clock: Callable[[], datetime],
    key: str,
) -> tuple[Order, ...]:
    """Record what the request orders, once, before anything can go wrong with its plan."""
    if not request.orders:
        return ()
    if key:
        with store.read() as connection:
            if fetch(connection, "planning_by_key", request_key=key).num_rows:
                return ()
    now = clock()
    state = read_state(manager, settings, now)
    return tuple(order for order, _ in give(store, wishes(request, now), state, now))


def _plan(run: _Run) -> CycleReport:
    """All steps, in order."""
    settings, store, budget = run.settings, run.store, run.budget
    state = run.step("state", lambda: read_state(run.manager, settings, run.clock()))
    ingested = run.step(
        "ingest",
        lambda: ingest_step(
            store, settings, state, run.clock(), within=lambda work: budget.within("ingest", work)
        ),
    )
    run.degraded += ingested.degraded
    run.facts |= {"basis": state, "ingested": ingested, **_looking_back(run)}
    fresh = ingested.report.observations if ingested.report is not None else 0
    retrained = run.step(
        "retrain",
        lambda: retrain_step(
            store, settings, run.clock(), budget_s=budget.left_s, observations=fresh
        ),
    )
    run.degraded += retrained.degraded
    run.facts["retrained"] = retrained
    run.alive()
    made, estimated = _allocate(run, state, ingested)
    run.step("store", lambda: _store(run, made, estimated))
    return _emit(run, made.plan, state)


def _increment(run: _Run) -> CycleReport:
    """Between two windows: place what waits beside what runs, with what is known already."""
    from gogh_core.telemetry import trusted

    state = run.step("state", lambda: read_state(run.manager, run.settings, run.clock()))
    run.facts["basis"] = state
    made, estimated = _allocate(run, state, Ingested(None, None, trusted(run.store)))
    run.step("store", lambda: _store(run, made, estimated))
    return _emit(run, made.plan, state)


def _allocate(run: _Run, state: ClusterState, ingested: Ingested) -> tuple[Allocated, Estimated]:
    settings, capabilities = run.settings, run.manager.capabilities
    estimated = run.step(
        "estimate",
        lambda: estimate_step(
            run.store,
            settings,
            state,
            run.clock(),
            capabilities,
            increment=run.request.increment,
        ),
    )
    run.degraded += estimated.degraded
    now = run.clock()
    aim = aim_of(settings, run.request, now)
    run.degraded += aim.degraded
    # What the request orders is recorded by now, unless it is a dry run.
    request = run.request if run.request.dry_run else run.request.without_orders()
    made = run.step(
        "allocate",
        lambda: allocate_step(
            state,
            estimated,
            settings,
            request,
            now,
            cycle=run.turn.cycle,
            capabilities=capabilities,
            trust=ingested.trust,
            budget_s=run.budget.left_s,
            spent=disturbed_enough(run.store, settings, run.clock()),
            orders=list_orders(run.store),
            aim=aim,
        ),
    )
    run.degraded += made.degraded
    problem, plan = made.draft.problem, made.plan
    run.facts |= {
        "plan": plan,
        "problem": problem,
        "diff": plan_diff(problem, plan, limits_now(state)),
        "expected": expected_rates(estimated.options, problem, plan, made.draft.promised),
    }
    return made, estimated


def _store(run: _Run, made: Allocated, estimated: Estimated) -> None:
    keep_files(run.settings, made.draft.posed, made.solved, name=made.plan.id)
    store_plan(
        run.store,
        run.settings,
        run.turn,
        made.plan,
        draft=made.draft,
        options=estimated.options,
        version=estimated.version,
        now=run.clock(),
    )


def _emit(run: _Run, plan: Plan, basis: ClusterState) -> CycleReport:
    """Hand the plan over, unless a newer request has come; then publish what people read."""
    run.alive()
    execution = run.step(
        "emit",
        lambda: emit_step(
            plan,
            basis,
            manager=run.manager,
            store=run.store,
            settings=run.settings,
            request=run.request,
            cycle_id=run.turn.cycle.id,
            now=run.clock(),
        ),
    )
    outcome = _OUTCOMES[execution.state]
    run.facts["execution"] = execution
    run.degraded += left_out(execution)
    _end(run, "failed" if outcome == "interrupted" else outcome, execution.summary(), plan=plan)
    run.step("publish", lambda: _publish(run))
    return run.report(outcome, execution.summary())


def _publish(run: _Run) -> None:
    """Read the cluster once more and publish: people see it as it is after the plan."""
    try:
        record_step(run.store, run.settings, run.manager, run.clock())
    except GoghError as error:
        run.degraded.append(f"the cluster could not be read after the plan: {error}")
    try:
        run.store.publish()
    except StoreError as error:
        run.degraded.append(f"the snapshot could not be published: {error}")


def _resume(run: _Run, plan_id: str) -> CycleReport:
    """Go on with a plan that a dead run had stored, or that waited for a person."""
    plan = load_plan(run.store, plan_id)
    basis = basis_of(run.store, plan_id)
    if basis is None:
        basis = read_state(run.manager, run.settings, run.clock())
    run.facts |= {"plan": plan, "basis": basis}
    return _emit(run, plan, basis)


def _dry_run(run: _Run) -> CycleReport:
    """Plan with what is in the store; nothing is stored, nothing is sent."""
    state = run.step("state", lambda: read_state(run.manager, run.settings, run.clock()))
    run.facts |= {"basis": state, **_looking_back(run)}
    from gogh_core.telemetry import trusted

    _allocate(run, state, Ingested(None, None, trusted(run.store)))
    return run.report("dry_run", "nothing was stored or sent")


def _not_mine(run: _Run) -> CycleReport:
    """Another run has or had the cycle; a plan that waited for a person may go on now."""
    turn = run.turn
    if turn.kind in ("busy", "superseded"):
        return run.report("busy" if turn.kind == "busy" else "superseded", f"it is {turn.state}")
    if turn.plan_id is None:
        return run.report("done", f"the cycle is {turn.state}")
    plan = load_plan(run.store, turn.plan_id)
    if turn.state != "waiting":
        return run.report("done", f"the cycle is {turn.state}", plan=plan)
    return _settle(run, plan)


def settle_plan(
    settings: Settings,
    *,
    manager: ClusterManager,
    store: Store,
    plan_id: str,
    clock: Callable[[], datetime] | None = None,
    around: Around = lambda _name, work: work(),
) -> CycleReport:
    """Carry a stored plan out if it may be, and write how its cycle ended; plans nothing new."""
    with store.read() as connection:
        found = fetch(connection, "planning_cycle_of", plan_id=plan_id).to_pylist()
    if not found:
        raise StoreError("is not in the store", where=f"plan {plan_id}")
    row = found[0]
    request = Request.from_json(row["request"]) if row["request"] else Request()
    budget = Budget(settings.cycle.budget_s, settings.cycle.step_budget_s)
    turn = Turn("done", Cycle(row["window_start"], row["revision"]), plan_id=plan_id)
    clock = clock or clock_of(manager)
    run = _Run(settings, store, manager, request, clock, budget, turn, around)
    return _settle(run, load_plan(store, plan_id))


def _settle(run: _Run, plan: Plan) -> CycleReport:
    """A plan that waits: go on when a person has decided, or the time is over."""
    now, settings = run.clock(), run.settings
    basis = basis_of(run.store, plan.id) or read_state(run.manager, settings, now)
    run.facts |= {"plan": plan, "basis": basis}
    execution = run.step(
        "emit",
        lambda: emit_step(
            plan,
            basis,
            manager=run.manager,
            store=run.store,
            settings=settings,
            request=run.request,
            cycle_id=run.turn.cycle.id,
            now=now,
        ),
    )
    outcome = _OUTCOMES[execution.state]
    run.degraded += left_out(execution)
    with run.store.write() as connection:  # what the cycle found when it planned stays as it is
        fetch(
            connection,
            "planning_settle",
            cycle_id=run.turn.cycle.id,
            state="failed" if outcome == "interrupted" else outcome,
            detail=execution.summary(),
            ended_at=run.clock(),
        )
        _keep_result(connection, run, plan)
    run.step("publish", lambda: _publish(run))
    return run.report(outcome, execution.summary(), execution=execution)


def _looking_back(run: _Run) -> dict[str, Any]:
    """The plan that runs, and how far its estimates were from what was measured since it began."""
    with run.store.read() as connection:
        last = fetch(connection, "planning_last_plan").to_pylist()
        if not last:
            return {}
        found = fetch(
            connection,
            "planning_error",
            cycle_id=last[0]["cycle_id"],
            since=last[0]["emitted_at"],
        ).to_pylist()[0]
    error = None if found["error"] is None else float(found["error"])
    return {"before": Plan.from_dict(json.loads(last[0]["plan_json"])), "estimate_error": error}


def _next(store: Store, settings: Settings, now: datetime) -> int:
    """The revision a dry run would have."""
    start = Cycle.at(now, settings.cycle.window_s).window_start
    with store.read() as connection:
        rows = fetch(connection, "planning_revisions", window_start=start).to_pylist()
    return int(rows[0]["revision"]) + 1 if rows else 0


def _lost(run: _Run, why: str) -> CycleReport:
    with run.store.write() as connection:
        rows = fetch(connection, "planning_cycle", cycle_id=run.turn.cycle.id).to_pylist()
        if rows and rows[0]["token"] == run.turn.token:
            end_cycle(connection, run.turn.cycle, "superseded", why, run.clock())
    return run.report("superseded", why)


def _end(run: _Run, state: str, detail: str, *, plan: Plan | None = None) -> None:
    """Write how the cycle ended, and what came of it."""
    with run.store.write() as connection:
        end_cycle(
            connection,
            run.turn.cycle,
            state,
            detail,
            run.clock(),
            degraded=list(dict.fromkeys(run.degraded)),
            seconds=run.budget.seconds,
        )
        if plan is not None:
            _keep_result(connection, run, plan)


def _keep_result(connection: duckdb.DuckDBPyConnection, run: _Run, plan: Plan) -> None:
    """What the run that planned knows of its plan; later ones know less and change nothing."""
    diff: PlanDiff | None = run.facts.get("diff")
    ingested: Ingested | None = run.facts.get("ingested")
    fetch(
        connection,
        "planning_insert_result",
        cycle_id=run.turn.cycle.id,
        plan_id=plan.id,
        running=len({p.job for p in plan.placements}),
        waiting=len(plan.waiting),
        power_w=planned_w(plan),
        saved_w=None if diff is None else diff.saved_w,
        reference_w=diff.reference.draw_w if diff and diff.reference else None,
        moves=len(plan.moves),
        stops=len(plan.stops),
        estimate_error=run.facts.get("estimate_error"),
        data_age_s=None if ingested is None else ingested.data_age_s,
        notes=json.dumps(list(plan.notes)),
    )
