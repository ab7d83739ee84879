"""Prometheus for real, over TLS: pulled from the watermark, stopped in the middle, with a token."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from gogh_core.contracts import load_suites
from gogh_core.settings import Settings, load
from gogh_core.store import Store
from gogh_core.telemetry import record_state
from gogh_core.telemetry.ingest import ingest_prometheus
from gogh_core.telemetry.report import SourceReport
from tests.e2e.telemetry.dcgm import Exporter, Gate, Prometheus, wait_for
from tests.telemetry.world import adds_up, rows_of, state_of

pytestmark = pytest.mark.e2e

STATE = state_of([("n1", "v100", 2), ("n2", "t4", 1)])


@pytest.fixture(scope="module")
def prometheus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    exporter = Exporter()
    server = Prometheus(tmp_path_factory.mktemp("prometheus"), exporter.port)
    server.start()
    yield server
    server.stop()
    exporter.close()


def opened(tmp_path: Path, url: str, ca: Path | None, **more: Any) -> tuple[Settings, Store]:
    telemetry = {
        "prometheus_url": url,
        "prometheus_ca": ca,
        "prometheus_delay_s": 2.0,
        "prometheus_page_s": 60,
        "late_s": 120.0,
        "timeout_s": 20.0,
        "retries": 1,
        **more,
    }
    settings = load(home=tmp_path / "home", telemetry=telemetry)
    store = Store(settings)
    store.migrate()
    record_state(store, settings, STATE, now=datetime.now(UTC))
    return settings, store


def pull(settings: Settings, store: Store) -> SourceReport:
    suite = load_suites(settings)["gpu_samples"]
    return ingest_prometheus(store, settings, suite, datetime.now(UTC))


def stored(store: Store) -> set[tuple[str, int, float]]:
    rows = rows_of(store, "SELECT server_id, gpu_index, epoch(ts) FROM gpu_samples")
    return {(server, gpu, round(ts, 3)) for server, gpu, ts in rows}


def test_every_scrape_is_taken_once_though_prometheus_is_restarted(
    prometheus: Prometheus, tmp_path: Path
) -> None:
    settings, store = opened(tmp_path, prometheus.url, prometheus.ca)
    began = time.time() - 1
    wait_for(lambda: len(prometheus.scrapes(began, time.time())) >= 24, "scrapes")
    first = pull(settings, store)
    assert first.ok, first
    assert first.rows_clean > 0
    again = pull(settings, store)
    assert again.rows_duplicate > 0, "the overlap is read again"
    prometheus.stop()
    down = pull(settings, store)
    assert down.unavailable is not None
    assert down.rows_in == 0
    prometheus.start()
    restarted = time.time()
    wait_for(
        lambda: len(prometheus.scrapes(restarted, time.time())) >= 24, "scrapes after the restart"
    )
    # Compare what Prometheus itself says is final: older than the delay, after one more pull.
    final = time.time()
    wait_for(lambda: time.time() > final + 3.0, "the delay")
    assert pull(settings, store).ok
    assert pull(settings, store).ok
    theirs = prometheus.scrapes(began, final)
    ours = {row for row in stored(store) if began < row[2] <= final}
    assert ours == theirs
    assert rows_of(store, "SELECT count(*) FROM gpu_samples") == [(len(stored(store)),)]
    assert adds_up(store)
    kinds = rows_of(
        store,
        "SELECT DISTINCT server_id, gpu_type, power_w, utilisation, memory_used_mb "
        "FROM gpu_samples ORDER BY ALL",
    )
    assert kinds == [("n1", "v100", 120.0, 0.87, 4096.0), ("n2", "t4", 50.0, 0.87, 4096.0)]
    ledger = rows_of(store, "SELECT count(*) FROM ingest_batches WHERE source = 'prometheus'")
    assert ledger[0][0] >= 4


def test_through_a_gate_that_wants_a_token_every_scrape_comes(
    prometheus: Prometheus, tmp_path: Path
) -> None:
    began = time.time() - 1
    wait_for(lambda: len(prometheus.scrapes(began, time.time() - 2)) >= 6, "scrapes")
    gate = Gate(prometheus, "secret")
    settings, store = opened(tmp_path, gate.url, prometheus.ca, prometheus_token="secret")
    first = pull(settings, store)
    assert first.ok, first
    assert first.rows_clean >= 6
    wrong, _ = opened(tmp_path, gate.url, prometheus.ca, prometheus_token="hunter2")
    refused = pull(wrong, store)
    gate.close()
    assert len(gate.tokens) > 8, "the 503 is tried again"
    assert refused.unavailable is not None
    assert "refuses us (401)" in refused.unavailable
    assert "hunter2" not in refused.unavailable + repr(wrong)


def test_a_server_whose_certificate_is_not_ours_is_not_asked(
    prometheus: Prometheus, tmp_path: Path
) -> None:
    settings, store = opened(tmp_path, prometheus.url, None, prometheus_token="secret")
    found = pull(settings, store)
    assert found.unavailable is not None
    assert "certificate verify failed" in found.unavailable.lower()
    assert rows_of(store, "SELECT count(*) FROM gpu_samples") == [(0,)]


def test_a_missing_ca_file_is_told(tmp_path: Path) -> None:
    settings, store = opened(tmp_path, "https://127.0.0.1:9", tmp_path / "none.pem")
    found = pull(settings, store)
    assert found.unavailable is not None
    assert "CA file" in found.unavailable
