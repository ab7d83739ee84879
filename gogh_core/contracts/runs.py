"""Results of contract runs: kept in the database for each batch and expectation."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

import duckdb
import pyarrow as pa

from gogh_core.contracts.check import Verdict
from gogh_core.contracts.suites import Suite
from gogh_core.store import fetch

__all__ = ["record"]

_SOURCES_SHOWN = 5


def record(
    connection: duckdb.DuckDBPyConnection,
    suite: Suite,
    verdict: Verdict,
    *,
    run_id: str,
    sources: Sequence[str],
    now: datetime,
) -> None:
    """Keep what each expectation said, in the caller's transaction."""
    results = verdict.results
    if not results:
        return
    names = list(dict.fromkeys(sources))
    shown = ", ".join(names[:_SOURCES_SHOWN])
    if len(names) > _SOURCES_SHOWN:
        shown += f" and {len(names) - _SOURCES_SHOWN} more"
    count = len(results)
    connection.register(
        "contract_results",
        pa.table(
            {
                "run_id": [run_id] * count,
                "table_name": [suite.table] * count,
                "expectation": [r.check.says for r in results],
                "column_name": pa.array([r.check.column for r in results], pa.string()),
                "level": [r.check.level for r in results],
                "success": [r.outcome.success for r in results],
                "rows_checked": [r.rows for r in results],
                "rows_failed": [r.outcome.failed for r in results],
                "observed": pa.array([r.outcome.observed for r in results], pa.string()),
                "suite_sha256": [suite.sha256] * count,
                "sources": [shown] * count,
            }
        ),
    )
    fetch(connection, "contracts_record", now=now)
    connection.unregister("contract_results")
