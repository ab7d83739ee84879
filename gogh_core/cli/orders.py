"""`gogh drain`, `pin`, `cap`, `quota`, their lifting, and `gogh orders`: what every plan keeps."""

from __future__ import annotations

import getpass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gogh_core.cli.common import AsJson, echo_json

if TYPE_CHECKING:
    from gogh_core.cluster import ClusterManager
    from gogh_core.planning import Kind, Order
    from gogh_core.settings import Settings
    from gogh_core.store import Store

__all__ = ["register"]

Config = Annotated[Path | None, typer.Option(help="Another gogh.toml.")]
From = Annotated[
    str | None, typer.Option("--from", help="When it begins: 2026-01-05T14:00 (UTC) or +2h.")
]
Until = Annotated[
    str | None, typer.Option(help="When it ends, likewise; until it is lifted otherwise.")
]
Reason = Annotated[str, typer.Option(help="Why; it is kept and shown.")]
Who = Annotated[str | None, typer.Option(help="Who orders; the user of this shell otherwise.")]
ServerName = Annotated[str, typer.Argument(help="The server's id.")]
JobName = Annotated[str, typer.Argument(help="The job's id.")]
Owner = Annotated[str, typer.Argument(help="Whose jobs.")]


def register(app: typer.Typer) -> None:
    """Add the commands of this module."""
    for command in (drain, undrain, pin, unpin, cap, uncap, quota, unquota, orders):
        app.command(command.__name__)(command)


def drain(
    server: ServerName,
    begins: From = None,
    until: Until = None,
    reason: Reason = "",
    who: Who = None,
    as_json: AsJson = False,
    config: Config = None,
) -> None:
    """Keep a server empty; with --from, a maintenance window that jobs are planned around."""
    _give("drain", server, begins, until, reason, who, as_json, config)


def undrain(
    server: ServerName, who: Who = None, as_json: AsJson = False, config: Config = None
) -> None:
    """Lift the drains of a server, planned ones too."""
    _lift("drain", server, who, as_json, config)


def pin(
    job: JobName,
    until: Until = None,
    reason: Reason = "",
    who: Who = None,
    as_json: AsJson = False,
    config: Config = None,
) -> None:
    """Keep a running job where it is."""
    _give("pin", job, None, until, reason, who, as_json, config)


def unpin(job: JobName, who: Who = None, as_json: AsJson = False, config: Config = None) -> None:
    """Lift the pin of a job."""
    _lift("pin", job, who, as_json, config)


def cap(
    watts: Annotated[float, typer.Argument(help="What the cluster may draw.")],
    begins: From = None,
    until: Until = None,
    reason: Reason = "",
    who: Who = None,
    as_json: AsJson = False,
    config: Config = None,
) -> None:
    """Limit what the cluster draws; of several caps the lowest counts, the settings' too."""
    _give("cap", "", begins, until, reason, who, as_json, config, power_w=watts)


def uncap(who: Who = None, as_json: AsJson = False, config: Config = None) -> None:
    """Lift every power cap that was ordered; that of the settings stays."""
    _lift("cap", "", who, as_json, config)


def quota(
    owner: Owner,
    gpus: Annotated[int, typer.Argument(help="GPUs at most.")],
    until: Until = None,
    reason: Reason = "",
    who: Who = None,
    as_json: AsJson = False,
    config: Config = None,
) -> None:
    """Limit the GPUs of one owner's jobs; of several quotas the lowest counts."""
    _give("quota", owner, None, until, reason, who, as_json, config, gpus=gpus)


def unquota(owner: Owner, who: Who = None, as_json: AsJson = False, config: Config = None) -> None:
    """Lift the quotas of an owner that were ordered; that of the settings stays."""
    _lift("quota", owner, who, as_json, config)


def orders(
    everything: Annotated[
        bool, typer.Option("--all", help="Those that are over or lifted too.")
    ] = False,
    as_json: AsJson = False,
    config: Config = None,
) -> None:
    """Who ordered what since when: what is in force, and what is planned."""
    from gogh_core.planning import list_orders

    _, store, manager = _open(config)
    now = _now(manager)
    found = [order for order in list_orders(store) if everything or order.stands(now)]
    if as_json:
        echo_json([{**order.to_dict(), "state": order.state(now)} for order in found])
        return
    if not found:
        typer.echo("no orders were given yet" if everything else "no orders stand")
    for order in found:
        lifted = f"; lifted by {order.lifted_by} at {_time(order.lifted_at)}"
        typer.echo(f"{order.state(now):<8}  {order}{lifted if order.lifted_at else ''}")


def _open(config: Path | None) -> tuple[Settings, Store, ClusterManager]:
    from gogh_core.cluster import open_manager
    from gogh_core.settings import load
    from gogh_core.store import Store

    settings = load(config)
    store = Store(settings)
    store.migrate()
    return settings, store, open_manager(settings, store)


def _now(manager: ClusterManager) -> datetime:
    from gogh_core.planning import clock_of

    return clock_of(manager)()


def _give(
    kind: Kind,
    subject: str,
    begins: str | None,
    until: str | None,
    reason: str,
    who: str | None,
    as_json: bool,
    config: Path | None,
    *,
    power_w: float | None = None,
    gpus: int | None = None,
) -> None:
    from gogh_core.planning import Order, give, moment

    _, store, manager = _open(config)
    now = _now(manager)
    wish = Order(
        kind,
        subject,
        begins_at=now if begins is None else moment(begins, now, where="--from"),
        ends_at=None if until is None else moment(until, now, where="--until"),
        who=who or getpass.getuser(),
        given_at=now,
        power_w=power_w,
        gpus=gpus,
        reason=reason,
    )
    ((order, new),) = give(store, [wish], manager.state(), now)
    store.publish()
    if as_json:
        echo_json({**order.to_dict(), "state": order.state(now), "new": new})
    elif new:
        typer.echo(
            f"{order}\n  every plan keeps it from the next cycle on; `gogh replan` plans now"
        )
        typer.echo(f"  it stands until {_end(order)}")
    else:
        typer.echo(f"ordered already: {order}")


def _lift(kind: Kind, subject: str, who: str | None, as_json: bool, config: Path | None) -> None:
    from gogh_core.planning import lift

    settings, store, manager = _open(config)
    now, state = _now(manager), manager.state()
    found = lift(store, kind, subject, who=who or getpass.getuser(), now=now, state=state)
    store.publish()
    if as_json:
        echo_json([order.to_dict() for order in found])
        return
    for order in found:
        typer.echo(f"lifted: {order}")
    limits = settings.allocation
    if kind == "cap" and limits.power_cap_w is not None:
        typer.echo(f"  the cap of the settings stays: {limits.power_cap_w:g} W")
    if kind == "quota" and subject in limits.quotas:
        typer.echo(f"  the quota of the settings stays: {limits.quotas[subject]} GPUs")


def _end(order: Order) -> str:
    return f"`{order.lifting}`" + (f" or {_time(order.ends_at)}" if order.ends_at else "")


def _time(at: datetime | None) -> str:
    return f"{at:%Y-%m-%d %H:%M:%S}" if at is not None else "?"
