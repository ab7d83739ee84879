"""`gogh up` and `gogh down`: server, pool, deployments, workers, watch, metrics and the cluster.

Both are safe to call twice: `up` starts what does not run, `down` ends what `up` started and
nothing else. Everything they keep is below `home`.
"""

from __future__ import annotations

import hashlib
import json
import platform
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import asdict
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gogh_core.cli.password import make_password, password_file
from gogh_core.cli.prefect_server import (
    Api,
    Daemon,
    api_url,
    ask,
    environment,
    leftovers,
    locked,
    open_to_all,
    port_is_free,
    prefect_command,
)
from gogh_core.errors import GoghError, StackError
from gogh_core.settings import Settings, load

if TYPE_CHECKING:
    from gogh_core.planning import Request

__all__ = [
    "JOB_TEMPLATE",
    "as_form",
    "bring_down",
    "bring_up",
    "first_cycle",
    "next_cycle",
    "register",
    "rendered_deployments",
    "replan_via_server",
    "start_watch",
]

_READY_S = 300.0
_CYCLE = "reallocation/reallocation"
_OLD_AUTOMATIONS = ("gogh-crash-silent-runs", "gogh-crash-runs-that-never-began")
_JSON = Annotated[bool, typer.Option("--json", help="As JSON.")]
_CONFIG = Annotated[Path | None, typer.Option(help="Another gogh.toml.")]
Say = Callable[[str], None]


def register(app: typer.Typer) -> None:
    """Add the commands of this module."""
    app.command("up")(up)
    app.command("down")(down)


def up(
    workers: Annotated[int | None, typer.Option(min=1, help="Workers on this machine.")] = None,
    as_json: _JSON = False,
    config: _CONFIG = None,
) -> None:
    """Start server, pool, deployments, workers and the cluster; print the addresses when ready."""
    settings = load(config)
    say: Say = (lambda line: None) if as_json else (lambda line: typer.echo(line, err=True))
    done = bring_up(settings, workers=workers or settings.prefect.workers, say=say)
    if as_json:
        typer.echo(json.dumps(done))
        return
    for name, address in done["addresses"].items():
        typer.echo(f"{name:<8} {address}")
    typer.echo(f"{'sign in':<8} {done['sign_in']}")
    typer.echo(f"ready: {done['deployments']} deployments, {done['workers']} worker(s)")
    if done["next_cycle"] is None:
        typer.echo("cycle: the schedule is paused; the UI resumes it")
        return
    first = "runs now" if done["first_run"] else "was begun already"
    at = datetime.fromisoformat(done["next_cycle"])
    typer.echo(f"cycle: this window's {first}, the next one comes at {at:%H:%M:%S} UTC")


def down(as_json: _JSON = False, config: _CONFIG = None) -> None:
    """End exactly what `gogh up` started."""
    ended = bring_down(load(config))
    typer.echo(json.dumps({"ended": ended}) if as_json else _told(ended))


def _told(ended: list[str]) -> str:
    return f"ended {', '.join(ended)}" if ended else "nothing was running"


def replan_via_server(settings: Settings, request: Request, *, wait_s: float) -> dict[str, Any]:
    """Ask the server for a replan, as the UI's form does; the run's record once it has ended."""
    api = Api(settings)
    if not api.healthy():
        raise StackError(
            "no answer", where=api.url, todo="run `gogh up`, or leave --via-server out"
        )
    run = api.run("replan/replan", {"request": as_form(request)})
    record = api.wait(run["id"], timeout_s=wait_s)
    return {
        "run": record["id"],
        "name": record["name"],
        "state": record["state_type"].lower(),
        "message": record["state"]["message"],
        "ui": settings.prefect.run_page(record["id"]),
    }


def as_form(request: Request) -> dict[str, Any]:
    """The request as the UI's form has it: without what is left open, and never an increment."""
    asked = asdict(request).items()
    form = {key: value for key, value in asked if value is not None and key != "increment"}
    return {**form, "pin": list(request.pin), "drain": list(request.drain)}


def bring_up(settings: Settings, *, workers: int = 1, say: Say = print) -> dict[str, Any]:
    """Start what does not run yet, and wait until all of it is ready."""
    from gogh_core.cluster import require_password
    from gogh_core.store import make_home, now_utc

    require_password(settings)
    make_home(settings)
    with locked(settings.home.absolute() / "run" / "lock"):
        make_password(settings)
        cluster = _prepare_cluster(settings)
        say(f"cluster: {cluster}")
        api = Api(settings)
        if settings.prefect.url is None:
            _server(settings, api, say)
        elif not api.healthy():
            raise StackError("no answer", where=api.url, todo="is the server up?")
        _check_guard(settings, api)
        _pool(settings, api)
        deployments = 0
        if settings.prefect.url is None:
            deployments = _deploy(settings, api, say)
            start_watch(settings, say)
        names = _workers(settings, api, workers, say)
        addresses = {"ui": api.url.removesuffix("/api"), "api": api.url, "cluster": cluster}
        if settings.prefect.metrics_port is not None:
            addresses["metrics"] = _metrics(settings, say)
        upcoming = next_cycle(api, now_utc())
        first = None
        if settings.prefect.url is None and upcoming is not None:
            first = first_cycle(settings, api, now_utc())
    return {
        "addresses": addresses,
        "sign_in": _sign_in(settings),
        "deployments": deployments,
        "workers": len(names),
        "first_run": first,
        "next_cycle": upcoming.isoformat() if upcoming else None,
    }


def _sign_in(settings: Settings) -> str:
    """How a person signs in to the UI; the password itself is printed nowhere."""
    if not settings.prefect.authentication:
        return "no password: every local user can run commands as GOGH's user"
    if settings.prefect.auth is not None:
        return "the UI asks for user:password, as prefect.auth has it"
    if settings.prefect.url is not None:
        return "as that server asks for it"
    return f"the UI asks for the line in {password_file(settings)}"


def _check_guard(settings: Settings, api: Api) -> None:
    """See that the server really asks for the password that the settings count on."""
    if settings.prefect.guarded and open_to_all(api.url):
        raise StackError(
            "the server answers without a password",
            where=api.url,
            todo="`gogh down` and `gogh up` start ours again with one; another server needs "
            "PREFECT_SERVER_API_AUTH_STRING",
        )


def first_cycle(settings: Settings, api: Api, now: datetime) -> str | None:
    """Let the window that is now be planned, unless its cycle was begun; the run's id.

    The run has the window's key, as the schedule's has: whichever comes second does nothing.
    """
    from gogh_core.domain import Cycle

    cycle = Cycle.at(now, settings.cycle.window_s)
    due = {"after_": cycle.window_start.isoformat(), "before_": now.isoformat()}
    body = {
        "flows": {"name": {"any_": ["reallocation"]}},
        "flow_runs": {"expected_start_time": due},
        "limit": 1,
    }
    if api.call("POST", "/flow_runs/filter", body):
        return None
    window = {"window": cycle.window_start.isoformat()}
    return str(api.run(_CYCLE, window, key=f"gogh up {cycle.id}")["id"])


def next_cycle(api: Api, now: datetime) -> datetime | None:
    """When the schedule plans the next window; None while it is paused."""
    deployment = api.deployment(_CYCLE)
    times = []
    for entry in deployment["schedules"]:
        every_s = entry["schedule"].get("interval")
        if every_s and entry["active"] and not deployment["paused"]:
            anchor = datetime.fromisoformat(entry["schedule"]["anchor_date"])
            passed = (now - anchor) // timedelta(seconds=every_s)
            times.append(anchor + timedelta(seconds=every_s * (passed + 1)))
    return min(times, default=None)


def bring_down(settings: Settings) -> list[str]:
    """End what `bring_up` started, workers first; names of what was ended."""
    home = settings.home.absolute()
    if not (home / "run").exists():
        return []
    with locked(home / "run" / "lock"):
        records = sorted(path.stem for path in (home / "run").glob("*.json"))
        order = sorted(records, key=lambda name: (name == "server", name))
        ended = [name for name in order if Daemon(name, home).stop()]
        stray = leftovers(home, end=True)
        return ended + ([f"{len(stray)} stray run(s)"] if stray else [])


def _prepare_cluster(settings: Settings) -> str:
    """Make sure that store and cluster are there, and say which cluster it is."""
    from gogh_core.cluster import open_manager
    from gogh_core.store import Store

    store = Store(settings)
    store.migrate()
    manager = open_manager(settings, store)
    try:
        state = manager.state()
    except GoghError as error:
        return f"{manager.name}, no answer yet ({error})"
    return f"{manager.name}, {len(state.servers)} servers, {len(state.jobs)} jobs"


def _server(settings: Settings, api: Api, say: Say) -> None:
    home, chosen = settings.home.absolute(), settings.prefect
    daemon = Daemon("server", home)
    if daemon.process() is None and not port_is_free(chosen.host, chosen.port):
        raise StackError(
            f"port {chosen.port} is taken by another program",
            where="gogh up",
            todo="set GOGH_PREFECT__PORT to a free one",
        )
    command = [
        sys.executable, "-m", "flows.server", "server", "start",
        "--host", chosen.host, "--port", str(chosen.port),
    ]  # fmt: skip
    if daemon.start(command, environment(settings, "server"), umask=settings.umask_bits):
        say(f"server: starting at {api_url(settings)}")
    _until(api.healthy, daemon, "the server")


def _until(ready: Callable[[], bool], daemon: Daemon, what: str) -> None:
    until = time.monotonic() + _READY_S
    while not ready():
        if daemon.process() is None:
            raise StackError(f"{what} ended: {daemon.tail()}", where=str(daemon.log))
        if time.monotonic() > until:
            raise StackError(f"{what} is not ready: {daemon.tail()}", where=str(daemon.log))
        time.sleep(0.3)


# What runs, with nothing that a deployment, a run or an automation could override: no variables,
# and any that are given are refused. `env` must not stand here: Prefect merges a run's own into it.
# Without a command of its own a worker first looks for code to fetch, in a process that imports
# Prefect for nothing else: two seconds of each run. Ours is installed.
JOB_TEMPLATE: dict[str, Any] = {
    "variables": {"type": "object", "properties": {}, "additionalProperties": False},
    "job_configuration": {"command": "python -m prefect.engine"},
}


def _pool(settings: Settings, api: Api) -> None:
    """Make the pool, or take back what somebody changed in its template."""
    name = settings.prefect.pool
    found = api.call("GET", f"/work_pools/{name}", missing_ok=True)
    if found is None:
        body = {"name": name, "type": "process", "description": "Where GOGH's flows run."}
        api.call("POST", "/work_pools/", {**body, "base_job_template": JOB_TEMPLATE})
        return
    _without_job_variables(api, name)
    if found["base_job_template"] != JOB_TEMPLATE:
        api.call("PATCH", f"/work_pools/{name}", {"base_job_template": JOB_TEMPLATE})


def _without_job_variables(api: Api, pool: str) -> None:
    """Take the variables of deployments away: the template refuses every run of such a one.

    An older GOGH gave them a command, and Prefect lets who has the password add any.
    """
    body = {"work_pools": {"name": {"any_": [pool]}}}
    for deployment in api.call("POST", "/deployments/filter", body):
        if deployment["job_variables"]:
            api.call("PATCH", f"/deployments/{deployment['id']}", {"job_variables": {}})


def _deployments_file() -> Path:
    """prefect.yaml of the project, or of the installation."""
    project = Path(__file__).resolve().parents[2] / "prefect.yaml"
    installed = Path(sys.prefix) / "share" / "gogh" / "prefect.yaml"
    for path in (project, installed):
        if path.exists():
            return path
    raise StackError("prefect.yaml is missing", where=str(project), todo="install GOGH again")


def rendered_deployments(settings: Settings, text: str) -> dict[str, Any]:
    """prefect.yaml with the cadence, pool and damper of the settings, for workers of `gogh up`."""
    import yaml

    raw: dict[str, Any] = yaml.safe_load(text)
    raw.pop("definitions", None)
    for deployment in raw["deployments"]:
        deployment["work_pool"] = {**deployment["work_pool"], "name": settings.prefect.pool}
        if deployment["name"] == "reallocation":
            deployment["schedules"][0]["interval"] = settings.cycle.window_s
        for trigger in deployment.get("triggers", []):
            trigger["within"] = settings.prefect.damper_s
    return raw


def _deploy(settings: Settings, api: Api, say: Say) -> int:
    """Apply prefect.yaml; once more only when it or the settings changed."""
    import yaml

    source = _deployments_file()
    rendered = rendered_deployments(settings, source.read_text(encoding="utf-8"))
    text = yaml.safe_dump(rendered, sort_keys=False, allow_unicode=True)
    home = settings.home.absolute()
    target, stamp = home / "prefect" / "prefect.yaml", home / "run" / "deployed"
    database = settings.prefect.database_url
    key = text + api_url(settings) + (database.get_secret_value() if database else "")
    digest = hashlib.sha256(key.encode()).hexdigest()
    count = len(rendered["deployments"])
    if stamp.exists() and stamp.read_text(encoding="utf-8") == digest:
        return count
    say(f"deployments: {count}")
    target.write_text(text, encoding="utf-8")
    command = prefect_command("--no-prompt", "deploy", "--all", "--prefect-file", str(target))
    fault = ""
    for _ in range(3):  # a locked SQLite database ends `prefect deploy`; applying twice is harmless
        done = subprocess.run(
            command,
            env=environment(settings, "deploy"),
            umask=settings.umask_bits,
            cwd=home,
            capture_output=True,
            text=True,
            timeout=_READY_S,
            check=False,
        )
        if done.returncode == 0:
            _retire(api, {entry["name"] for entry in rendered["deployments"]})
            stamp.write_text(digest, encoding="utf-8")
            return count
        fault = " ".join((done.stdout + done.stderr).split())[-600:]
    raise StackError(f"deployments could not be made: {fault}", where=str(source))


def _retire(api: Api, names: set[str]) -> None:
    """Take away deployments and automations that an older GOGH made."""
    ours = {"deployments": {"tags": {"all_": ["gogh"]}}}
    for deployment in api.call("POST", "/deployments/filter", ours):
        if deployment["name"] not in names:
            api.call("DELETE", f"/deployments/{deployment['id']}")
    old = {"automations": {"name": {"any_": list(_OLD_AUTOMATIONS)}}}
    for automation in api.call("POST", "/automations/filter", old):
        api.call("DELETE", f"/automations/{automation['id']}")


def start_watch(settings: Settings, say: Say) -> None:
    """Start `gogh watch` unless it runs."""
    command = [sys.executable, "-m", "gogh_core.cli", "watch"]
    daemon = Daemon("watch", settings.home.absolute())
    if daemon.start(command, environment(settings, "watch"), umask=settings.umask_bits):
        say("watch: looks for what cannot wait")


def _workers(settings: Settings, api: Api, count: int, say: Say) -> list[str]:
    chosen, home = settings.prefect, settings.home.absolute()
    names = []
    for number in range(1, count + 1):
        daemon = Daemon(f"worker-{number}", home)
        name = f"{platform.node()}-{number}"
        command = prefect_command(
            "worker", "start", "--type", "process", "--pool", chosen.pool,
            "--name", name, "--limit", str(chosen.runs_per_worker),
        )  # fmt: skip
        if daemon.start(command, environment(settings, "worker"), umask=settings.umask_bits):
            say(f"worker: starting {name}")
        _until(lambda name=name: name in _online(api, chosen.pool), daemon, f"worker {name}")  # type: ignore[misc]
        names.append(name)
    return names


def _online(api: Api, pool: str) -> set[str]:
    found = api.call("POST", f"/work_pools/{pool}/workers/filter", {})
    return {worker["name"] for worker in found if worker.get("status") == "ONLINE"}


def _metrics(settings: Settings, say: Say) -> str:
    port = settings.prefect.metrics_port
    address = f"http://{settings.prefect.host}:{port}/metrics"
    daemon = Daemon("metrics", settings.home.absolute())
    command = [
        sys.executable, "-m", "gogh_core.watch",
        "--host", settings.prefect.host, "--port", str(port),
    ]  # fmt: skip
    if daemon.start(command, environment(settings, "metrics"), umask=settings.umask_bits):
        say(f"metrics: starting at {address}")

    def ready() -> bool:
        try:
            return ask(address, timeout_s=10.0)[0] == 200
        except OSError:
            return False

    _until(ready, daemon, "the metrics endpoint")
    return address
