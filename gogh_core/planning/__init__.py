"""From store to problem to plan to cluster: one cycle, and which run plans it."""

from gogh_core.planning.alone import FOREIGN
from gogh_core.planning.cycles import list_cycles
from gogh_core.planning.problem import Draft, build_problem, draft_problem
from gogh_core.planning.request import Request
from gogh_core.planning.ways import options_table

__all__ = [
    "FOREIGN",
    "Draft",
    "Request",
    "build_problem",
    "draft_problem",
    "list_cycles",
    "options_table",
]
