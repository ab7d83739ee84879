"""Plans and their cycles in a store, as planning writes them, and an embedded cluster for them."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import pyarrow as pa
from typer.testing import CliRunner

from gogh_core.cli import app
from gogh_core.cluster import ExecutionReport, carry_out, open_manager
from gogh_core.domain import Cycle, JobState, Plan
from gogh_core.planning import list_cycles
from gogh_core.settings import Settings
from gogh_core.store import Store
from tests.cluster.fake import NOW, at, plan


def keep(
    store: Store,
    a_plan: Plan,
    *,
    revision: int = 0,
    window_start: datetime = NOW,
    power_w: float | None = None,
    cycle_state: str = "planned",
) -> Cycle:
    """Store a plan and its cycle; every plan was made at the same moment of the cluster's clock."""
    cycle = Cycle(window_start, revision)
    store.append(
        "cycles",
        pa.Table.from_pylist(
            [
                {
                    "cycle_id": cycle.id,
                    "window_start": window_start,
                    "revision": revision,
                    "reason": "by hand" if revision else "schedule",
                    "state": cycle_state,
                    "begun_at": NOW,
                }
            ]
        ),
    )
    row = {
        "plan_id": a_plan.id,
        "cycle_id": cycle.id,
        "status": a_plan.status,
        "solver": a_plan.solver,
        "solve_s": a_plan.solve_s,
        "cost_w": a_plan.cost_w,
        "bound_w": a_plan.bound_w,
        "gap": a_plan.gap,
        "power_w": power_w,
        "running": len(a_plan.placements),
        "waiting": len(a_plan.waiting),
        "plan_json": a_plan.to_json(),
        "problem_sha256": None,
        "created_at": NOW,
        "emitted_at": None,
    }
    store.append("plans", pa.Table.from_pylist([row]))
    waits = [{"plan_id": a_plan.id, "job_id": w.job, "reason": w.reason} for w in a_plan.waiting]
    store.append("waiting", pa.Table.from_pylist(waits))
    return cycle


class Embedded:
    """The embedded cluster with plans for the same window, all made at the same moment."""

    def __init__(self, settings: Settings, store: Store) -> None:
        self.settings, self.store = settings, store
        self.manager: Any = open_manager(settings, store)
        state = self.manager.state()
        waits = [
            s.job.id for s in state.jobs if s.state is JobState.WAITING and 1 in s.job.gpu_counts
        ]
        free = [s.server for s in state.servers if s.power == "on"]
        self.jobs, self.server = waits, free[0]
        self.window_start = Cycle.at(self.manager.now, settings.cycle.window_s).window_start

    def keep(self, revision: int, job: int, **more) -> Plan:
        """Revision `revision` starts one job."""
        cycle = Cycle(more.get("window_start", self.window_start), revision)
        made = plan(f"{cycle.id}-x", places={self.jobs[job]: at(self.server.id, job)})
        keep(self.store, made, revision=revision, **({"window_start": self.window_start} | more))
        return made

    def states(self) -> dict[int, str]:
        """The state of each revision's cycle."""
        return {row["revision"]: row["state"] for row in list_cycles(self.store)}

    def carry(self, a_plan: Plan, revision: int, *, ask: str = "") -> ExecutionReport:
        """Send it; with `ask` only once a person has agreed."""
        return carry_out(
            a_plan,
            self.manager.state(),
            manager=self.manager,
            store=self.store,
            settings=self.settings,
            ask=(ask,) if ask else (),
            cycle_id=Cycle(self.window_start, revision).id,
            now=self.manager.now,
        )


def gogh(*arguments: str) -> str:
    """What a command prints."""
    result = CliRunner().invoke(app, list(arguments), catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output
