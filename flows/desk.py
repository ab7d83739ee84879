"""The desk of a flow: the rooms it works with, and what it tells Prefect.

`told` turns an error of ours into a failed run whose first line says what to do; `Desk` opens
settings, store and cluster and shows progress; `around` runs one step as a task, with retries where
the cluster or a source may come back by itself and nowhere else.
"""

from __future__ import annotations

import functools
import inspect
import logging
import time
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any, TypeVar, get_type_hints
from uuid import UUID

import httpx
from prefect import get_run_logger, task
from prefect.artifacts import create_progress_artifact, update_progress_artifact
from prefect.cache_policies import NO_CACHE
from prefect.client.orchestration import get_client
from prefect.client.schemas.objects import State
from prefect.context import FlowRunContext
from prefect.exceptions import MissingContextError
from prefect.settings import PREFECT_API_URL
from prefect.states import Completed, Failed

from flows.names import advice
from gogh_core.cluster import ClusterManager, open_manager, require_password
from gogh_core.errors import ClusterUnavailable, GoghError, SourceUnavailable, StackError
from gogh_core.settings import Settings, load
from gogh_core.store import Store

__all__ = ["Desk", "around", "nothing_to_do", "rename", "require_guarded_server", "run_id", "told"]

T = TypeVar("T")
Outcome = State[Any]

_RETRIES, _RETRY_DELAY_S = 2, 3.0
_LOOKS = 5
# How far a cycle is when a step begins, by the seconds they usually take.
_PERCENT = {
    "state": 5.0,
    "ingest": 10.0,
    "retrain": 30.0,
    "estimate": 50.0,
    "allocate": 65.0,
    "store": 80.0,
    "emit": 85.0,
    "publish": 95.0,
}


def logger() -> logging.Logger | logging.LoggerAdapter[logging.Logger]:
    """The run's log in the UI; a plain one outside a run."""
    try:
        return get_run_logger()
    except MissingContextError:
        return logging.getLogger("gogh.flows")


def told(function: Callable[..., Outcome]) -> Callable[..., Outcome]:
    """An error of ours ends the run as failed, and its first line says what to do."""

    @functools.wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Outcome:
        try:
            return function(*args, **kwargs)
        except GoghError as error:
            line = advice(error)
            logger().error(line)
            return Failed(message=line)

    # Prefect makes the form from the types; as text they would be looked up in this module.
    wrapper.__annotations__ = get_type_hints(function, include_extras=True)
    wrapper.__signature__ = inspect.signature(function, eval_str=True)  # type: ignore[attr-defined]
    return wrapper


def nothing_to_do(why: str) -> Outcome:
    """The end of a run that found its work done."""
    rename(f"nothing to do · {why}")
    return Completed(message=f"Nothing to do: {why}")


def run_id() -> str:
    """The flow run's own id, the key of what it asks for; empty outside a run."""
    context = FlowRunContext.get()
    return str(context.flow_run.id) if context is not None and context.flow_run else ""


def rename(name: str) -> None:
    """Give the run a name that tells; nothing happens outside a run."""
    ident = run_id()
    if ident:
        with get_client(sync_client=True) as client:
            client.update_flow_run(flow_run_id=UUID(ident), name=name)


def _may_come_back(_task: Any, _run: Any, state: Outcome) -> bool:
    error = state.result(raise_on_failure=False)
    return isinstance(error, ClusterUnavailable | SourceUnavailable)


def around(step: str, call: Callable[[], T]) -> T:
    """Run one step as a task of this run, so that the UI shows it; a plain call outside a run."""
    if FlowRunContext.get() is None:
        return call()
    fetches = step in ("state", "ingest")
    as_task = task(
        name=step,
        task_run_name=step,
        retries=_RETRIES if fetches else 0,
        retry_delay_seconds=_RETRY_DELAY_S,
        retry_condition_fn=_may_come_back,
        cache_policy=NO_CACHE,
        persist_result=False,
    )
    return as_task(call)()


def require_guarded_server(url: str) -> None:
    """Refuse to act for a server that answers without a password: anybody may have sent this run.

    Prefect looks at the password first, so an answer does not wait for its database.
    """
    fault = "is no server with a password"
    for _ in range(_LOOKS if url else 0):
        try:
            status = httpx.get(f"{url}/admin/version", timeout=10, trust_env=False).status_code
        except httpx.HTTPError as error:
            fault = f"gave no answer ({type(error).__name__})"
            time.sleep(1.0)
            continue
        if status in (401, 403):
            return
        fault = "answers without a password"
        break
    raise StackError(
        f"mode = act needs a password for Prefect's API: the server {fault}",
        where=url or "PREFECT_API_URL",
        todo="start it with PREFECT_SERVER_API_AUTH_STRING, as `gogh up` does",
    )


class Desk:
    """Settings, store and cluster of one run, and its progress in the UI."""

    def __init__(self, settings: Settings | None = None) -> None:
        self.settings = settings or load()
        if self.settings.cluster.mode == "act":
            require_password(self.settings)
            require_guarded_server(PREFECT_API_URL.value() or "")
        self.store = Store(self.settings)
        self.store.migrate()
        self.manager: ClusterManager = open_manager(self.settings, self.store)
        self._progress: Any = None

    def clock(self) -> datetime:
        """The cluster's time."""
        return self.manager.clock()

    def report(self, step: str, seconds: float) -> None:
        """A step begins (0 seconds) or has ended: shown as progress and in the log."""
        if seconds > 0:
            logger().info("%s took %.1f s", step, seconds)
            return
        if not run_id():
            return
        percent = _PERCENT.get(step, 0.0)
        if self._progress is None:
            self._progress = create_progress_artifact(
                percent, key="gogh-progress", description=f"{step} …"
            )
        else:
            update_progress_artifact(self._progress, percent, description=f"{step} …")

    def finished(self) -> None:
        """Everything is done."""
        if self._progress is not None:
            update_progress_artifact(self._progress, 100.0, description="done")

    def links(self, pages: Mapping[str, str]) -> dict[str, str]:
        """Addresses of artifacts within the UI, by title."""
        return {title: f"/artifacts/key/{key}" for key, title in pages.items()}
