"""`gogh demo` as a person starts it: a process of its own, all rooms real."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest


def demo(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "gogh_core.cli", "demo", *arguments]


def environment() -> dict[str, str]:
    return {k: v for k, v in os.environ.items() if not k.startswith("GOGH_")}


@pytest.mark.e2e
def test_the_demo_plans_every_window_and_compares(tmp_path: Path) -> None:
    home = tmp_path / "home"
    done = subprocess.run(
        demo("--cycles", "3", "--json", "--home", str(home)),
        capture_output=True,
        env=environment(),
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stderr.decode()
    found = json.loads(done.stdout)
    assert [row["window"] for row in found["cycles"]] == ["09:00", "09:05", "09:10"]
    for row in found["cycles"]:
        assert row["outcome"] == "emitted"
        assert row["running"] > 0
        assert row["measured_w"] > 0
        assert 0 <= row["slo_attainment"] <= 1
        assert {"ingest", "retrain", "estimate", "allocate", "emit"} <= set(row["seconds"])
    assert any(row["estimate_error"] is not None for row in found["cycles"])
    assert set(found["comparison"]) == {
        "gogh", "fcfs", "best_fit_window", "best_fit", "best_fit_tuned", "lucid",
    }  # fmt: skip
    for figures in found["comparison"].values():
        assert figures["j_per_work_s"] > 0
        assert 0 <= figures["slo_attainment"] <= 1
    report = Path(found["report"]).read_text(encoding="utf-8")
    assert "first come, first served" in report
    assert "stand-in" not in report


@pytest.mark.e2e
def test_the_demo_ends_cleanly_when_interrupted(tmp_path: Path) -> None:
    home = tmp_path / "home"
    # A job in the background ignores SIGINT, and its children with it.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    with (tmp_path / "log").open("wb") as log:
        child = subprocess.Popen(
            demo("--home", str(home)),
            stdout=log,
            stderr=log,
            env=environment(),
        )
        signal.signal(signal.SIGINT, before)
        for _ in range(2400):
            if "plan 09:00" in (tmp_path / "log").read_text() or child.poll() is not None:
                break
            time.sleep(0.05)
        child.send_signal(signal.SIGINT)
        assert child.wait(120) == 130
    assert "Traceback" not in (tmp_path / "log").read_text()
