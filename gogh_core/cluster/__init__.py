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
    show_form,
)
from gogh_core.cluster.boundary import check_job, check_server, each, label
from gogh_core.cluster.execution import ExecutionReport, carry_out
from gogh_core.cluster.guards import effective_mode, needs_approval, require_password
from gogh_core.cluster.journal import ActionRecord, basis_of, disruptions, executions
from gogh_core.cluster.manager import Capabilities, ClusterManager, PlanTaker, open_manager
from gogh_core.cluster.outbound import fetch_bytes
from gogh_core.cluster.slurm import SlurmManager, submit, write_comment
from gogh_core.cluster.statefile import state_from_dict, state_to_dict
from gogh_core.cluster.status import (
    Difference,
    Status,
    advice,
    differences,
    nothing_to_send,
    plan_to_send,
    status_of,
    stored_plan,
)

__all__ = [
    "ActionRecord",
    "Approval",
    "Capabilities",
    "ClusterManager",
    "Difference",
    "ExecutionReport",
    "Pause",
    "PlanTaker",
    "SlurmManager",
    "Status",
    "advice",
    "approval_of",
    "ask_approval",
    "asked",
    "basis_of",
    "carry_out",
    "check_job",
    "check_server",
    "decide",
    "differences",
    "disruptions",
    "each",
    "effective_mode",
    "executions",
    "fetch_bytes",
    "label",
    "needs_approval",
    "nothing_to_send",
    "open_manager",
    "pause",
    "paused",
    "plan_to_send",
    "require_password",
    "resume",
    "show_form",
    "state_from_dict",
    "state_to_dict",
    "status_of",
    "stored_plan",
    "submit",
    "write_comment",
]
