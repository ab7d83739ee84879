"""The allocation room: problem in, plan out, checked by somebody else before it leaves."""

from gogh_core.allocation.effort import Effort
from gogh_core.allocation.explain import Explanation, decisions, explain
from gogh_core.allocation.options import Option, OptionTable
from gogh_core.allocation.planner import greedy, plan
from gogh_core.allocation.problem import Limits, Problem, ProblemJob, ProblemServer
from gogh_core.allocation.reading import load_problem, problem_from_dict
from gogh_core.allocation.rivals import rival_plan
from gogh_core.allocation.validate import can_hold
from gogh_core.allocation.verify import Violation, verify, violations_of

__all__ = [
    "Effort",
    "Explanation",
    "Limits",
    "Option",
    "OptionTable",
    "Problem",
    "ProblemJob",
    "ProblemServer",
    "Violation",
    "can_hold",
    "decisions",
    "explain",
    "greedy",
    "load_problem",
    "plan",
    "problem_from_dict",
    "rival_plan",
    "verify",
    "violations_of",
]
