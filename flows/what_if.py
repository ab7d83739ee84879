"""What the plan would be with other servers, more jobs or another objective. Nothing is sent."""

from __future__ import annotations

from dataclasses import replace

from prefect import flow
from prefect.artifacts import create_markdown_artifact, create_table_artifact
from prefect.states import Completed

from flows import artifacts, facts
from flows.desk import Desk, Outcome, around, rename, run_id, told
from flows.forms import WhatIfForm
from gogh_core import hardware
from gogh_core.domain import ClusterState, Cycle, JobState, PowerState, Server, ServerStatus
from gogh_core.errors import InvalidInput
from gogh_core.planning import (
    Allocated,
    Estimated,
    Request,
    aim_of,
    allocate_step,
    disturbed_enough,
    estimate_step,
    expected_rates,
    limits_now,
    list_orders,
    plan_diff,
    planned_w,
    read_state,
    watts_by_job,
)
from gogh_core.settings import Settings

__all__ = ["changed", "what_if"]

_AS_IT_STANDS = WhatIfForm()


@flow(name="what-if", flow_run_name="what if")
@told
def what_if(changes: WhatIfForm = _AS_IT_STANDS) -> Outcome:
    """Plan this moment twice, as it is and with the changes, and show both.

    Args:
        changes: What would be different.

    """
    desk = Desk()
    state = around("state", lambda: read_state(desk.manager, desk.settings, desk.clock()))
    other = changed(state, changes, desk.settings)
    request = Request(
        reason="what if",
        objective=changes.asked_objective,
        power_cap_w=changes.power_cap_w,
        max_moves=changes.max_moves,
        dry_run=True,
    )
    now, _ = around("as it is", lambda: _plan(desk, state, Request(reason="what if", dry_run=True)))
    then, estimated = around("with the changes", lambda: _plan(desk, other, request))
    name = _name(now, then)
    if run_id():
        _show(desk, other, then, estimated, name)
    rename(name)
    return Completed(message=name)


def changed(state: ClusterState, form: WhatIfForm, settings: Settings) -> ClusterState:
    """The cluster with the changes of the form; names that are not there are refused."""
    known = {status.server.id for status in state.servers}
    for server in form.lose_servers:
        if server not in known:
            todo = hardware.closest(server, known)
            raise InvalidInput(
                f"server {server!r} is not known",
                where="servers lost",
                todo=f"did you mean {todo!r}?" if todo else "",
            )
    lost = set(form.lose_servers)
    servers = [
        replace(s, power=PowerState.DOWN) if s.server.id in lost else s for s in state.servers
    ]
    base = settings.cluster
    for line in form.add_servers:
        kind = hardware.get(line.gpu_type).name
        base_w = base.server_base_w_by_type.get(kind, base.server_base_w)
        for number in range(1, line.count + 1):
            new = Server(f"new-{kind}-{len(servers)}-{number}", kind, line.gpus, base_w)
            servers.append(ServerStatus(new, PowerState.OFF))
    jobs = list(state.jobs)
    for wish in form.add_jobs:
        like = state.job(wish.like)
        if like is None:
            raise InvalidInput(f"job {wish.like!r} is not on the cluster", where="jobs added")
        required = wish.required_throughput
        for number in range(1, wish.count + 1):
            job = replace(
                like.job,
                id=f"new-{wish.like}-{number}",
                submitted_at=state.at,
                required_throughput=like.job.required_throughput if required is None else required,
            )
            fresh = replace(like, job=job, state=JobState.WAITING, slots=(), partners=())
            jobs.append(replace(fresh, since=None, moved_at=None, moves=0, steps_done=0.0))
    return replace(state, servers=tuple(servers), jobs=tuple(jobs))


def _plan(desk: Desk, state: ClusterState, request: Request) -> tuple[Allocated, Estimated]:
    capabilities, now = desk.manager.capabilities, desk.clock()
    estimated = estimate_step(desk.store, desk.settings, state, now, capabilities)
    made = allocate_step(
        state,
        estimated,
        desk.settings,
        request,
        now,
        cycle=Cycle.at(now, desk.settings.cycle.window_s),
        capabilities=capabilities,
        spent=disturbed_enough(desk.store, desk.settings, now),
        orders=list_orders(desk.store),
        aim=aim_of(desk.settings, request, now),
    )
    return made, estimated


def _name(now: Allocated, then: Allocated) -> str:
    before, after = planned_w(now.plan), planned_w(then.plan)
    running = [len({p.job for p in made.plan.placements}) for made in (now, then)]
    return (
        f"what if · {before:,.0f} → {after:,.0f} W · {running[0]} → {running[1]} jobs · "
        f"{len(now.plan.waiting)} → {len(then.plan.waiting)} waiting"
    )


def _show(
    desk: Desk, state: ClusterState, made: Allocated, estimated: Estimated, name: str
) -> None:
    problem, plan = made.draft.problem, made.plan
    table = artifacts.plan_table(
        plan,
        facts.job_facts(state),
        expected=expected_rates(estimated.options, problem, plan, made.draft.promised),
        watts=watts_by_job(problem, plan),
        why=facts.reasons(problem, plan),
    )
    create_table_artifact(key="gogh-what-if", table=table, description=f"### {name}")
    diff = plan_diff(problem, plan, limits_now(state))
    page = artifacts.difference(diff, window_s=desk.settings.cycle.window_s)
    create_markdown_artifact(
        key="gogh-what-if-difference", markdown=page, description="Against what runs now"
    )
