"""Two runs of one seed are the same run, however busy the machine is."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

_OF_THE_RUN = {"seconds", "home", "report"}
"""What a run took and where it is kept."""
_BURN = "while True:\n    pass"


def figures(value: Any) -> Any:
    """All figures but those of the machine."""
    if isinstance(value, dict):
        return {name: figures(v) for name, v in value.items() if name not in _OF_THE_RUN}
    return [figures(each) for each in value] if isinstance(value, list) else value


def run_demo(hash_seed: str) -> Any:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("GOGH_")}
    done = subprocess.run(
        [sys.executable, "-m", "gogh_core.cli", "demo", "--cycles", "3", "--seed", "4", "--json"],
        env={**kept, "PYTHONHASHSEED": hash_seed},
        capture_output=True,
        timeout=600,
        check=True,
    )
    return figures(json.loads(done.stdout))


@pytest.mark.e2e
def test_a_seed_ends_with_the_same_figures_on_a_busy_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    quiet = run_demo("1")
    with subprocess.Popen([sys.executable, "-c", _BURN]) as burner:
        try:
            busy = run_demo("2")
        finally:
            burner.kill()
    assert busy == quiet
    assert len(quiet["cycles"]) == 3
