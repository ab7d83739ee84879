"""Prometheus that scrapes a DCGM exporter: `query_range`, page by page from the watermark.

A range query evaluates at fixed steps and repeats the last value for minutes, so the true time of
each scrape is asked for as well (`timestamp(...)`) and every scrape is taken once. After a restart
Prometheus may show scrapes that it had not served before; the last minute before the watermark is
therefore read again, and what is known already is dropped by its key.
"""

from __future__ import annotations

import hashlib
import json
import math
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import duckdb
import httpx
import pyarrow as pa

from gogh_core.errors import SourceUnavailable
from gogh_core.settings import Settings
from gogh_core.store import Store, fetch
from gogh_core.telemetry.parse import Piece

__all__ = ["METRICS", "Page", "advance", "pages"]

SOURCE = "prometheus"
OVERLAP_S = 60.0
_POWER = "DCGM_FI_DEV_POWER_USAGE"
# What DCGM exports -> our column and the factor to its unit.
METRICS: dict[str, tuple[str, float]] = {
    _POWER: ("power_w", 1.0),
    "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION": ("energy_j", 1e-3),
    "DCGM_FI_DEV_GPU_UTIL": ("utilisation", 1e-2),
    "DCGM_FI_DEV_FB_USED": ("memory_used_mb", 1.0),
    "DCGM_FI_DEV_GPU_TEMP": ("temperature_c", 1.0),
    "DCGM_FI_DEV_SM_CLOCK": ("sm_clock_mhz", 1.0),
    "DCGM_FI_DEV_CLOCK_THROTTLE_REASONS": ("throttle_reasons", 1.0),
}
_MAX_BYTES = 512 * 2**20


@dataclass(frozen=True, slots=True)
class Page:
    """Samples of one stretch of time, and the watermark after it."""

    piece: Piece
    rows: pa.Table
    until: datetime


def pages(store: Store, settings: Settings, *, now: datetime) -> Iterator[Page]:
    """Everything between the watermark and now, less what may still be missing."""
    telemetry = settings.telemetry
    with store.read() as connection:
        rows = fetch(connection, "telemetry_watermark", source=SOURCE).to_pylist()
    until = now - timedelta(seconds=telemetry.prometheus_delay_s)
    page = timedelta(seconds=telemetry.prometheus_page_s)
    if rows:
        start = rows[0]["ts"].astimezone(UTC) - timedelta(seconds=OVERLAP_S)
    else:
        start = until - timedelta(seconds=telemetry.late_s)
    with _client(settings) as client:
        while start < until:
            end = min(start + page, until)
            samples = _samples(client, settings, start, end)
            piece = _piece(samples, start, end)
            part = pa.array([0] * len(piece.cells), pa.int32())
            yield Page(piece, piece.cells.append_column("part", part), end)
            start = end


def advance(connection: duckdb.DuckDBPyConnection, page: Page, *, now: datetime) -> None:
    """Move the watermark, in the transaction that stores the page."""
    fetch(connection, "telemetry_advance", source=SOURCE, ts=page.until, now=now)


def _client(settings: Settings) -> httpx.Client:
    telemetry = settings.telemetry
    headers = {}
    if telemetry.prometheus_token is not None:
        headers["Authorization"] = f"Bearer {telemetry.prometheus_token.get_secret_value()}"
    verify: bool | Any = True
    if telemetry.prometheus_ca is not None:
        import ssl

        try:
            verify = ssl.create_default_context(cafile=str(telemetry.prometheus_ca))
        except (OSError, ssl.SSLError) as error:
            raise SourceUnavailable(
                f"CA file cannot be used: {error}", where=str(telemetry.prometheus_ca)
            ) from error
    return httpx.Client(
        base_url=str(telemetry.prometheus_url).rstrip("/"),
        headers=headers,
        timeout=telemetry.timeout_s,
        verify=verify,
        follow_redirects=False,
        trust_env=False,
    )


def _ask(
    client: httpx.Client, settings: Settings, query: str, start: float, end: float
) -> list[Any]:
    """One range query; time-outs and server errors are tried again, a refusal is not."""
    step = settings.telemetry.sample_period_s / 2
    form = {"query": query, "start": f"{start:.3f}", "end": f"{end:.3f}", "step": f"{step:.3f}"}
    where = str(settings.telemetry.prometheus_url)
    trouble = ""
    for attempt in range(settings.telemetry.retries + 1):
        if attempt:
            time.sleep(min(0.2 * 2**attempt, 5.0))
        try:
            with client.stream("POST", "/api/v1/query_range", data=form) as answer:
                body = bytearray()
                for part in answer.iter_bytes():
                    body += part
                    if len(body) > _MAX_BYTES:
                        raise SourceUnavailable("answers with too much data", where=where)
            if answer.status_code in (401, 403):
                raise SourceUnavailable(
                    f"refuses us ({answer.status_code})", where=where, todo="see prometheus_token"
                )
            raw = json.loads(bytes(body))
            if raw.get("status") == "success":
                result = raw["data"]["result"]
                return list(result)
            trouble = str(raw.get("error") or raw)[:200]
            if answer.status_code in (400, 422):
                break
        except (httpx.HTTPError, ValueError, KeyError, TypeError, AttributeError) as error:
            trouble = f"{type(error).__name__}: {error}"
    raise SourceUnavailable(f"gives no answer ({trouble})", where=where)


def _samples(
    client: httpx.Client, settings: Settings, start: datetime, end: datetime
) -> list[dict[str, Any]]:
    """One row for each GPU and scrape."""
    lo, hi = start.timestamp(), end.timestamp()
    times: dict[tuple[str, str], dict[float, float]] = {}
    rows: dict[tuple[str, str, float], dict[str, Any]] = {}
    for series in _ask(client, settings, f"timestamp({_POWER})", lo, hi):
        key = _gpu(series["metric"])
        times[key] = {float(at): float(ts) for at, ts in series["values"]}
    for metric, (column, factor) in METRICS.items():
        for series in _ask(client, settings, metric, lo, hi):
            labels = series["metric"]
            key = _gpu(labels)
            true = times.get(key, {})
            for at, value in series["values"]:
                ts = true.get(float(at))
                if ts is None or not lo < ts <= hi:
                    continue
                row = rows.setdefault(
                    (*key, ts),
                    {
                        "ts": ts,
                        "server_id": key[0],
                        "gpu_index": key[1],
                        "gpu_type": labels.get("modelName"),
                    },
                )
                row[column] = float(value) * factor
    return [rows[key] for key in sorted(rows, key=lambda key: (key[2], key[0], key[1]))]


def _gpu(labels: dict[str, str]) -> tuple[str, str]:
    host = labels.get("Hostname") or labels.get("instance", "").rsplit(":", 1)[0]
    return host, labels.get("gpu", "")


_COLUMNS = {
    "ts": pa.timestamp("us", "UTC"),
    "server_id": pa.string(),
    "gpu_index": pa.int32(),
    "gpu_type": pa.string(),
    "power_w": pa.float64(),
    "energy_j": pa.float64(),
    "utilisation": pa.float64(),
    "memory_used_mb": pa.float64(),
    "temperature_c": pa.float64(),
    "sm_clock_mhz": pa.float64(),
    "throttle_reasons": pa.int64(),
    "processes": pa.int32(),
}


def _cell(row: dict[str, Any], name: str) -> Any:
    value = row.get(name)
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return None
    if name == "ts":
        return datetime.fromtimestamp(value, UTC)
    if name in ("gpu_index", "throttle_reasons"):
        return int(value) if str(value).replace(".", "", 1).isdigit() else None
    return value


def _piece(samples: list[dict[str, Any]], start: datetime, end: datetime) -> Piece:
    count = len(samples)
    columns = {
        name: pa.array([_cell(row, name) for row in samples], kind)
        for name, kind in _COLUMNS.items()
    }
    table = pa.table(
        {
            "line": pa.array(range(1, count + 1), pa.int64()),
            **columns,
            "parse_error": pa.nulls(count, pa.string()),
            "raw": pa.nulls(count, pa.string()),
        }
    )
    digest = hashlib.sha256(json.dumps(samples, sort_keys=True).encode()).hexdigest()
    return Piece(
        SOURCE, "gpu_samples", table, start.isoformat(), end.isoformat(), digest, form="rows"
    )
