"""What all tests share: settings of their own, and where the real measurements are."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gogh_core import settings as settings_module
from gogh_core.settings import Settings, load

os.environ.setdefault("PREFECT_SERVER_ANALYTICS_ENABLED", "false")
os.environ.setdefault("DO_NOT_TRACK", "1")

UMASK = os.umask(0o022)
os.umask(UMASK)
PROJECT = Path(__file__).resolve().parent.parent


def own_settings(home: Path, **sections: Any) -> Settings:
    """Settings as they are by default, whatever GOGH_* a stack of the same session has set."""
    with pytest.MonkeyPatch.context() as patch:
        for name in [name for name in os.environ if name.startswith("GOGH_")]:
            patch.delenv(name)
        return load(home=home, **sections)


@pytest.fixture(autouse=True)
def _own_umask(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A command that runs in this process keeps its files private; no other test inherits that."""
    monkeypatch.setattr(settings_module, "_private", False)
    os.umask(UMASK)
    yield
    os.umask(UMASK)


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    """Settings whose home is a fresh folder."""
    return own_settings(tmp_path / "home")


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The folder of real measurements; a test that needs it skips where it is missing."""
    path = Path(os.environ.get("GOGH_DATA") or PROJECT.parent / "shared" / "data")
    if not (path / "throughput.parquet").exists():
        pytest.skip("needs the measurements (throughput.parquet and others): set GOGH_DATA")
    return path


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """An end-to-end test that skips has shown nothing: with GOGH_E2E it fails instead."""
    if os.environ.get("GOGH_E2E") and report.skipped and "e2e" in report.keywords:
        report.outcome = "failed"
