"""What every cluster manager has to keep; one class, run against each of them.

A test module subclasses `ManagerContract` and gives the fixture `site`: a manager with at least two
servers of two GPUs or more, of which one may be switched off, and at least three waiting jobs that
may share.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta

import pytest

from gogh_core.cluster import ClusterManager
from gogh_core.domain import ClusterState, JobState, PowerState, Slot
from gogh_core.errors import ActionFailed, ClusterError, NotCapable


@dataclass
class Site:
    """A manager and what a test may do with it."""

    manager: ClusterManager
    jobs: tuple[str, ...]
    servers: tuple[str, ...]
    patience_s: float = 60.0

    def until(self, holds: Callable[[ClusterState], bool]) -> ClusterState:
        """The first state for which it holds."""
        deadline = time.monotonic() + self.patience_s
        while True:
            state = self.manager.state()
            if holds(state):
                return state
            assert time.monotonic() < deadline, f"never came true; last: {state}"
            time.sleep(0.1)

    def running(self, job: str, server: str, gpus: int = 1) -> Callable[[ClusterState], bool]:
        def holds(state: ClusterState) -> bool:
            status = state.job(job)
            return (
                status is not None
                and status.state in (JobState.RUNNING, JobState.MOVING)
                and {slot.server for slot in status.slots} == {server}
                and sum(len(slot.gpus) for slot in status.slots) == gpus
            )

        return holds

    def waits(self, job: str) -> Callable[[ClusterState], bool]:
        def holds(state: ClusterState) -> bool:
            status = state.job(job)
            return status is not None and status.state is JobState.WAITING and not status.slots

        return holds

    def place(
        self, job: str, server: str, *gpus: int, key: str, partner: str | None = None
    ) -> None:
        self.manager.place(
            job, (Slot(server, gpus or (0,)),), partner=partner, power_limit_w=None, key=key
        )

    def move(self, job: str, server: str, *gpus: int, key: str) -> None:
        self.manager.move(
            job, (Slot(server, gpus or (0,)),), partner=None, power_limit_w=None, key=key
        )


class ManagerContract:
    """The promises, one test each."""

    def test_it_is_a_cluster_manager_and_says_what_it_can_do(self, site: Site) -> None:
        assert isinstance(site.manager, ClusterManager)
        assert site.manager.name
        assert site.manager.capabilities.action_timeout_s >= 0

    def test_its_clock_goes_on_and_never_back(self, site: Site) -> None:
        before = site.manager.clock()
        assert before.utcoffset() == timedelta(0)
        site.manager.advance(60)
        after = site.manager.clock()
        assert after >= before
        if not site.manager.real:
            assert after - before == timedelta(seconds=60)

    def test_a_refused_job_is_none_of_those_that_are_planned(self, site: Site) -> None:
        refused = site.manager.refused()
        assert not set(refused) & {status.job.id for status in site.manager.state().jobs}
        assert all(refused.values())

    def test_state_lists_every_server_and_every_job(self, site: Site) -> None:
        state = site.manager.state()
        assert set(site.servers) <= {status.server.id for status in state.servers}
        assert set(site.jobs) <= {status.job.id for status in state.jobs}
        assert all(status.server.gpus >= 1 for status in state.servers)

    def test_a_placed_job_runs_there_moves_there_and_waits_when_held(self, site: Site) -> None:
        job, (first, second) = site.jobs[0], site.servers[:2]
        site.place(job, first, key="c1/place")
        site.until(site.running(job, first))
        site.move(job, second, key="c1/move")
        site.until(site.running(job, second))
        site.manager.hold(job, key="c1/hold")
        site.until(site.waits(job))
        site.place(job, first, key="c1/again")
        site.until(site.running(job, first))
        site.manager.hold(job, key="c1/end")
        site.until(site.waits(job))

    def test_a_job_gets_the_planned_number_of_gpus(self, site: Site) -> None:
        job, server = site.jobs[1], site.servers[0]
        site.place(job, server, 0, 1, key="c2/place")
        site.until(site.running(job, server, 2))
        site.manager.hold(job, key="c2/hold")
        site.until(site.waits(job))

    def test_sending_twice_changes_nothing(self, site: Site) -> None:
        job, server = site.jobs[0], site.servers[0]
        site.place(job, server, key="c3/place")
        before = site.until(site.running(job, server)).job(job)
        site.place(job, server, key="c3/place")
        after = site.until(site.running(job, server)).job(job)
        assert before is not None
        assert after is not None
        assert after.since == before.since
        site.manager.hold(job, key="c3/hold")
        site.until(site.waits(job))
        site.manager.hold(job, key="c3/hold")
        site.until(site.waits(job))

    def test_two_jobs_share_a_gpu(self, site: Site) -> None:
        first, second, server = site.jobs[0], site.jobs[1], site.servers[0]
        site.place(first, server, key="c4/a", partner=second)
        site.place(second, server, key="c4/b", partner=first)
        site.until(site.running(first, server))
        state = site.until(site.running(second, server))
        one, other = state.job(first), state.job(second)
        assert one is not None
        assert other is not None
        assert one.slots == other.slots
        for job in (first, second):
            site.manager.hold(job, key=f"c4/end-{job}")
            site.until(site.waits(job))

    def test_what_is_not_there_is_refused(self, site: Site) -> None:
        with pytest.raises(ActionFailed):
            site.place("no-such-job", site.servers[0], key="c5/a")
        with pytest.raises(ActionFailed):
            site.place(site.jobs[0], "no-such-server", key="c5/b")
        with pytest.raises(ActionFailed):
            site.manager.hold("$(reboot)", key="c5/c")
        site.until(site.waits(site.jobs[0]))

    def test_a_server_goes_off_and_on_or_it_says_that_it_cannot(self, site: Site) -> None:
        server = site.servers[-1]
        if not site.manager.capabilities.switches_servers:
            with pytest.raises(NotCapable):
                site.manager.switch(server, on=False, key="c6/off")
            return
        site.manager.switch(server, on=False, key="c6/off")
        site.until(
            lambda state: _power(state, server) in (PowerState.OFF, PowerState.SWITCHING_OFF)
        )
        site.until(lambda state: _power(state, server) is PowerState.OFF)
        site.manager.switch(server, on=True, key="c6/on")
        site.until(lambda state: _power(state, server) in (PowerState.ON, PowerState.SWITCHING_ON))
        site.until(lambda state: _power(state, server) is PowerState.ON)

    def test_power_limits_are_set_or_refused_as_declared(self, site: Site) -> None:
        if site.manager.capabilities.sets_power_limits:
            site.manager.set_power_limit(site.servers[0], 0, 150.0, key="c7/limit")
            site.manager.set_power_limit(site.servers[0], 0, 150.0, key="c7/limit")
        else:
            with pytest.raises(ClusterError):
                site.manager.set_power_limit(site.servers[0], 0, 150.0, key="c7/limit")


def _power(state: ClusterState, server: str) -> PowerState | None:
    status = state.server(server)
    return None if status is None else status.power
