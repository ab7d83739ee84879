"""The contract of every manager, on those that need no daemon."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from gogh_core.cluster import Capabilities, state_from_dict, state_to_dict
from gogh_core.cluster.files import FilesManager, write_whole
from gogh_core.domain import ClusterState, JobState, PowerState, Slot
from gogh_core.settings import Settings
from tests.cluster.contract import ManagerContract, Site
from tests.cluster.fake import NOW, Fake, server, waiting


class TestFake(ManagerContract):
    """The cluster in memory that this room's own tests stand on."""

    @pytest.fixture
    def site(self) -> Site:
        fake = Fake.of(
            [server("s1"), server("s2"), server("s3")], [waiting("a"), waiting("b"), waiting("c")]
        )
        return Site(fake, ("a", "b", "c"), ("s1", "s2", "s3"), patience_s=1)


class SiteAgent(FilesManager):
    """What a site runs: it takes the files of actions as they come and writes its state."""

    def __init__(self, settings: Settings, state: ClusterState) -> None:
        super().__init__(settings)
        self._written = settings.plans
        self._done: set[str] = set()
        self._write(state)

    def _write(self, state: ClusterState) -> None:
        write_whole(self._written / "state.json", json.dumps(state_to_dict(state)))

    def state(self) -> ClusterState:
        for path in sorted(self._written.glob("*.action.json")):
            if path.name not in self._done:
                self._done.add(path.name)
                self._apply(json.loads(path.read_text()))
        return super().state()

    def _apply(self, action: dict) -> None:
        state = super().state()
        jobs, servers = [], []
        for status in state.jobs:
            if status.job.id == action.get("job"):
                slots = tuple(Slot.from_dict(slot) for slot in action["slots"])
                kind = JobState.RUNNING if slots else JobState.WAITING
                jobs.append(replace(status, state=kind, slots=slots, since=NOW))
            else:
                jobs.append(status)
        for status in state.servers:
            if status.server.id == action.get("server") and action["action"] in ("on", "off"):
                servers.append(replace(status, power=PowerState(action["action"])))
            else:
                servers.append(status)
        self._write(ClusterState(NOW, tuple(servers), tuple(jobs)))


class TestFiles(ManagerContract):
    """A site that reads files."""

    @pytest.fixture
    def site(self, settings: Settings) -> Site:
        state = ClusterState(
            NOW,
            (server("s1"), server("s2"), server("s3")),
            (waiting("a"), waiting("b"), waiting("c")),
        )
        return Site(SiteAgent(settings, state), ("a", "b", "c"), ("s1", "s2", "s3"), patience_s=1)


def test_a_state_survives_its_file() -> None:
    fake = Fake.of([server("s1", foreign_gpus=(1,))], [waiting("a"), waiting("ж")])
    state = fake.state()
    assert state_from_dict(json.loads(json.dumps(state_to_dict(state)))) == state


def test_defaults_of_capabilities_are_careful() -> None:
    assert Capabilities(False, False, False, False).parallel_actions == 1
