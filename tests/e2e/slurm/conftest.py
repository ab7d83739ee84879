"""One Slurm for all tests of this folder, clean before each of them."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from gogh_core.cluster.slurm import SlurmManager
from gogh_core.settings import (
    ClusterSettings,
    GuardSettings,
    Settings,
    SlurmSettings,
    StoreSettings,
    load,
)
from gogh_core.store import Store
from tests.e2e.slurm.lab import NODES, Lab
from tests.e2e.slurm.work import prepare


@pytest.fixture(scope="session")
def lab() -> Iterator[Lab]:
    """Real daemons; they are ended when the tests are."""
    # A short path: that of munge's socket must not be longer than 108 characters.
    root = Path(tempfile.mkdtemp(prefix="gogh-", dir="/tmp"))
    lab = Lab(root / "slurm")
    try:
        lab.start()
        prepare(lab)
        yield lab
    finally:
        lab.stop()
        shutil.rmtree(root, ignore_errors=True)


@pytest.fixture
def slurm(lab: Lab) -> Lab:
    """The same Slurm with an empty queue and every node idle."""
    lab.slurm("scancel", "--user", "root", check=False)
    lab.wait(lambda: not lab.slurm("squeue", "-h").strip(), "an empty queue")
    for node in NODES:
        state = lab.node_state(node)
        if "POWER" in state:
            if "POWERING_DOWN" in state:
                lab.wait(lambda n=node: "POWERED_DOWN" in lab.node_state(n), f"{node} off")  # type: ignore[misc]
            lab.slurm("scontrol", "update", f"nodename={node}", "state=power_up", check=False)
        elif lab.node_pid(node) is None:
            lab.start_node(node)
        if "DOWN" in state or "DRAIN" in state:
            lab.slurm("scontrol", "update", f"nodename={node}", "state=resume", check=False)
    for node in NODES:
        lab.wait(lambda n=node: lab.node_state(n) == "IDLE", f"{node} idle")  # type: ignore[misc]
    return lab


@pytest.fixture
def settings(tmp_path: Path, lab: Lab) -> Settings:
    """Acts on the lab's Slurm, without the guards that keep young jobs from moving."""
    return load(
        home=tmp_path / "home",
        cluster=ClusterSettings(manager="slurm", mode="act"),
        slurm=SlurmSettings(conf=lab.conf, timeout_s=10, action_timeout_s=90),
        guards=GuardSettings(min_runtime_s=0, cooldown_s=0),
        store=StoreSettings(lock_timeout_s=60),
    )


@pytest.fixture
def store(settings: Settings) -> Store:
    store = Store(settings)
    store.migrate()
    return store


@pytest.fixture
def manager(settings: Settings, slurm: Lab) -> SlurmManager:
    return SlurmManager(settings)
