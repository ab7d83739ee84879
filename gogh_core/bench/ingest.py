"""`gogh bench ingest`: a batch read, checked, split and stored, against bare insert and plain SQL.

300,000 samples are 1,000 GPUs for 5 minutes; ten times as many show how it grows. Everything runs
in one process, imports are done before the clock starts, and the figure that counts is the ratio:
at most 4 times (the bare insert of the same file + the same checks in plain SQL).
"""

from __future__ import annotations

import json
import resource
import tempfile
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated, Any

import typer

__all__ = ["register_bench"]

_START = datetime(2026, 1, 5, 9, 0, tzinfo=UTC)
_GPUS = 8
_SECONDS = 300
LIMIT = 4.0


def register_bench(app: typer.Typer) -> None:
    """Add `gogh bench ingest`."""
    app.command("ingest")(ingest)


def ingest(
    rows: Annotated[
        list[int] | None, typer.Option(help="Sizes; 300,000 and 3,000,000 if none.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="As JSON.")] = False,
) -> None:
    """Ingest of samples as a ratio to the bare insert plus the same checks in SQL."""
    sizes = rows or [300_000, 3_000_000]
    with tempfile.TemporaryDirectory(prefix="gogh-bench-") as folder:
        _measure(Path(folder) / "warm", 3_000)  # imports, caches
        found = [_measure(Path(folder) / str(size), size) for size in sizes]
    if as_json:
        typer.echo(json.dumps(found, indent=2))
    else:
        for result in found:
            typer.echo(
                f"{result['rows']:>9} rows: {result['ingest_s']:.2f} s = {result['ratio']:.2f} x "
                f"(bare insert {result['insert_s']:.2f} s + SQL checks {result['sql_s']:.2f} s); "
                f"{result['rows_per_s']:,.0f} rows/s, peak memory {result['peak_mb']:.0f} MB"
            )
        if len(found) > 1:
            growth = found[-1]["ingest_s"] / found[0]["ingest_s"]
            more = found[-1]["rows"] / found[0]["rows"]
            typer.echo(f"{more:.0f} times the rows: {growth:.1f} times the time")
    if found[0]["ratio"] > LIMIT or any(result["peak_mb"] > 1024 for result in found):
        raise typer.Exit(1)


def _measure(home: Path, rows: int) -> dict[str, Any]:
    from gogh_core.contracts import load_suites
    from gogh_core.domain import ClusterState, Server, ServerStatus
    from gogh_core.settings import load
    from gogh_core.store import Store, fetch
    from gogh_core.telemetry import ingest as take_in
    from gogh_core.telemetry import record_state

    settings = load(home=home)
    store = Store(settings)
    store.migrate()
    servers = max(1, min(1000, rows // _SECONDS) // _GPUS)
    state = ClusterState(
        _START,
        tuple(ServerStatus(Server(f"s{n}", "v100", _GPUS, 200.0)) for n in range(servers)),
        (),
    )
    record_state(store, settings, state, now=_START, suites=load_suites(settings))
    (settings.spool / "gpu").mkdir(parents=True)
    path = settings.spool / "gpu" / "all-1.csv"
    count = _write(path, servers, rows)
    now = _START + timedelta(seconds=count / (servers * _GPUS) + 10)
    insert_s, sql_s = _bare(home, path)
    began = time.perf_counter()
    report = take_in(store, settings, now=now)
    took = time.perf_counter() - began
    with store.read() as connection:
        stored = fetch(connection, "telemetry_bench_count")["rows"][0].as_py()
    if stored != count or not report.ok:
        raise typer.BadParameter(f"{stored} of {count} rows were stored: {report.faults}")
    return {
        "rows": count,
        "ingest_s": took,
        "insert_s": insert_s,
        "sql_s": sql_s,
        "ratio": took / (insert_s + sql_s),
        "rows_per_s": count / took,
        "peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    }


def _write(path: Path, servers: int, rows: int) -> int:
    """A CSV file as the agent writes it, second by second."""
    from gogh_core.telemetry import AGENT_COLUMNS

    gpus = servers * _GPUS
    seconds = max(1, rows // gpus)
    with path.open("w", encoding="utf-8") as stream:
        stream.write(AGENT_COLUMNS + "\n")
        for second in range(seconds):
            ts = (_START + timedelta(seconds=second)).strftime("%Y-%m-%dT%H:%M:%S.000Z")
            stream.writelines(
                f"{ts},s{n // _GPUS},{n % _GPUS},v100,{100 + n % 150}.5,"
                f"{5000 + (100.5 + n % 150) * second:.1f},0.{n % 90 + 10},{n % 16000},55,1380,0,1\n"
                for n in range(gpus)
            )
    return gpus * seconds


def _bare(home: Path, path: Path) -> tuple[float, float]:
    """Seconds of the bare insert of the file, and of the same checks in plain SQL on those rows."""
    import duckdb

    from gogh_core.store import fetch

    with duckdb.connect(str(home / "bare.duckdb"), config={"threads": 2}) as connection:
        fetch(connection, "store_session")
        began = time.perf_counter()
        fetch(connection, "telemetry_bench_insert", path=str(path))
        insert_s = time.perf_counter() - began
        began = time.perf_counter()
        fetch(connection, "telemetry_bench_checks")
        return insert_s, time.perf_counter() - began
