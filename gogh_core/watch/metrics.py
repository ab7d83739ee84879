"""GOGH's own metrics in Prometheus' text format, an endpoint for them, and the alert rules.

The endpoint reads the published snapshot, at most once in `_FRESH_S`; it never opens the database.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib import resources
from typing import Any

from gogh_core.errors import GoghError
from gogh_core.settings import Settings
from gogh_core.store import Store
from gogh_core.watch import readings

__all__ = ["exposition", "rules", "serve"]

_FRESH_S = 5.0
_SILENT = "# HELP gogh_up 1 while figures can be read.\n# TYPE gogh_up gauge\ngogh_up 0\n"
Labels = Mapping[str, str]


@dataclass
class _Page:
    """Lines of the text format; each metric has its help and type once."""

    lines: list[str] = field(default_factory=list)

    def add(self, name: str, kind: str, about: str, values: Sequence[tuple[Labels, Any]]) -> None:
        known = [(labels, value) for labels, value in values if value is not None]
        if not known:
            return
        self.lines += [f"# HELP {name} {about}", f"# TYPE {name} {kind}"]
        for labels, value in known:
            inside = ",".join(f'{key}="{_escaped(text)}"' for key, text in labels.items())
            self.lines.append(f"{name}{{{inside}}} {float(value):.10g}" if inside
                              else f"{name} {float(value):.10g}")  # fmt: skip


def _escaped(text: str) -> str:
    return str(text).replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")


def exposition(store: Store, settings: Settings, *, wall_s: float) -> str:
    """Every metric as text; `wall_s` is the time now, in seconds since 1970."""
    page = _Page()
    published = store.snapshot_path.exists()
    page.add("gogh_up", "gauge", "1 while figures can be read.", [({}, int(published))])
    if published:
        age = max(0.0, wall_s - store.snapshot_path.stat().st_mtime)
        page.add("gogh_published_age_seconds", "gauge",
                 "Seconds since the figures were last published.", [({}, age)])  # fmt: skip
        page.add("gogh_window_seconds", "gauge", "Length of a window.",
                 [({}, settings.cycle.window_s)])  # fmt: skip
        _cycles(page, store)
        _windows(page, store)
        _data(page, store)
    return "\n".join(page.lines) + "\n"


def _cycles(page: _Page, store: Store) -> None:
    states = readings.rows_of(store, "watch_cycles")
    page.add("gogh_cycles_total", "counter", "Cycles by the state they ended in.",
             [({"state": row["state"]}, row["cycles"]) for row in states])  # fmt: skip
    newest = readings.newest(store)
    if newest is None:
        return
    seconds: dict[str, float] = json.loads(newest["seconds"] or "{}")
    page.add("gogh_step_seconds", "gauge", "Seconds each step of the newest cycle took.",
             [({"step": step}, value) for step, value in seconds.items()])  # fmt: skip
    degraded = json.loads(newest["degraded"] or "[]")
    for name, about, value in (
        ("gogh_cycle_seconds", "Seconds of the newest cycle.", sum(seconds.values())),
        ("gogh_degraded", "Things the newest cycle had to do without.", len(degraded)),
        ("gogh_plan_gap_ratio", "Gap between the newest plan and its bound.", newest["gap"]),
        ("gogh_planned_watts", "Draw of the cluster under the newest plan.", newest["power_w"]),
        ("gogh_solve_seconds", "Seconds the newest plan took to find.", newest["solve_s"]),
        ("gogh_moves", "Moves of the newest plan.", newest["moves"]),
        ("gogh_stops", "Stops of the newest plan.", newest["stops"]),
        ("gogh_data_age_seconds", "Age of the data the newest plan used.", newest["data_age_s"]),
    ):
        page.add(name, "gauge", about, [({}, value)])
    page.add("gogh_jobs", "gauge", "Jobs in the newest plan.",
             [({"state": "running"}, newest["running"]),
              ({"state": "waiting"}, newest["waiting"])])  # fmt: skip


def _windows(page: _Page, store: Store) -> None:
    last = readings.last_window(store)
    if last is not None:
        page.add("gogh_measured_watts", "gauge", "Measured draw in the last window.",
                 [({}, last["measured_w"])])  # fmt: skip
        page.add("gogh_covered_ratio", "gauge", "Share of the last window that samples cover.",
                 [({}, last["covered"])])  # fmt: skip
        page.add("gogh_promises_kept_ratio", "gauge",
                 "Share of promised job-seconds of the last window that were kept.",
                 [({}, last["kept"])])  # fmt: skip
    errors: dict[str, float] = {}
    for row in readings.accuracy(store, rows=3):
        errors[str(row["network"])] = row["error"]
    page.add("gogh_estimate_error_ratio", "gauge", "Median relative error by network.",
             [({"network": name}, value) for name, value in errors.items()])  # fmt: skip


def _data(page: _Page, store: Store) -> None:
    sources = readings.rows_of(store, "watch_rows")
    fates = ("clean", "quarantined", "duplicate", "late")
    page.add("gogh_rows_total", "counter", "Rows of telemetry by what became of them.",
             [({"source": row["source"], "fate": fate}, row[fate])
              for row in sources for fate in fates])  # fmt: skip
    page.add("gogh_batches_refused_total", "counter", "Batches refused as a whole.",
             [({"source": row["source"]}, row["refused"]) for row in sources])  # fmt: skip
    held: dict[str, int] = {}
    for row in readings.held(store):
        held[row["table_name"]] = held.get(row["table_name"], 0) + int(row["held"])
    page.add("gogh_quarantine_rows", "gauge", "Rows held in quarantine now.",
             [({"table": name}, count) for name, count in sorted(held.items())]
             or [({"table": "all"}, 0)])  # fmt: skip


def rules() -> str:
    """The alert rules, as Prometheus reads them."""
    return resources.files("gogh_core.watch").joinpath("gogh.rules").read_text(encoding="utf-8")


def serve(settings: Settings, *, host: str, port: int) -> ThreadingHTTPServer:
    """An endpoint at /metrics (and /rules); the caller runs `serve_forever` and closes it."""
    store = Store(settings)
    lock = threading.Lock()
    kept: tuple[float, str] = (-_FRESH_S, "")

    def text() -> str:
        nonlocal kept
        with lock:
            if time.monotonic() - kept[0] >= _FRESH_S:
                try:
                    fresh = exposition(store, settings, wall_s=time.time())
                except GoghError:
                    fresh = _SILENT
                kept = (time.monotonic(), fresh)
            return kept[1]

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            pages = {"/metrics": text, "/rules": rules}
            page = pages.get(self.path)
            body = page().encode() if page else b"see /metrics and /rules\n"
            self.send_response(200 if page else 404)
            self.send_header("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:
            """A scrape every few seconds is no news."""

    return ThreadingHTTPServer((host, port), Handler)
