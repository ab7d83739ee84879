"""From store to problem to plan to cluster: one cycle, and which run plans it."""

from gogh_core.planning.alone import FOREIGN
from gogh_core.planning.cycles import list_cycles
from gogh_core.planning.diff import PlanDiff, plan_diff
from gogh_core.planning.emit import emit_step
from gogh_core.planning.files import running_files
from gogh_core.planning.problem import Draft, build_problem, draft_problem
from gogh_core.planning.report import CycleReport
from gogh_core.planning.request import Request
from gogh_core.planning.run import clock_of, run_cycle
from gogh_core.planning.steps import (
    Allocated,
    Estimated,
    Ingested,
    Retrained,
    allocate_step,
    estimate_step,
    ingest_step,
    read_state,
    retrain_step,
)
from gogh_core.planning.ways import options_table

__all__ = [
    "FOREIGN",
    "Allocated",
    "CycleReport",
    "Draft",
    "Estimated",
    "Ingested",
    "PlanDiff",
    "Request",
    "Retrained",
    "allocate_step",
    "build_problem",
    "clock_of",
    "draft_problem",
    "emit_step",
    "estimate_step",
    "ingest_step",
    "list_cycles",
    "options_table",
    "plan_diff",
    "read_state",
    "retrain_step",
    "run_cycle",
    "running_files",
]
