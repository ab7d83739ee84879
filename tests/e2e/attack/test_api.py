"""Prefect's API is GOGH's command line for whoever may use it: nobody without the password may.

One stack, as `gogh up` starts it by default, in a folder that every local user can reach; the
stranger is a process of the user `nobody` that talks to the server over loopback.
"""

from __future__ import annotations

import asyncio
import base64
import json
import pwd
import shutil
import stat
import subprocess
import tempfile
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
import websockets
from prefect.server.api.server import API_ROUTERS
from starlette.routing import WebSocketRoute

from gogh_core.cli.prefect_server import Daemon
from gogh_core.errors import StackError
from tests.e2e.stack import Stack, free_port, running, until

pytestmark = pytest.mark.e2e

STRANGER = Path(__file__).with_name("stranger.py")
HEALTH = {"/api/health", "/api/ready"}
WEBHOOK_SECRET = "whsec_c2VjcmV0IG9mIHRoZSBhdHRhY2sgdGVzdA=="
OVERRIDES: dict[str, Any] = {
    "command": "touch {mark}",
    "env": {"PYTHONPATH": "{folder}"},
    "env.PYTHONPATH": "{folder}",
    "working_dir": "{folder}",
    "image": "evil:latest",
    "stream_output": False,
    "name": "evil",
    "labels": {"evil": "1"},
}
"""What a process pool lets a run override by default, and what other kinds of pools do."""


@pytest.fixture(scope="module")
def place() -> Iterator[Path]:
    """A folder that every local user can reach and look into."""
    found = Path(tempfile.mkdtemp(prefix="gogh-attack-"))
    found.chmod(0o755)
    yield found
    shutil.rmtree(found)


@pytest.fixture(scope="module")
def attacked(place: Path) -> Iterator[Stack]:
    home = place / "home"
    home.mkdir(mode=0o755)
    chosen = {"metrics_port": free_port()}
    with running(
        home, prefect=chosen, cycle={"window_s": 600}, webhook={"secret": WEBHOOK_SECRET}
    ) as stack:
        yield stack


def as_nobody(place: Path, **asked: Any) -> dict[str, Any]:
    """What another local user gets."""
    script = place / "stranger.py"
    shutil.copy(STRANGER, script)
    nobody = pwd.getpwnam("nobody")
    done = subprocess.run(
        ["/usr/bin/python3", str(script)], input=json.dumps(asked), capture_output=True,
        text=True, timeout=300, check=False, cwd="/", env={},
        user=nobody.pw_uid, group=nobody.pw_gid, extra_groups=[],
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["uid"] == nobody.pw_uid
    return dict(told)


def routes(stack: Stack) -> list[tuple[str, str]]:
    """Every method and path of the server's own description, with names of things that exist."""
    described = stack.api.call("GET", "/openapi.json")
    real = {
        "{id}": stack.api.deployment("replan/replan")["id"],
        "{work_pool_name}": stack.settings.prefect.pool,
        "{name}": stack.settings.prefect.pool,
    }
    found = []
    for path, methods in described["paths"].items():
        full = f"/api{path}"
        for word, thing in real.items():
            full = full.replace(word, thing)
        while "{" in full:
            head, _, tail = full.partition("{")
            full = head + str(uuid.uuid4()) + tail.partition("}")[2]
        found += [(method.upper(), full) for method in methods]
    return found


def counts(stack: Stack) -> dict[str, int]:
    """How many of everything there are; runs of the cadence come and go by themselves."""
    kinds = ("deployments", "work_pools", "block_documents", "automations", "variables", "flows")
    return {kind: int(stack.api.call("POST", f"/{kind}/count", {})) for kind in kinds}


def replans(stack: Stack) -> list[str]:
    body = {"flows": {"name": {"any_": ["replan"]}}}
    return sorted(run["id"] for run in stack.api.call("POST", "/flow_runs/filter", body))


def test_a_stranger_gets_401_from_every_route_but_health(attacked: Stack, place: Path):
    found = routes(attacked)
    writing = [route for route in found if route[0] != "GET"]
    assert len(writing) > 100, "the server's own description lists them"
    before, runs = counts(attacked), replans(attacked)
    forged = [
        {},
        {"Authorization": "Basic " + base64.b64encode(b"gogh:guess").decode()},
        {"Authorization": "Basic Og=="},
    ]
    calls = [
        [method, f"{attacked.ui}{path}", None if method == "GET" else {}, headers]
        for headers in forged
        for method, path in found
    ]
    statuses = as_nobody(place, calls=calls)["calls"]
    let_in = {
        (method, address.removeprefix(attacked.ui))
        for (method, address, _, _), status in zip(calls, statuses, strict=True)
        if status != 401
    }
    assert let_in == {("GET", path) for path in HEALTH}
    assert (counts(attacked), replans(attacked)) == (before, runs)


def test_a_stranger_cannot_run_a_command_as_goghs_user(attacked: Stack, place: Path):
    mark = place / "stranger-was-here"
    ident = attacked.api.deployment("replan/replan")["id"]
    address = f"{attacked.api.url}/deployments/{ident}/create_flow_run"
    body = {"job_variables": {"command": f"touch {mark}"}}
    assert as_nobody(place, calls=[["POST", address, body, {}]])["calls"] == [401]
    assert not mark.exists()


def test_a_stranger_reads_neither_the_password_nor_the_home(attacked: Stack, place: Path):
    home = attacked.settings.home.absolute()
    secret = home / "prefect" / "password"
    assert stat.S_IMODE(secret.stat().st_mode) == 0o600
    assert stat.S_IMODE(home.stat().st_mode) == 0o700, "it was 0755 before `gogh up`"
    looked = [home, secret, home / "prefect" / "prefect.db", home / "logs" / "server.log"]
    told = as_nobody(place, files=[str(path) for path in looked])
    assert set(told["files"]) == {"PermissionError"}


def test_what_the_processes_make_is_closed_to_others(attacked: Stack):
    """The test made some files in this process; those of server, worker and runs are theirs."""
    prefect = attacked.settings.home.absolute() / "prefect"
    made = [path for path in prefect.rglob("prefect.db*") if path.is_file()]
    assert made
    assert {stat.S_IMODE(path.stat().st_mode) & 0o077 for path in made} == {0}


def test_the_password_is_on_no_command_line_and_in_no_log(attacked: Stack):
    home = attacked.settings.home.absolute()
    password = (home / "prefect" / "password").read_text().strip().partition(":")[2]
    assert len(password) > 40
    for process in psutil.process_iter(["cmdline"]):
        assert password not in " ".join(process.info["cmdline"] or []), process
    for path in [*home.rglob("*.log"), *home.rglob("*.json"), *home.rglob("*.yaml")]:
        assert password not in path.read_text(errors="replace"), path
    assert password not in json.dumps(attacked.up)
    assert str(home / "prefect" / "password") in attacked.up["sign_in"]


def test_only_the_worker_has_the_secret_of_the_webhook(attacked: Stack):
    home = attacked.settings.home.absolute()
    holders = set()
    for name in ("server", "watch", "metrics", "worker-1"):
        process = Daemon(name, home).process()
        assert process is not None, name
        if WEBHOOK_SECRET in process.environ().values():
            holders.add(name)
    assert holders == {"worker-1"}


async def _refused(address: str, *, subprotocols: list[str] | None, first: Any) -> bool:
    try:
        async with websockets.connect(address, subprotocols=subprotocols, proxy=None) as socket:
            await socket.send(json.dumps(first))
            answer = json.loads(await asyncio.wait_for(socket.recv(), 20))
            return bool(answer.get("type") != "auth_success")
    except websockets.WebSocketException:
        return True


def test_a_stranger_opens_no_websocket(attacked: Stack):
    """Events by websocket would ask for replans, too."""
    paths = {
        route.path.replace("{work_pool_name}", attacked.settings.prefect.pool)
        for router in API_ROUTERS
        for route in router.routes
        if isinstance(route, WebSocketRoute)
    }
    assert "/events/in" in paths
    event = {"event": "gogh.event.server_lost", "id": str(uuid.uuid4())}
    for path in sorted(paths):
        address = attacked.api.url.replace("http://", "ws://") + path
        for subprotocols in (None, ["prefect"]):
            for first in (event, {"type": "auth"}, {"type": "auth", "token": "gogh:guess"}):
                refused = _refused(address, subprotocols=subprotocols, first=first)
                assert asyncio.run(refused), (path, subprotocols, first)


def filled(value: Any, place: Path, mark: Path) -> Any:
    text = json.dumps(value).replace("{mark}", str(mark)).replace("{folder}", str(place))
    return json.loads(text)


@pytest.mark.parametrize("name", sorted(OVERRIDES))
def test_not_even_the_password_overrides_what_a_run_is(attacked: Stack, place: Path, name: str):
    mark = place / f"override-{name}"
    given = {"job_variables": {name: filled(OVERRIDES[name], place, mark)}}
    deployment = attacked.api.deployment("validate/validate")["id"]
    create = f"/deployments/{deployment}/create_flow_run"
    with pytest.raises(StackError, match="422"):
        attacked.api.call("POST", create, given)
    # Prefect does not check this one; the next run of the deployment is refused instead.
    attacked.api.call("PATCH", f"/deployments/{deployment}", given)
    try:
        with pytest.raises(StackError, match="422"):
            attacked.api.call("POST", create, {})
    finally:
        attacked.api.call("PATCH", f"/deployments/{deployment}", {"job_variables": {}})
    assert not mark.exists()


def test_a_run_sent_to_the_pool_directly_does_not_choose_its_command(attacked: Stack, place: Path):
    """Prefect checks the variables of such runs nowhere: the template has no place for them."""
    mark = place / "direct"
    deployment = attacked.api.deployment("validate/validate")
    body = {
        "flow_id": deployment["flow_id"],
        "work_pool_name": attacked.settings.prefect.pool,
        "job_variables": {
            "command": f"touch {mark}",
            "env": {"PREFECT__FLOW_ENTRYPOINT": "evil", "GOGH_HOME": str(place)},
            "working_dir": str(place),
        },
        "state": {"type": "SCHEDULED"},
    }
    run = attacked.api.call("POST", "/flow_runs/", body)
    try:
        ended = ("COMPLETED", "FAILED", "CRASHED", "CANCELLED")

        def state() -> str | None:
            found = attacked.api.call("GET", f"/flow_runs/{run['id']}")["state_type"]
            return found if found in ended else None

        assert until(state, "the end of the run", patience_s=120) != "COMPLETED"
        assert not mark.exists()
    finally:
        attacked.api.call("DELETE", f"/flow_runs/{run['id']}", missing_ok=True)


def test_a_template_that_somebody_opened_is_closed_by_the_next_up(attacked: Stack):
    from gogh_core.cli.stack import bring_up

    pool = f"/work_pools/{attacked.settings.prefect.pool}"
    loose = {
        "variables": {"type": "object", "properties": {"command": {"type": "string"}}},
        "job_configuration": {"command": "{{ command }}"},
    }
    before = attacked.api.call("GET", pool)["base_job_template"]
    assert before["variables"]["properties"] == {}
    attacked.api.call("PATCH", pool, {"base_job_template": loose})
    bring_up(attacked.settings, say=lambda line: None)
    assert attacked.api.call("GET", pool)["base_job_template"] == before


def test_runs_go_on_with_the_password(attacked: Stack):
    done = attacked.run("validate")
    assert done["state_type"] == "COMPLETED", done["state"]["message"]


def test_the_metrics_port_gives_figures_and_nothing_else(attacked: Stack, place: Path):
    address = attacked.up["addresses"]["metrics"]
    root = address.removesuffix("/metrics")
    calls = [["GET", address, None, {}]]
    calls += [[method, address, {}, {}] for method in ("POST", "PUT", "PATCH", "DELETE")]
    paths = ("", "../prefect/password", "%2e%2e/")
    calls += [["GET", f"{root}/{path}", None, {}] for path in paths]
    first, *others = as_nobody(place, calls=calls)["calls"]
    assert first == 200
    assert all(status >= 400 for status in others), others
