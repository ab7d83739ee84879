"""Upkeep of the store: ageing, retention, snapshot, and the report of the quarantine."""

from __future__ import annotations

from prefect import flow
from prefect.artifacts import create_table_artifact
from prefect.states import Completed

from flows.desk import Desk, Outcome, around, rename, run_id, told
from flows.publish import show_contracts, show_figures
from gogh_core import watch

__all__ = ["maintenance"]


@flow(name="maintenance", flow_run_name="maintenance")
@told
def maintenance() -> Outcome:
    """Old samples to Parquet, what is too old away, a fresh snapshot, and what is in quarantine."""
    desk = Desk()
    aged = around("age", lambda: desk.store.age(desk.clock()))
    around("publish", desk.store.publish)
    held = watch.held(desk.store)
    if run_id():
        rows = [{name: str(value) for name, value in row.items()} for row in held]
        create_table_artifact(
            key="gogh-quarantine", table=rows, description="What is held in quarantine, and why"
        )
        show_contracts(desk)
        show_figures(desk)
    rows_held = sum(int(row["held"]) for row in held)
    name = f"maintenance · {aged.rows_moved} rows to Parquet · {rows_held} in quarantine"
    rename(name)
    if aged.doubt:
        name += f" · nothing was dropped as too old: {aged.doubt}"
    return Completed(message=name)
