"""Ingest: records of the manager, every file of the spool, Prometheus; then what they amount to.

`ingest` is what a cycle calls. Each source fails on its own: a source that gives no answer is
`unavailable`, a batch that breaks its contract is `refused`, and the others go on. The report adds
up: rows in = clean + quarantined + duplicate + late.
"""

from __future__ import annotations

import gc
import hashlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import replace
from datetime import datetime, timedelta

import duckdb
import pyarrow as pa

from gogh_core.contracts import Suite, load_suites
from gogh_core.domain import ClusterState
from gogh_core.errors import BatchRefused, GoghError, SourceUnavailable
from gogh_core.settings import Settings
from gogh_core.store import Store, fetch
from gogh_core.telemetry import prometheus, skew
from gogh_core.telemetry.changes import record_changes
from gogh_core.telemetry.early import SLACK_S, due_rows, forget_due
from gogh_core.telemetry.measure import measure
from gogh_core.telemetry.observe import observe
from gogh_core.telemetry.parse import SPILL, Limits, Piece
from gogh_core.telemetry.provenance import Writers, prepare_spool
from gogh_core.telemetry.reader import Reader, Refusal, reader
from gogh_core.telemetry.reading import reason_of
from gogh_core.telemetry.records import keep_records
from gogh_core.telemetry.report import IngestReport, SourceReport
from gogh_core.telemetry.retain import clean_spool, known_files
from gogh_core.telemetry.spool import (
    FOLDERS,
    Found,
    Position,
    head_sha256,
    open_safely,
    scan,
    strays,
)
from gogh_core.telemetry.take import store_positions, take, without
from gogh_core.telemetry.text import BLOCK_BYTES

__all__ = ["CHUNK_ROWS", "ingest", "ingest_due", "ingest_prometheus", "ingest_spool"]

CHUNK_ROWS = 300_000
_NEVER_LATE_S = 1e9  # rows that waited here are not late
_MANY_ROWS = 100_000  # after so many, memory is given back before the next batch


Tell = Callable[[str], None]


def ingest(
    store: Store,
    settings: Settings,
    *,
    now: datetime,
    state: ClusterState | None = None,
    tell: Tell = lambda _: None,
) -> IngestReport:
    """Take in everything new, and compute the windows and observations it touches.

    Each opening of the database costs what some thousand rows cost, so there are few; and Arrow's
    own allocator takes five times as long for memory it has not touched as the system's.
    """
    pa.set_memory_pool(pa.system_memory_pool())
    suites = load_suites(settings)
    reports: list[SourceReport] = []
    if state is not None:
        reports.append(keep_records(store, settings, state, suites=suites, now=now))
    with store.read() as connection:
        clocks, known = skew.Clocks(connection), known_files(connection)
        until = now + timedelta(seconds=SLACK_S)
        due = fetch(connection, "telemetry_due_tables", until=until)["table_name"].to_pylist()
    if due:
        reports.append(ingest_due(store, settings, suites, due, now=now))
    reports.extend(
        ingest_spool(store, settings, suites, now=now, clocks=clocks, known=known, tell=tell)
    )
    if settings.telemetry.prometheus_url is not None:
        reports.append(ingest_prometheus(store, settings, suites["gpu_samples"], now))
    with store.write() as connection:
        skews = clocks.settle(connection, now)
        if state is not None:
            record_changes(connection, settings, state)
        measure(connection, settings, now=now)
        observations = observe(connection, settings, now=now, suite=suites["observations"])
    removed = clean_spool(store, settings, known, now=now, tell=tell)
    return IngestReport(tuple(reports), observations, skews, removed)


def ingest_due(
    store: Store, settings: Settings, suites: Mapping[str, Suite], due: list[str], *, now: datetime
) -> SourceReport:
    """Rows that came before their time and whose time has come."""
    report = SourceReport("early")
    for table in sorted(due):
        found = due_rows(store, settings, table, now=now, limit=CHUNK_ROWS)
        if found is None:
            continue
        piece, rows, ids = found
        with store.write() as connection:
            taken = take(
                connection,
                suites[table],
                [piece],
                rows,
                known={},
                now=now,
                late_s=_NEVER_LATE_S,
                period_s=settings.telemetry.sample_period_s,
                window_s=settings.cycle.window_s,
            )
            forget_due(connection, ids)
        for _, counts in taken.counts:
            report = report.plus(counts, taken.warnings)
        report = replace(report, refused=(*report.refused, *taken.refused))
    return report


def ingest_spool(
    store: Store,
    settings: Settings,
    suites: Mapping[str, Suite],
    *,
    now: datetime,
    clocks: skew.Clocks,
    known: dict[str, Position],
    tell: Tell = lambda _: None,
) -> list[SourceReport]:
    """Take in what is new in the spool, folder by folder; `known` is kept up to date."""
    if not settings.spool.exists():
        return []
    prepare_spool(settings)
    writers = Writers(settings)
    listed = list(scan(settings.spool, max_file_mb=settings.telemetry.max_file_mb))
    reports = {folder: SourceReport(folder) for folder in FOLDERS}
    seen: set[str] = set()
    fresh = [writers.judged(e) for e in listed if not e.unchanged(known.get(e.key))]
    with reader(_limits(settings)) if fresh else nullcontext() as reading:
        for folder in FOLDERS:
            found = [entry for entry in fresh if entry.folder == folder]
            if found and reading is not None:
                seen.add(folder)
                run = _Run(
                    store,
                    settings,
                    suites[FOLDERS[folder]],
                    known=known,
                    now=now,
                    clocks=clocks,
                    reading=reading,
                    writers=writers,
                )
                reports[folder] = run.folder(reports[folder], found, tell)
    found_out = _outside(settings)
    return [*found_out, *(report for folder, report in reports.items() if folder in seen)]


def _limits(settings: Settings) -> Limits:
    telemetry = settings.telemetry
    return Limits(
        telemetry.max_unpacked_mb,
        telemetry.max_rows,
        telemetry.read_limit_s,
        telemetry.read_memory_mb,
        batch_rows=CHUNK_ROWS,
        block_bytes=BLOCK_BYTES,
    )


def _outside(settings: Settings) -> list[SourceReport]:
    """A warning when something lies where nothing is read."""
    names = strays(settings.spool)
    if not names:
        return []
    more = f" and {len(names) - 5} more" if len(names) > 5 else ""
    told = f"{', '.join(names[:5])}{more} not read: a file belongs into one of {', '.join(FOLDERS)}"
    return [SourceReport("spool", warnings=(told,))]


@contextmanager
def _forgetting(many: bool) -> Iterator[None]:
    """Give memory back afterwards: validations leave cycles that hold their frames.

    What was there before is not searched, which would take longer than the checks.
    """
    if not many:
        yield
        return
    gc.freeze()
    try:
        yield
        gc.collect()
        pa.default_memory_pool().release_unused()
    finally:
        gc.unfreeze()


class _Run:
    """The files of one folder, gathered into batches."""

    def __init__(
        self,
        store: Store,
        settings: Settings,
        suite: Suite,
        *,
        known: dict[str, Position],
        now: datetime,
        clocks: skew.Clocks,
        reading: Reader,
        writers: Writers,
    ) -> None:
        self._store = store
        self._settings = settings
        self._suite = suite
        self._known = known
        self._now = now
        self._clocks = clocks
        self._reading = reading
        self._writers = writers

    def folder(self, report: SourceReport, found: list[Found], tell: Tell) -> SourceReport:
        """Everything new in these files; each that cannot be used is refused on its own."""
        by_key = {entry.key: entry for entry in found}
        readable = [entry for entry in found if entry.refused is None]
        for entry in found:
            if entry.refused is not None:
                report = self._refuse(report, entry, entry.refused)
        answers = self._reading.read(
            readable,
            self._known,
            period_s=self._settings.telemetry.sample_period_s,
            spill=self._settings.home / SPILL,
        )
        for answer in answers:
            if isinstance(answer, Refusal):
                report = self._refuse(report, answer.found, answer.why)
                continue
            files = [by_key[piece.source] for piece in answer.pieces]
            rows = self._writers.marked(answer.rows, files)
            report = self._take(report, answer.pieces, rows, by_key)
            if len(answer.rows) >= CHUNK_ROWS:
                tell(f"{report.name}: {report.rows_in} rows")
        return report

    def _take(
        self, report: SourceReport, pieces: list[Piece], rows: pa.Table, by_key: Mapping[str, Found]
    ) -> SourceReport:
        """Store a batch; where that fails its files are tried apart, and the one at fault refused.

        What is wrong with the store and not with the rows is no reason to refuse a file.
        """
        try:
            return self._store_batch(report, pieces, rows)
        except (GoghError, OSError, duckdb.IOException, duckdb.FatalException):
            raise
        except Exception as error:  # noqa: BLE001 - whatever a file does, that file is refused
            self._clocks.forget()
            sources = list(dict.fromkeys(piece.source for piece in pieces))
            if len(sources) == 1:
                return self._refuse(report, by_key[sources[0]], reason_of(error))
            for half in (sources[: len(sources) // 2], sources[len(sources) // 2 :]):
                kept = [n for n, piece in enumerate(pieces) if piece.source in set(half)]
                own = [pieces[n] for n in kept]
                report = self._take(report, own, without(rows, kept), by_key)
            return report

    def _store_batch(
        self, report: SourceReport, pieces: list[Piece], rows: pa.Table
    ) -> SourceReport:
        rows = self._clocks.corrected(rows, pieces)
        with _forgetting(len(rows) >= _MANY_ROWS), self._store.write() as connection:
            taken = take(
                connection,
                self._suite,
                pieces,
                rows,
                known=self._known,
                now=self._now,
                late_s=self._settings.telemetry.late_s,
                early_s=self._settings.telemetry.early_s,
                period_s=self._settings.telemetry.sample_period_s,
                window_s=self._settings.cycle.window_s,
            )
            self._clocks.keep(connection)
        for position in taken.positions:
            self._known[position.path] = position
        for _, counts in taken.counts:
            report = report.plus(counts, taken.warnings)
        return replace(report, refused=(*report.refused, *taken.refused))

    def _refuse(self, report: SourceReport, entry: Found, why: str) -> SourceReport:
        """A file that is not what it should be: the ledger says so, the file stays."""
        before = self._known.get(entry.key)
        head = ""
        if entry.refused is None:
            with suppress(BatchRefused), open_safely(entry.path) as stream:
                head = head_sha256(stream, min(entry.size, 4096))
        position = replace(
            before or Position(entry.key, head, min(entry.size, 4096)),
            size=entry.size,
            mtime_ns=entry.mtime_ns,
            status="refused",
            detail=why,
            updated_s=None,
        )
        identity = f"{entry.key}|{entry.size}|{entry.mtime_ns}|{why}"
        with self._store.write() as connection:
            fetch(
                connection,
                "telemetry_refused_file",
                batch_id=hashlib.sha256(identity.encode()).hexdigest()[:24],
                source=entry.key,
                table=entry.table,
                checksum=head,
                detail=why,
                now=self._now,
            )
            store_positions(connection, [position], self._now)
        self._known[entry.key] = position
        return replace(report, refused=(*report.refused, f"{entry.key}: {why}"))


def ingest_prometheus(
    store: Store, settings: Settings, suite: Suite, now: datetime
) -> SourceReport:
    """What Prometheus has since the watermark, page by page; each page is one transaction."""
    report = SourceReport("prometheus")
    try:
        for page in prometheus.pages(store, settings, now=now):
            with store.write() as connection:
                taken = take(
                    connection,
                    suite,
                    [page.piece],
                    page.rows,
                    known={},
                    now=now,
                    late_s=settings.telemetry.late_s,
                    early_s=settings.telemetry.early_s,
                    period_s=settings.telemetry.sample_period_s,
                    window_s=settings.cycle.window_s,
                )
                prometheus.advance(connection, page, now=now)
            for _, counts in taken.counts:
                report = report.plus(counts, taken.warnings)
            report = replace(report, refused=(*report.refused, *taken.refused))
    except SourceUnavailable as error:
        report = replace(report, unavailable=str(error))
    return report
