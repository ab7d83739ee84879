"""The room's front door: what it exports, and that it opens without torch."""

from __future__ import annotations

import subprocess
import sys

import gogh_core.estimation as room

WANTED = {
    "Catalog", "Estimator", "PowerModel", "Registry", "RetrainReport", "estimate_table",
    "load_catalog", "load_estimator", "retrain",
}  # fmt: skip


def test_the_promised_names_are_exported_and_exist() -> None:
    assert set(room.__all__) >= WANTED
    assert all(hasattr(room, name) for name in room.__all__)


def test_importing_the_room_does_not_load_torch() -> None:
    code = "import sys, gogh_core.estimation; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
