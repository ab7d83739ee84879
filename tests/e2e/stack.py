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

from gogh_core.cli.prefect_server import Api, leftovers
from gogh_core.cli.stack import bring_down, bring_up
from gogh_core.settings import Settings, load

PATIENCE_S = 240.0


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
        """Without cadence and events: nobody plans in between."""
        names = ("reallocation", "watch")
        idents = [self.api.deployment(f"{name}/{name}")["id"] for name in names]
        for ident in idents:
            self.api.call("POST", f"/deployments/{ident}/pause_deployment")
        ends = ("COMPLETED", "FAILED", "CANCELLED", "CRASHED")
        flows = (*names, "replan")
        until(
            lambda: all(r["state_type"] in ends for name in flows for r in self.runs(name)),
            "the end of what runs",
        )
        try:
            yield
        finally:
            for ident in idents:
                self.api.call("POST", f"/deployments/{ident}/resume_deployment")

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
    } | {"GOGH_HOME": str(home)}
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
