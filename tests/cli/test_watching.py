"""`gogh watch` without a server: what is sent, when, and which runs count as dead."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from gogh_core.cli.stack import bring_down
from gogh_core.cli.watching import crash_silent, look_once
from gogh_core.cluster import open_manager
from gogh_core.errors import StackError
from gogh_core.settings import Settings
from gogh_core.simulation import SimulatedCluster
from gogh_core.store import Store
from tests.conftest import own_settings

NOW = datetime(2026, 11, 18, 12, 0, tzinfo=UTC)


class Server:
    """Prefect as the look asks it; `down` refuses events."""

    def __init__(self, runs: dict[str, tuple[str, float]] | None = None) -> None:
        self.runs = runs or {}
        """State and age in seconds, by name."""
        self.beats: set[str] = set()
        self.events: list[dict[str, Any]] = []
        self.crashed: list[str] = []
        self.down = False

    def call(self, method: str, path: str, body: Any) -> Any:
        if path == "/events":
            if self.down:
                raise StackError("no answer")
            self.events += body
            return None
        if path == "/flow_runs/filter":
            wanted = body["flow_runs"]["state"]["type"]["any_"]
            return [self._run(name) for name in self.runs if self.runs[name][0] in wanted]
        if path == "/events/filter":
            (resource,) = body["filter"]["resource"]["id"]
            return {"events": [{}] if resource.split(".")[-1] in self.beats else []}
        assert body["state"]["type"] == "CRASHED"
        assert "force" not in body
        self.crashed.append(path.split("/")[2])
        return None

    def _run(self, name: str) -> dict[str, Any]:
        state, age_s = self.runs[name]
        at = (NOW - timedelta(seconds=age_s)).isoformat()
        return {"id": name, "name": name, "state_type": state, "state": {"timestamp": at}}


@pytest.fixture
def cluster(settings: Settings) -> SimulatedCluster:
    Store(settings).migrate()
    manager = open_manager(settings, Store(settings))
    assert isinstance(manager, SimulatedCluster)
    return manager


def test_each_event_is_sent_once(settings: Settings, cluster: SimulatedCluster) -> None:
    server = Server()
    assert look_once(settings, server) == []
    gone = cluster.state().servers[0].server.id
    cluster.fault("server_vanishes", gone)
    assert look_once(settings, server) == [f"server {gone} is down"]
    assert look_once(settings, server) == []
    [event] = server.events
    assert event["event"] == "gogh.event.server_lost"
    assert event["payload"]["reason"] == f"server {gone} is down"


def test_what_the_server_did_not_take_is_sent_by_the_next_look(
    settings: Settings, cluster: SimulatedCluster
) -> None:
    server = Server()
    look_once(settings, server)
    gone = cluster.state().servers[0].server.id
    cluster.fault("server_vanishes", gone)
    server.down = True
    with pytest.raises(StackError):
        look_once(settings, server)
    server.down = False
    assert look_once(settings, server) == [f"server {gone} is down"]


def test_what_was_seen_survives_down_and_up(settings: Settings, cluster: SimulatedCluster) -> None:
    look_once(settings, Server())
    bring_down(settings)
    gone = cluster.state().servers[0].server.id
    cluster.fault("server_vanishes", gone)
    assert look_once(settings, Server()) == [f"server {gone} is down"]


def test_a_changed_power_cap_is_an_event(settings: Settings, cluster: SimulatedCluster) -> None:
    look_once(settings, Server())
    capped = own_settings(settings.home, allocation={"power_cap_w": 5000.0})
    assert look_once(capped, Server()) == ["the power cap is now 5,000 W"]


def test_a_run_without_a_sign_of_life_is_marked_as_crashed() -> None:
    server = Server(
        {
            "beats": ("RUNNING", 600),
            "silent": ("RUNNING", 600),
            "young": ("RUNNING", 60),
            "starting": ("PENDING", 120),
            "never began": ("PENDING", 600),
            "asks": ("PAUSED", 6000),
            "over": ("COMPLETED", 6000),
        }
    )
    server.beats = {"beats"}
    assert crash_silent(server, NOW) == ["silent", "never began"]
    assert server.crashed == ["silent", "never began"]
