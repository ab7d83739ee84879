"""Data contracts: suites as files, batches checked against them, bad rows told from clean ones."""

from gogh_core.contracts.check import Result, Verdict, as_batch, check_batch
from gogh_core.contracts.gx import run_checks
from gogh_core.contracts.page import page, recent_runs
from gogh_core.contracts.runs import record
from gogh_core.contracts.suites import Check, Suite, load_suite, load_suites, parse_suite

__all__ = [
    "Check",
    "Result",
    "Suite",
    "Verdict",
    "as_batch",
    "check_batch",
    "load_suite",
    "load_suites",
    "page",
    "parse_suite",
    "recent_runs",
    "record",
    "run_checks",
]
