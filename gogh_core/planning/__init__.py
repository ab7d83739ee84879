"""From store to problem to plan to cluster: one cycle, and which run plans it."""

from gogh_core.planning.aims import aim_of
from gogh_core.planning.alone import FOREIGN, disturbed_enough
from gogh_core.planning.cycles import list_cycles
from gogh_core.planning.diff import PlanDiff, limits_now, plan_diff
from gogh_core.planning.emit import emit_step
from gogh_core.planning.expected import Expected, expected_rates
from gogh_core.planning.files import running_files
from gogh_core.planning.learning import Known, Learned
from gogh_core.planning.objectives import OBJECTIVES, Aim, Objective
from gogh_core.planning.orders import Kind, Order, give, lift, list_orders, moment
from gogh_core.planning.pace import follow, run_up_to_window
from gogh_core.planning.policy import Planner
from gogh_core.planning.problem import Draft, build_problem, draft_problem
from gogh_core.planning.report import CycleReport, after_answer
from gogh_core.planning.request import Request
from gogh_core.planning.run import clock_of, run_cycle, settle_plan
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
from gogh_core.planning.watts import Reference, planned_w, watts_by_job
from gogh_core.planning.ways import options_table

__all__ = [
    "FOREIGN",
    "OBJECTIVES",
    "Aim",
    "Allocated",
    "CycleReport",
    "Draft",
    "Estimated",
    "Expected",
    "Ingested",
    "Kind",
    "Known",
    "Learned",
    "Objective",
    "Order",
    "PlanDiff",
    "Planner",
    "Reference",
    "Request",
    "Retrained",
    "after_answer",
    "aim_of",
    "allocate_step",
    "build_problem",
    "clock_of",
    "disturbed_enough",
    "draft_problem",
    "emit_step",
    "estimate_step",
    "expected_rates",
    "follow",
    "give",
    "ingest_step",
    "lift",
    "limits_now",
    "list_cycles",
    "list_orders",
    "moment",
    "options_table",
    "plan_diff",
    "planned_w",
    "read_state",
    "retrain_step",
    "run_cycle",
    "run_up_to_window",
    "running_files",
    "settle_plan",
    "watts_by_job",
]
