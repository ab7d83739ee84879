"""`gogh bench ingest`: a batch read, checked, split and stored, against bare insert and plain SQL.

300,000 samples are 1,000 GPUs for 5 minutes; ten times as many show how it grows. Everything runs
in one process, imports are done before the clock starts, and the figure that counts is the ratio:
at most 4 times (the bare insert of the same file + the same checks in plain SQL).
"""

from __future__ import annotations

import contextlib
import json
import statistics
import tempfile
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated, Any

import typer

__all__ = ["measure", "register_bench"]

_START = datetime(2026, 1, 5, 9, 0, tzinfo=UTC)
_GPUS = 8
_SECONDS = 300
LIMIT = 4.0
LIMIT_MB = 1024.0


def register_bench(app: typer.Typer) -> None:
    """Add `gogh bench ingest`."""
    app.command("ingest")(ingest)


def ingest(
    rows: Annotated[
        list[int] | None, typer.Option(help="Sizes; 300,000 and 3,000,000 if none.")
    ] = None,
    repeats: Annotated[int, typer.Option(min=1, help="Times each size is measured.")] = 5,
    as_json: Annotated[bool, typer.Option("--json", help="As JSON.")] = False,
) -> None:
    """Ingest of samples as a ratio to the bare insert plus the same checks in SQL."""
    sizes = rows or [300_000, 3_000_000]
    _once(3_000)  # imports, caches
    found = [_together([_once(size) for _ in range(repeats)]) for size in sizes]
    if as_json:
        typer.echo(json.dumps(found, indent=2))
    else:
        for result in found:
            typer.echo(_line(result))
        if len(found) > 1:
            growth = found[-1]["ingest_s"] / found[0]["ingest_s"]
            more = found[-1]["rows"] / found[0]["rows"]
            typer.echo(f"{more:.0f} times the rows: {growth:.1f} times the time")
    if any(result["ratio"] > LIMIT or result["peak_mb"] > LIMIT_MB for result in found):
        raise typer.Exit(1)


def _once(size: int) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="gogh-bench-") as folder:
        return measure(Path(folder), size)


def _together(measured: list[dict[str, Any]]) -> dict[str, Any]:
    """The median of each figure, the spread of the ratio, and the highest peak of memory."""
    result = {name: statistics.median(one[name] for one in measured) for name in measured[0]}
    result["rows"] = measured[0]["rows"]
    ratios = [one["ratio"] for one in measured]
    result["ratio_from"], result["ratio_to"] = min(ratios), max(ratios)
    result["peak_mb"] = max(one["peak_mb"] for one in measured)
    result["repeats"] = len(measured)
    return result


def _line(result: dict[str, Any]) -> str:
    return (
        f"{result['rows']:>9} rows: {result['ingest_s']:.2f} s = {result['ratio']:.2f} x "
        f"({result['ratio_from']:.2f} to {result['ratio_to']:.2f} in {result['repeats']} runs) "
        f"(bare insert {result['insert_s']:.2f} s + SQL checks {result['sql_s']:.2f} s); "
        f"{result['cpu_ratio']:.2f} x by CPU time; {result['rows_per_s']:,.0f} rows/s, "
        f"peak memory {result['peak_mb']:.0f} MB"
    )


def measure(home: Path, rows: int, gpus: int = 1000) -> dict[str, Any]:
    """One ingest of so many rows into a new home, beside the bare insert and the checks in SQL."""
    from gogh_core.contracts import load_suites
    from gogh_core.domain import ClusterState, Server, ServerStatus
    from gogh_core.settings import load
    from gogh_core.store import Store, fetch
    from gogh_core.telemetry import ingest as take_in
    from gogh_core.telemetry import record_state

    settings = load(home=home)
    store = Store(settings)
    store.migrate()
    servers = max(1, min(gpus, rows // _SECONDS) // _GPUS)
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
    used = time.process_time()
    insert_s, sql_s = _bare(home, path)
    bare_cpu_s = time.process_time() - used
    before_mb = _forget_peak()
    began, used = time.perf_counter(), time.process_time()
    report = take_in(store, settings, now=now)
    took, cpu_s = time.perf_counter() - began, time.process_time() - used
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
        "cpu_ratio": cpu_s / bare_cpu_s,
        "rows_per_s": count / took,
        "peak_mb": (peak_mb := _peak_mb()),
        "grown_mb": peak_mb - before_mb,
    }


def _forget_peak() -> float:
    """Let the kernel begin anew with the peak of this process; what it has now."""
    with contextlib.suppress(OSError):  # where it may not be asked, the old peak stays
        Path("/proc/self/clear_refs").write_text("5")
    return _peak_mb()


def _peak_mb() -> float:
    """The most memory this process had since then."""
    status = Path("/proc/self/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) / 1024


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
