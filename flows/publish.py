"""Puts what a cycle found into the UI: one artifact for each page, linked with each other."""

from __future__ import annotations

import time
from collections.abc import Callable

from prefect.artifacts import create_markdown_artifact, create_table_artifact

from flows import artifacts, facts
from flows.desk import Desk, rename, run_id
from gogh_core import watch
from gogh_core.planning import CycleReport, watts_by_job

__all__ = ["show_contracts", "show_cycle", "show_figures"]


def _page(key: str, markdown: Callable[[], str]) -> None:
    create_markdown_artifact(
        key=key, markdown=markdown(), description=artifacts.PAGES.get(key, key).capitalize()
    )


def difference_of(desk: Desk, report: CycleReport) -> str:
    """The difference to what runs now, as Markdown."""
    if report.diff is None:
        return "The difference was shown when the plan was made."
    return artifacts.difference(report.diff, window_s=desk.settings.cycle.window_s)


def show_cycle(desk: Desk, report: CycleReport, *, kind: str = "plan") -> str:
    """Name the run and publish all pages of its cycle; gives back the name."""
    name = report.named(kind)
    rename(name)
    if not run_id():
        return name
    if report.plan is not None:
        _show_plan(desk, report, name)
    _page("gogh-difference", lambda: difference_of(desk, report))
    show_figures(desk)
    show_contracts(desk)
    pages = {key: title for key, title in artifacts.PAGES.items() if key != "gogh-cycle"}
    _page(
        "gogh-cycle",
        lambda: artifacts.cycle_page(
            name,
            state=report.outcome,
            reason=report.request.reason,
            degraded=report.degraded,
            notes=report.plan.notes if report.plan else (),
            seconds=report.seconds,
            links=desk.links(pages) | {"all runs": "/runs"},
        ),
    )
    _page(
        "gogh-seconds",
        lambda: artifacts.seconds_page(
            report.seconds, report.cpu_s, process_cpu_s=time.process_time()
        ),
    )
    desk.finished()
    return name


def _show_plan(desk: Desk, report: CycleReport, name: str) -> None:
    plan, problem = report.plan, report.problem
    assert plan is not None
    table = artifacts.plan_table(
        plan,
        facts.job_facts(report.basis or desk.manager.state()),
        expected=report.expected,
        watts=watts_by_job(problem, plan) if problem else {},
        why=facts.reasons(problem, plan) if problem else {},
    )
    create_table_artifact(key="gogh-plan", table=table, description=f"### {name}")


def show_figures(desk: Desk) -> None:
    """Energy, promises and accuracy of the last windows."""
    store = desk.store
    _page("gogh-energy", lambda: artifacts.energy_page(watch.windows(store)))
    _page(
        "gogh-accuracy",
        lambda: artifacts.accuracy_page(watch.accuracy(store), watch.versions(store)),
    )


def show_contracts(desk: Desk) -> None:
    """What the contracts said, and what is held."""
    _page(
        "gogh-contracts",
        lambda: artifacts.contracts_page(watch.batches(desk.store), watch.held(desk.store)),
    )
