"""Every error GOGH raises on purpose.

GoghError
├── InvalidInput            what a person gave us cannot be used; the command exits with 2
│   ├── InvalidSettings     gogh.toml or GOGH_*
│   ├── InvalidProblem      a problem file, every fault listed
│   ├── InvalidPlan         a plan file, every fault listed
│   ├── InvalidCatalog      a throughput table or a query file
│   ├── InvalidContract     an expectation suite
│   └── ResultTooLarge      the answer of a query, with the part that was read
├── StoreError
│   ├── StoreLocked         another process holds the database; names it
│   ├── StoreCorrupt        not a DuckDB file, damaged, or somebody else's
│   └── MigrationRefused    changed, missing or newer than this program
├── SourceUnavailable       a telemetry source gave no answer
├── BatchRefused            a batch failed its contract as a whole
├── WeightsRefused          a weight file is corrupt, foreign or hostile
├── SolverFailed            the solver is missing, died or printed nonsense
├── ClusterError
│   ├── ClusterUnavailable  the cluster manager gave no answer
│   ├── NotCapable          this manager cannot do that
│   └── ActionFailed        the manager refused one action
├── StackError              Prefect's server or worker could not be started, reached or ended
└── UnsafeToPlan            planning now could harm; nothing was done
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

__all__ = [
    "ActionFailed",
    "BatchRefused",
    "ClusterError",
    "ClusterUnavailable",
    "GoghError",
    "InvalidCatalog",
    "InvalidContract",
    "InvalidInput",
    "InvalidPlan",
    "InvalidProblem",
    "InvalidSettings",
    "MigrationRefused",
    "NotCapable",
    "ResultTooLarge",
    "SolverFailed",
    "SourceUnavailable",
    "StackError",
    "StoreCorrupt",
    "StoreError",
    "StoreLocked",
    "UnsafeToPlan",
    "WeightsRefused",
]


class GoghError(Exception):
    """One clear line: what is wrong, where, and what to do about it."""

    def __init__(self, what: str, *, where: str = "", todo: str = "") -> None:
        self.what = _masked(what)
        self.where = _masked(where)
        self.todo = todo
        super().__init__(self.what, self.where, todo)

    def __reduce__(self) -> tuple[Any, ...]:
        # An error comes back whole from another process, whatever its constructor takes.
        return _again, (type(self), self.args, dict(self.__dict__))

    def __str__(self) -> str:
        line = f"{self.where}: {self.what}" if self.where else self.what
        return f"{line}; {self.todo}" if self.todo else line


def _masked(text: str) -> str:
    """Without user and password of an address: errors are logged, stored and shown."""
    return re.sub(r"://[^/@\s]+@", "://***@", text)


def _again(kind: type[GoghError], args: tuple[Any, ...], state: dict[str, Any]) -> GoghError:
    error = kind.__new__(kind, *args)
    error.__dict__.update(state)
    return error


class InvalidInput(GoghError):
    """What a person gave us cannot be used."""


class InvalidSettings(InvalidInput):
    """gogh.toml or a GOGH_* variable is wrong."""


class _Faults(InvalidInput):
    """An input with several faults, all of them listed."""

    noun = "input"

    def __init__(self, faults: Sequence[str], *, where: str = "", todo: str = "") -> None:
        self.faults = tuple(faults)
        count = len(self.faults)
        head = self.faults[0] if count == 1 else f"{count} faults: " + "; ".join(self.faults)
        super().__init__(f"{self.noun} cannot be used: {head}", where=where, todo=todo)


class InvalidProblem(_Faults):
    """A problem with every fault found in it."""

    noun = "problem"


class InvalidPlan(_Faults):
    """A plan with every fault found in it."""

    noun = "plan"


class InvalidCatalog(_Faults):
    """A throughput table or a query file that cannot be read as one."""

    noun = "throughput table"


class InvalidContract(_Faults):
    """An expectation suite that cannot be run."""

    noun = "contract"


class ResultTooLarge(InvalidInput):
    """The answer of a query is longer than the settings allow; `part` is its beginning."""

    def __init__(self, what: str, *, part: Any = None, where: str = "", todo: str = "") -> None:
        super().__init__(what, where=where, todo=todo)
        self.part = part


class StoreError(GoghError):
    """The database or another file of the home could not be used."""


class StoreLocked(StoreError):
    """Another process holds the database."""


class StoreCorrupt(StoreError):
    """The file is not a database of ours, or is damaged."""


class MigrationRefused(StoreError):
    """The database's migrations are not those of this program."""


class SourceUnavailable(GoghError):
    """A telemetry source gave no answer."""


class BatchRefused(GoghError):
    """A batch failed its contract as a whole; nothing of it was used."""


class WeightsRefused(GoghError):
    """A weight file is corrupt, foreign or hostile."""


class SolverFailed(GoghError):
    """The solver is missing, died, or printed nonsense."""


class ClusterError(GoghError):
    """The cluster manager could not do what was asked."""


class ClusterUnavailable(ClusterError):
    """The cluster manager gave no answer."""


class NotCapable(ClusterError):
    """This cluster manager cannot do that at all."""


class ActionFailed(ClusterError):
    """The cluster manager refused one action."""


class StackError(GoghError):
    """Prefect's server or a worker could not be started, reached or ended."""


class UnsafeToPlan(GoghError):
    """Planning now could do harm; nothing was done."""
