"""A whole stack for the end-to-end tests: server, deployments, worker, all below one folder."""

from __future__ import annotations

import contextlib
import os
import socket
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from gogh_core.cli.password import api_password
from gogh_core.cli.prefect_server import Api, Daemon, leftovers
from gogh_core.cli.stack import bring_down, bring_up, start_watch
from gogh_core.settings import Settings, load

PATIENCE_S = 240.0
_LOOK_S = 3.0
_ENDS = ("COMPLETED", "FAILED", "CANCELLED", "CRASHED")


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def until(found: Callable[[], Any], what: str, *, patience_s: float = PATIENCE_S) -> Any:
    """What `found` gives once it gives anything."""
    end = time.monotonic() + patience_s
    while True:
        value = found()
        if value:
            return value
        if time.monotonic() > end:
            raise AssertionError(f"waited {patience_s:.0f} s in vain for {what}")
        time.sleep(0.5)


class Stack:
    """What `gogh up` started, and how to ask it."""

    def __init__(self, settings: Settings, up: dict[str, Any]) -> None:
        self.settings = settings
        self.up = up
        self.api = Api(settings)
        self.ui = up["addresses"]["ui"]
        self.password = api_password(settings) or ""
        self.toml = Path(os.environ["GOGH_CONFIG"])

    def runs(self, flow: str) -> list[dict[str, Any]]:
        """Runs that are due, newest first."""
        now = datetime.now(UTC).isoformat()
        body = {
            "flows": {"name": {"any_": [flow]}},
            "flow_runs": {"expected_start_time": {"before_": now}},
            "sort": "EXPECTED_START_TIME_DESC",
        }
        return list(self.api.call("POST", "/flow_runs/filter", body))

    def run(self, name: str, parameters: dict[str, Any] | None = None) -> dict[str, Any]:
        """Run a deployment to its end."""
        ident = self.api.run(f"{name}/{name}", parameters or {})["id"]
        return self.api.wait(ident, timeout_s=PATIENCE_S)

    @contextlib.contextmanager
    def quiet(self) -> Iterator[None]:
        """Without cadence and events: nobody plans in between.

        Pausing takes the scheduled runs away, but a pass of the scheduler that had begun before
        puts new ones in afterwards, and workers run those of paused deployments too. So they are
        taken away until two looks in a row find nothing.
        """
        ident = self.api.deployment("reallocation/reallocation")["id"]
        self.api.call("POST", f"/deployments/{ident}/pause_deployment")
        Daemon("watch", self.settings.home.absolute()).stop()
        try:
            looks = 0

            def settled() -> bool:
                nonlocal looks
                looks = 0 if self._clear([ident]) else looks + 1
                time.sleep(_LOOK_S)
                return looks >= 2

            until(settled, "the end of what runs")
            yield
        finally:
            start_watch(self.settings, lambda line: None)
            self.api.call("POST", f"/deployments/{ident}/resume_deployment")

    @contextlib.contextmanager
    def configured(self, text: str) -> Iterator[None]:
        """With this gogh.toml, as an operator would change it while everything runs."""
        self.toml.write_text(text)
        try:
            yield
        finally:
            self.toml.write_text("")

    def _clear(self, deployments: list[str]) -> bool:
        """Take away what is only scheduled; whether there was any, or anything still runs."""
        replan = self.api.deployment("replan/replan")["id"]
        body = {
            "deployments": {"id": {"any_": [*deployments, replan]}},
            "flow_runs": {"state": {"type": {"not_any_": list(_ENDS)}}},
        }
        found = self.api.call("POST", "/flow_runs/filter", body)
        for run in found:
            if run["state_type"] == "SCHEDULED" and run["auto_scheduled"]:
                self.api.call("DELETE", f"/flow_runs/{run['id']}", missing_ok=True)
        return bool(found)

    def artifacts(self, run_id: str) -> dict[str, dict[str, Any]]:
        body = {"artifacts": {"flow_run_id": {"any_": [run_id]}}, "limit": 50}
        return {a["key"]: a for a in self.api.call("POST", "/artifacts/filter", body)}


@contextlib.contextmanager
def running(home: Path, *, workers: int = 1, **sections: dict[str, Any]) -> Iterator[Stack]:
    """A stack with these settings; the processes see the same ones by environment."""
    prefect = {"port": free_port(), **sections.pop("prefect", {})}
    chosen = {
        "cycle": {"window_s": 60},
        "simulation": {"servers": 6, "jobs_per_hour": 60.0},
        "estimation": {"retrain_budget_s": 5.0},
    }
    merged = {**chosen, **sections, "prefect": prefect}
    variables = {
        f"GOGH_{section}__{key}".upper(): str(value)
        for section, values in merged.items()
        for key, value in values.items()
    } | {"GOGH_HOME": str(home), "GOGH_CONFIG": str(home / "gogh.toml")}
    (home / "gogh.toml").touch()
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    settings = load()
    try:
        yield Stack(settings, bring_up(settings, workers=workers, say=lambda line: None))
    finally:
        bring_down(settings)
        left = leftovers(settings.home, end=False)
        assert left == [], "down ends everything that up started"
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
