"""The embedded cluster keeps what every cluster manager has to keep."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from gogh_core.domain import ClusterState, JobState, Mode
from gogh_core.settings import SimulationSettings
from gogh_core.simulation import SimulatedCluster
from tests.cluster.contract import ManagerContract, Site

SETTINGS = SimulationSettings(servers=12, jobs_per_hour=600, seed=4)


class _VirtualSite(Site):
    """Waiting means that the virtual clock goes on."""

    def until(self, holds: Callable[[ClusterState], bool]) -> ClusterState:
        assert isinstance(self.manager, SimulatedCluster)
        for _ in range(30):
            state = self.manager.state()
            if holds(state):
                return state
            self.manager.advance(10)
        raise AssertionError(f"never came true; last: {state}")


class TestSimulatedCluster(ManagerContract):
    """All of the contract."""

    @pytest.fixture
    def site(self, tmp_path: Path) -> Site:
        cluster = SimulatedCluster(tmp_path, SETTINGS)
        cluster.advance(600)
        fitting = [
            status.job.id
            for status in cluster.state().jobs
            if status.state is JobState.WAITING
            and status.job.mode is Mode.GANG
            and status.job.gpu_counts == (1, 2)
            and status.job.shareable is True
            and status.job.movable
        ]
        assert len(fitting) >= 3
        return _VirtualSite(cluster, tuple(fitting[:3]), ("a100-02", "h100-01", "k80-02"))
