"""A small cluster for the tests: servers, jobs, a spool, and one ingest."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from gogh_core.contracts import load_suites
from gogh_core.domain import (
    ClusterState,
    Descriptors,
    Job,
    JobState,
    JobStatus,
    Server,
    ServerStatus,
    Slot,
)
from gogh_core.settings import Settings, load
from gogh_core.store import Store, fetch
from gogh_core.telemetry import IngestReport, record_state
from gogh_core.telemetry.ingest import ingest_spool
from gogh_core.telemetry.observe import observe
from gogh_core.telemetry.retain import clean_spool, known_files
from gogh_core.telemetry.skew import Clocks

START = datetime(2026, 1, 5, 9, 0, tzinfo=UTC)
HEADER = "ts,server_id,gpu_index,gpu_type,power_w,energy_j,utilisation"


def at(seconds: float) -> datetime:
    return START + timedelta(seconds=seconds)


def stamp(seconds: float) -> str:
    return at(seconds).strftime("%Y-%m-%dT%H:%M:%S.%f")[:-3] + "Z"


def state_of(
    servers: Iterable[tuple[str, str, int]],
    jobs: Iterable[tuple[str, tuple[Slot, ...]]] = (),
    *,
    now: datetime = START,
) -> ClusterState:
    return ClusterState(
        now,
        tuple(ServerStatus(Server(name, kind, gpus, 200.0)) for name, kind, gpus in servers),
        tuple(
            JobStatus(
                Job(job, Descriptors("ResNet-18", 64), START - timedelta(seconds=60)),
                JobState.RUNNING if slots else JobState.WAITING,
                slots,
                since=START if slots else None,
            )
            for job, slots in jobs
        ),
    )


def opened(
    home: Path, state: ClusterState | None = None, **telemetry: Any
) -> tuple[Settings, Store]:
    """Settings and a store that knows the state's servers and jobs."""
    settings = load(home=home, telemetry=telemetry)
    store = Store(settings)
    store.migrate()
    if state is not None:
        record_state(store, settings, state, now=state.at)
    return settings, store


def put(settings: Settings, name: str, data: str | bytes, *, age_s: float = 600.0) -> Path:
    """A file of the spool that was last written some time ago."""
    path = settings.spool / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data.encode() if isinstance(data, str) else data)
    then = datetime.now(UTC).timestamp() - age_s
    os.utime(path, (then, then))
    return path


def sample(
    seconds: float,
    server: str = "s1",
    gpu: object = 0,
    kind: str = "v100",
    power: object = 100.0,
    energy: object = None,
) -> str:
    energy = 1000 + 100 * seconds if energy is None else energy
    return f"{stamp(seconds)},{server},{gpu},{kind},{power},{energy},0.5"


def csv(lines: Iterable[str], header: str = HEADER) -> str:
    return "\n".join([header, *lines]) + "\n"


def take_in(settings: Settings, store: Store, now: datetime) -> IngestReport:
    """The spool only: no records, no observations."""
    suites = load_suites(settings)
    with store.read() as connection:
        clocks, known = Clocks(connection), known_files(connection)
    reports = ingest_spool(store, settings, suites, now=now, clocks=clocks, known=known)
    with store.write() as connection:
        return IngestReport(tuple(reports), 0, clocks.settle(connection, now))


def observed_now(settings: Settings, store: Store, now: datetime) -> int:
    """How many observations there were to compute."""
    with store.write() as connection:
        return observe(connection, settings, now=now)


def cleaned(
    settings: Settings,
    store: Store,
    tell: Callable[[str], None] = print,
    now: datetime = START,
) -> int:
    """How many files left the spool."""
    with store.read() as connection:
        known = known_files(connection)
    return clean_spool(store, settings, known, now=now, tell=tell)


def rows_of(store: Store, query: str) -> list[tuple[Any, ...]]:
    with store.read() as connection:
        return connection.execute(query).fetchall()


def ledger(store: Store, source: str) -> dict[str, Any]:
    """The ledger's counts of one source, its statuses and details."""
    with store.read() as connection:
        listed = fetch(connection, "telemetry_ledger_of", source=source).to_pylist()
    assert listed, f"{source} is not in the ledger"
    counts = ("rows_in", "rows_clean", "rows_quarantined", "rows_duplicate", "rows_late")
    found: dict[str, Any] = {name: sum(row[name] for row in listed) for name in counts}
    found["status"] = [row["status"] for row in listed]
    found["detail"] = "; ".join(row["detail"] or "" for row in listed)
    return found


def adds_up(store: Store) -> bool:
    return not rows_of(
        store,
        "SELECT * FROM ingest_batches WHERE rows_in <> "
        "rows_clean + rows_quarantined + rows_duplicate + rows_late",
    )
