"""The steps of a cycle, each as a flow of its own."""

from __future__ import annotations

from prefect import flow
from prefect.artifacts import create_table_artifact
from prefect.states import Completed

from flows.cadence import plan_window
from flows.desk import Desk, Outcome, around, nothing_to_do, rename, run_id, told
from flows.publish import show_contracts, show_figures
from gogh_core import watch
from gogh_core.cluster import nothing_to_send, plan_to_send
from gogh_core.planning import (
    Request,
    Retrained,
    estimate_step,
    ingest_step,
    read_state,
    retrain_step,
    settle_plan,
)

__all__ = ["allocate", "emit", "estimate", "ingest", "learnt", "retrain_p2", "validate"]

_SHOWN = 1000


@flow(name="ingest", flow_run_name="ingest")
@told
def ingest() -> Outcome:
    """Take in what the sources have, behind the contracts."""
    desk = Desk()
    now = desk.clock()
    state = around("state", lambda: read_state(desk.manager, desk.settings, now))
    taken = around("ingest", lambda: ingest_step(desk.store, desk.settings, state, now))
    around("publish", desk.store.publish)
    if run_id():
        show_contracts(desk)
    sources = taken.report.sources if taken.report is not None else ()
    clean = sum(source.rows_clean for source in sources)
    held = sum(source.rows_quarantined for source in sources)
    return _done(f"ingest · {clean:,} rows · {held} to quarantine", taken.degraded)


@flow(name="validate", flow_run_name="validate")
@told
def validate() -> Outcome:
    """What the contracts said of the newest batches, and what is held in quarantine."""
    desk = Desk()
    around("publish", desk.store.publish)
    held = sum(int(row["held"]) for row in watch.held(desk.store))
    refused = [row["source"] for row in watch.batches(desk.store) if row["status"] == "refused"]
    if run_id():
        show_contracts(desk)
    return _done(f"validate · {held} rows held", [f"refused: {source}" for source in refused])


@flow(name="retrain-p2", flow_run_name="retrain P2")
@told
def retrain_p2() -> Outcome:
    """P2 learns from the newest measurements; promoted only when it is better."""
    desk = Desk()
    budget_s = desk.settings.estimation.retrain_budget_s
    done = around(
        "retrain",
        lambda: retrain_step(desk.store, desk.settings, desk.clock(), budget_s=budget_s),
    )
    around("publish", desk.store.publish)
    if run_id():
        show_figures(desk)
    return learnt("retrain P2", done)


@flow(name="estimate", flow_run_name="estimate")
@told
def estimate() -> Outcome:
    """P1 and P2 for the queue and the running jobs, as a table."""
    desk = Desk()
    now = desk.clock()
    state = around("state", lambda: read_state(desk.manager, desk.settings, now))
    made = around(
        "estimate",
        lambda: estimate_step(desk.store, desk.settings, state, now, desk.manager.capabilities),
    )
    rows = made.options.slice(0, _SHOWN).to_pylist()
    if run_id():
        table = [{name: str(value) for name, value in row.items()} for row in rows]
        create_table_artifact(
            key="gogh-estimates", table=table, description=f"Estimates of {made.version}"
        )
    return _done(f"estimate · {made.options.num_rows:,} ways to run", made.degraded)


@flow(name="allocate", flow_run_name="allocate")
@told
def allocate() -> Outcome:
    """A plan for the rest of the window from what is in the store; shown, not sent."""
    desk = Desk()
    request = Request(reason="allocate", dry_run=True)
    return plan_window(desk, request, key=run_id(), kind="allocate")


@flow(name="emit", flow_run_name="emit")
@told
def emit() -> Outcome:
    """Send the newest plan that is to be sent and may be: approved, where a person was asked."""
    desk = Desk()
    plan_id = plan_to_send(desk.store)
    if plan_id is None:
        return nothing_to_do(nothing_to_send(desk.settings, desk.store, desk.clock()))
    report = settle_plan(
        desk.settings,
        manager=desk.manager,
        store=desk.store,
        plan_id=plan_id,
        clock=desk.clock,
        around=around,
    )
    return _done(f"emit {report.cycle.id} · {report.outcome}", report.degraded)


def learnt(name: str, done: Retrained) -> Outcome:
    """The end of a run that learned: whether a new version serves, and why."""
    if done.report is None:
        return _done(name, done.degraded)
    verdict = "promoted" if done.report.promoted else "not promoted"
    return _done(f"{name} · {verdict} · {done.report.reason}", done.degraded)


def _done(name: str, degraded: tuple[str, ...] | list[str]) -> Outcome:
    full = " · ".join([name, *(f"⚠ {what}" for what in degraded)])
    rename(full[:200])
    return Completed(message=full)
