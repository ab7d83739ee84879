"""`gogh bench store`: the store beside bare DuckDB, as ratios within one run.

Three parts, each with a figure that is to be reached: rows written through the store, how long a
snapshot stops a writer (with an hour and with a day of history), and the named queries.
"""

from __future__ import annotations

import json
import os
import shutil
import statistics
import tempfile
import threading
import time
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated, Any

import typer

from gogh_core.settings import load

__all__ = ["Figure", "register_bench"]

_START = datetime(2026, 1, 5, tzinfo=UTC)
_BATCH_ROWS = 500_000


@dataclass(frozen=True, slots=True)
class Figure:
    """One line of the result; `ok` is None where nothing was promised."""

    name: str
    value: str
    beside: str
    ratio: float
    promised: str = ""
    ok: bool | None = None


def register_bench(app: typer.Typer) -> None:
    """Add `gogh bench store`."""
    app.command("store")(bench)


def bench(
    samples: Annotated[int, typer.Option(help="Samples to write.")] = 5_000_000,
    *,
    asked: Annotated[int, typer.Option(help="Samples that the queries read.")] = 10_000_000,
    gpus: Annotated[int, typer.Option(help="GPUs, one sample each second.")] = 1_000,
    hours: Annotated[int, typer.Option(help="Hours of the long history.")] = 24,
    repeats: Annotated[int, typer.Option(help="Times each figure is taken.")] = 5,
    folder: Annotated[Path | None, typer.Option(help="Where the files go meanwhile.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="As JSON.")] = False,
) -> None:
    """Writing, publishing and asking through the store, beside bare DuckDB."""
    home = Path(tempfile.mkdtemp(prefix="gogh-bench-", dir=folder))
    try:
        figures = [_writing(home / "write", samples)]
        figures += _publishing(home / "publish", gpus, hours, repeats)
        figures += _asking(home / "ask", asked, gpus, repeats)
    finally:
        shutil.rmtree(home, ignore_errors=True)
    if as_json:
        typer.echo(json.dumps([asdict(figure) for figure in figures], indent=1))
    else:
        _print(figures)
    if any(figure.ok is False for figure in figures):
        raise typer.Exit(1)


def _print(figures: list[Figure]) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    for name in ("figure", "store", "beside it", "ratio", "promised", ""):
        table.add_column(name, justify="right" if name == "ratio" else "left")
    for figure in figures:
        verdict = {True: "ok", False: "MISSED", None: ""}[figure.ok]
        ratio = f"{figure.ratio:.2f}"
        table.add_row(figure.name, figure.value, figure.beside, ratio, figure.promised, verdict)
    Console(width=160).print(table)


def _note(text: str) -> None:
    typer.echo(text, err=True)


def _store(home: Path) -> Any:
    from gogh_core.store import Store

    store = Store(load(home=home))
    store.migrate()
    return store


def _generate(store: Any, start: datetime, seconds: int, gpus: int) -> None:
    from gogh_core.store import fetch

    with store.write() as connection:
        fetch(connection, "store_bench_hour", start=start, seconds=seconds, gpus=gpus)


# -- writing -------------------------------------------------------------------------------------


def _writing(home: Path, samples: int) -> Figure:
    """The same Arrow batches into a bare database and through the store, batch by batch."""
    import duckdb

    from gogh_core.store import fetch, statement

    _note(f"writing {samples} samples")
    source = _store(home / "source")
    size = min(samples, _BATCH_ROWS)
    _generate(source, _START, max(1, size // 1000), 1000)
    with source.read() as connection:
        batch = fetch(connection, "store_bench_samples")
    batches = max(1, samples // batch.num_rows)
    ours = _store(home / "ours")
    bare = _store(home / "bare")
    config: dict[str, str | bool | int | float | list[str]] = {
        "memory_limit": f"{ours.settings.store.memory_limit_mb}MB",
        "threads": ours.settings.store.threads,
    }
    sql = statement("store_append").replace("{table}", "gpu_samples")
    ours_s = bare_s = 0.0
    with duckdb.connect(str(bare.path), config=config) as connection:
        connection.register("store_rows", batch)
        for _ in range(batches):
            # Turn by turn, so that both meet the same machine.
            began = time.perf_counter()
            connection.execute(sql)
            bare_s += time.perf_counter() - began
            began = time.perf_counter()
            ours.append("gpu_samples", batch)
            ours_s += time.perf_counter() - began
        began = time.perf_counter()
    bare_s += time.perf_counter() - began
    rows = batches * batch.num_rows
    ratio = bare_s / ours_s
    return Figure(
        f"{rows} samples written",
        f"{rows / ours_s / 1e6:.2f} M rows/s",
        f"{rows / bare_s / 1e6:.2f} M rows/s by a bare Arrow insert",
        ratio,
        ">= 0.5",
        ratio >= 0.5,
    )


# -- publishing ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Stop:
    stop_s: float
    copy_s: float
    hot_mb: float


def _publishing(home: Path, gpus: int, hours: int, repeats: int) -> list[Figure]:
    """How long a publish stops a writer, after one hour of samples and after many."""
    store = _store(home)
    stops: dict[int, _Stop] = {}
    for hour in range(hours):
        _note(f"publishing: hour {hour + 1} of {hours}")
        _generate(store, _START + timedelta(hours=hour), 3600, gpus)
        store.age(_START + timedelta(hours=hour + 1))
        if hour in (0, hours - 1):
            stops[hour] = _measure_stop(store, repeats)
    short, day = stops[0], stops[hours - 1]
    ratio = day.stop_s / short.stop_s
    return [
        _stop_figure("1 h", short),
        _stop_figure(f"{hours} h", day),
        Figure(
            f"stop with {hours} h of history",
            f"{day.stop_s * 1000:.1f} ms",
            f"{short.stop_s * 1000:.1f} ms with 1 h",
            ratio,
            "no longer (within 2 ms)",
            day.stop_s <= short.stop_s + 0.002,
        ),
    ]


def _stop_figure(history: str, stop: _Stop) -> Figure:
    ratio = stop.stop_s / stop.copy_s
    return Figure(
        f"snapshot stops a writer, {history} of history",
        f"{stop.stop_s * 1000:.1f} ms",
        f"{stop.copy_s * 1000:.1f} ms to copy the {stop.hot_mb:.0f} MB hot file",
        ratio,
        "<= 1",
        ratio <= 1,
    )


def _measure_stop(store: Any, repeats: int) -> _Stop:
    """Medians over several publishes, each beside a plain copy of the same file."""
    stops, copies = [], []
    target = store.path.with_name("copied")
    for _ in range(repeats):
        began = time.perf_counter()
        shutil.copyfile(store.path, target)
        copies.append(time.perf_counter() - began)
        os.unlink(target)
        stops.append(_longest_wait(store))
    size = store.path.stat().st_size / 1e6
    return _Stop(statistics.median(stops), statistics.median(copies), size)


def _longest_wait(store: Any) -> float:
    """The longest that anybody who wants to write waits at the gate during one publish."""
    waits = [0.0]
    over = threading.Event()

    def want_to_write() -> None:
        while not over.is_set():
            began = time.perf_counter()
            with store.gate():
                waits.append(time.perf_counter() - began)
            time.sleep(0.001)

    writer = threading.Thread(target=want_to_write)
    writer.start()
    try:
        store.publish()
    finally:
        over.set()
        writer.join()
    return max(waits)


# -- asking --------------------------------------------------------------------------------------


def _asking(home: Path, asked: int, gpus: int, repeats: int) -> list[Figure]:
    """Every named query on the snapshot, beside the same SQL on a bare connection to it."""
    import duckdb

    from gogh_core.store import fetch, queries, run_query

    _note(f"asking: generating {asked} samples")
    store = _store(home)
    seconds = max(1, asked // gpus)
    with store.write() as connection:
        fetch(connection, "store_bench_cluster", start=_START, gpus=gpus)
    for first in range(0, seconds, 3600):
        length = min(3600, seconds - first)
        _generate(store, _START + timedelta(seconds=first), length, gpus)
    store.age(_START + timedelta(seconds=seconds) + timedelta(hours=5))
    store.publish()
    figures = []
    for query in queries():
        _note(f"asking: {query.name}")
        ours, bare = [], []
        for _ in range(max(1, min(3, repeats))):
            began = time.perf_counter()
            run_query(store, query.name)
            ours.append(time.perf_counter() - began)
            began = time.perf_counter()
            with duckdb.connect(str(store.snapshot_path), read_only=True) as connection:
                bound = query.bind({})
                connection.sql(query.sql, params=bound or None).to_arrow_table()
            bare.append(time.perf_counter() - began)
        mine, theirs = statistics.median(ours), statistics.median(bare)
        figures.append(
            Figure(
                f"query {query.name}, {asked / 1e6:g} M samples",
                f"{mine * 1000:.0f} ms",
                f"{theirs * 1000:.0f} ms on bare DuckDB",
                mine / theirs,
            )
        )
    return figures
