"""Many runs at once: in processes of this machine, or as Prefect tasks on a Dask cluster.

Either way a result that this code has in its folder is not made again, and each new one is kept
there as soon as it is known. A Dask worker needs the same code, not the same folder.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from gogh_core.bench.loop.runs import Asked, code_mark, keep, kept, run_asked, run_kept
from gogh_core.errors import InvalidInput

__all__ = ["on_dask", "run_many"]

_LOOPBACK = "127.0.0.1"
_START_S = 120


def run_many(asked: Sequence[Asked], folder: Path, *, workers: int) -> Iterator[dict[str, Any]]:
    """Results as they come in; with one worker in this process."""
    if workers <= 1:
        yield from (run_kept(one, folder) for one in asked)
        return
    import multiprocessing
    from concurrent.futures import ProcessPoolExecutor, as_completed

    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(workers, mp_context=context) as pool:
        for done in as_completed([pool.submit(run_kept, one, folder) for one in asked]):
            yield done.result()


def on_dask(
    asked: Sequence[Asked],
    folder: Path,
    *,
    workers: int,
    address: str | None = None,
    report: Callable[[dict[str, Any]], None] = lambda _: None,
) -> list[dict[str, Any]]:
    """The same runs as Prefect tasks on a Dask cluster: its address, or workers of this machine.

    `report` is told each result as it comes in.
    """
    os.environ.update(DO_NOT_TRACK="1", PREFECT_SERVER_ANALYTICS_ENABLED="false")
    results = {one: kept(one, folder) for one in asked}
    missing = [one for one, found in results.items() if found is None]
    for before in filter(None, results.values()):
        report(before)
    if missing:
        flow = _flow(missing, workers, address)
        with _api(address):
            for one, found in flow():
                keep(_of_this_code(found), one, folder)
                results[one] = found
                report(found)
    return [made for one in asked if (made := results[one]) is not None]


def _flow(
    missing: Sequence[Asked], workers: int, address: str | None
) -> Callable[[], Iterator[tuple[Asked, dict[str, Any]]]]:
    """A flow that yields results as they come in."""
    try:
        from prefect import flow, task
        from prefect.futures import as_completed
        from prefect_dask.task_runners import DaskTaskRunner
    except ImportError as error:
        raise InvalidInput(
            "prefect-dask is not installed", todo="pip install 'gogh[dask]'"
        ) from error
    logging.getLogger("distributed").setLevel(logging.WARNING)
    local = {
        "n_workers": workers,
        "threads_per_worker": 1,
        "host": _LOOPBACK,
        "dashboard_address": f"{_LOOPBACK}:0",
        "security": True,  # keys of its own: else every user of this machine could send it code
    }
    runner: Any = (
        DaskTaskRunner(address=address)
        if address
        else DaskTaskRunner(cluster_class="distributed.LocalCluster", cluster_kwargs=local)
    )
    run_one = task(name="loop-run", retries=1, persist_result=False)(run_asked)

    @flow(name="loop", task_runner=runner, persist_result=False)
    def loop() -> Iterator[tuple[Asked, dict[str, Any]]]:
        futures = {run_one.submit(one): one for one in missing}
        for future in as_completed(list(futures)):
            yield futures[future], future.result()

    return loop


@contextmanager
def _api(address: str | None) -> Iterator[None]:
    """One API of Prefect for all workers: the one that is set, else one that ends with the runs."""
    from prefect.server.api.server import SubprocessASGIServer
    from prefect.settings import (
        PREFECT_API_URL,
        PREFECT_LOGGING_TO_API_ENABLED,
        PREFECT_SERVER_DATABASE_CONNECTION_URL,
        temporary_settings,
    )

    if PREFECT_API_URL.value():
        yield
        return
    if address and _LOOPBACK not in address and "localhost" not in address:
        raise InvalidInput(
            "the workers of this cluster need an API of Prefect that they can reach",
            where=address,
            todo="set PREFECT_API_URL",
        )
    with TemporaryDirectory(ignore_cleanup_errors=True) as home:
        own = {
            PREFECT_SERVER_DATABASE_CONNECTION_URL: f"sqlite+aiosqlite:///{home}/prefect.db",
            PREFECT_LOGGING_TO_API_ENABLED: False,
        }
        with temporary_settings(own):
            server = SubprocessASGIServer()
            server.start(timeout=_START_S)
            try:
                with temporary_settings({PREFECT_API_URL: server.api_url}):
                    yield
            finally:
                server.stop()


def _of_this_code(found: dict[str, Any]) -> dict[str, Any]:
    if found["code"] != code_mark():
        raise InvalidInput(
            "a Dask worker runs other code than this", todo="install the same version there"
        )
    return found
