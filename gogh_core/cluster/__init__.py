"""Plans that really happen: the manager protocol, its managers, and carrying a plan out."""

from gogh_core.cluster.approvals import (
    Approval,
    Pause,
    approval_of,
    ask_approval,
    asked,
    decide,
    pause,
    paused,
    resume,
)
from gogh_core.cluster.execution import ExecutionReport, carry_out
from gogh_core.cluster.guards import effective_mode, needs_approval
from gogh_core.cluster.journal import ActionRecord, basis_of, executions
from gogh_core.cluster.manager import Capabilities, ClusterManager, PlanTaker, open_manager
from gogh_core.cluster.statefile import state_from_dict, state_to_dict

__all__ = [
    "ActionRecord",
    "Approval",
    "Capabilities",
    "ClusterManager",
    "ExecutionReport",
    "Pause",
    "PlanTaker",
    "approval_of",
    "ask_approval",
    "asked",
    "basis_of",
    "carry_out",
    "decide",
    "effective_mode",
    "executions",
    "needs_approval",
    "open_manager",
    "pause",
    "paused",
    "resume",
    "state_from_dict",
    "state_to_dict",
]
