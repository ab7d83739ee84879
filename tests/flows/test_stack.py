"""Up and down without a server: records of processes, what they see, and prefect.yaml."""

from __future__ import annotations

import contextlib
import importlib
import os
import shutil
import stat
import sys
import threading
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import psutil
import pytest
import yaml
from prefect.settings import PREFECT_API_URL, temporary_settings

from flows.desk import Desk, require_guarded_server
from gogh_core.cli.password import api_password, make_password, password_file
from gogh_core.cli.prefect_server import Api, Daemon, api_url, environment, leftovers, port_is_free
from gogh_core.cli.stack import (
    JOB_TEMPLATE,
    bring_down,
    bring_up,
    first_cycle,
    next_cycle,
    rendered_deployments,
)
from gogh_core.errors import InvalidSettings, StackError
from gogh_core.settings import ClusterSettings, load, secret_variables

PROJECT = Path(__file__).resolve().parents[2]
SLEEP = [sys.executable, "-c", "import time; time.sleep(600)"]
FAMILY = [
    sys.executable,
    "-c",
    "import subprocess, sys, time;"
    "subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)']); time.sleep(600)",
]


@pytest.fixture
def home(tmp_path):
    yield tmp_path
    leftovers(tmp_path, end=True)


def marked(home):
    return os.environ | {"GOGH_STACK": str(home)}


def test_a_process_is_started_once_and_ended_with_what_it_started(home):
    daemon = Daemon("worker-1", home)
    assert daemon.start(FAMILY, marked(home))
    assert not daemon.start(FAMILY, marked(home)), "it runs already"
    process = daemon.process()
    assert process is not None
    while not process.children():
        pass
    child = process.children()[0]
    assert daemon.stop(grace_s=0.5)
    assert not child.is_running() or child.status() == psutil.STATUS_ZOMBIE
    assert not daemon.stop(), "there is nothing to end any more"


def test_a_pid_that_belongs_to_somebody_else_is_never_taken_for_ours(home):
    daemon = Daemon("server", home)
    daemon.record.parent.mkdir(parents=True)
    daemon.record.write_text(f'{{"pid": {os.getpid()}, "began": 1.0}}')
    assert daemon.process() is None
    assert not daemon.stop()
    assert not daemon.record.exists()


def test_what_outlived_its_parent_is_found_by_its_mark(home):
    Daemon("a", home).start(SLEEP, marked(home))
    other = Daemon("b", home)
    other.start(SLEEP, os.environ | {"GOGH_STACK": str(home / "other")})
    found = leftovers(home, end=True)
    assert len(found) == 1
    assert other.process() is not None, "another home's process is left alone"
    other.stop(grace_s=0.5)


def test_down_without_up_ends_nothing(settings):
    assert bring_down(settings) == []
    assert bring_down(settings) == []


def test_our_prefect_never_touches_the_users_own(settings, monkeypatch):
    monkeypatch.setenv("PREFECT_API_URL", "https://api.prefect.cloud/api")
    monkeypatch.setenv("PREFECT_API_KEY", "secret")
    seen = environment(settings)
    assert seen["PREFECT_API_URL"] == "http://127.0.0.1:4200/api"
    assert "PREFECT_API_KEY" not in seen
    assert Path(seen["PREFECT_HOME"]).is_relative_to(settings.home)


def test_auth_and_database_reach_the_processes_by_environment_only(tmp_path):
    settings = load(
        home=tmp_path,
        prefect={"auth": "ada:pw", "database_url": "postgresql+asyncpg://u:pw@h/d"},
    )
    server, worker = environment(settings, "server"), environment(settings, "worker")
    assert server["PREFECT_SERVER_API_AUTH_STRING"] == worker["PREFECT_API_AUTH_STRING"] == "ada:pw"
    assert server["PREFECT_SERVER_DATABASE_CONNECTION_URL"].endswith("@h/d")
    kept = "".join(p.read_text() for p in tmp_path.rglob("*") if p.is_file())
    assert "pw" not in kept


SECRETS = {
    "GOGH_WEBHOOK__SECRET": "of-the-webhook",
    "GOGH_TELEMETRY__PROMETHEUS_TOKEN": "of-prometheus",
    "GOGH_PREFECT__AUTH": "ada:of-the-api",
    "GOGH_PREFECT__DATABASE_URL": "postgresql+asyncpg://u:of-the-database@h/d",
}


@pytest.mark.parametrize(
    ("role", "known"),
    [
        ("server", {"of-the-api", "of-the-database"}),
        ("worker", {"of-the-api", "of-the-webhook", "of-prometheus"}),
        ("deploy", {"of-the-api"}),
        ("watch", {"of-the-api"}),
        ("metrics", set()),
    ],
)
def test_a_process_gets_the_secrets_of_its_role_and_no_others(tmp_path, monkeypatch, role, known):
    assert set(SECRETS) == set(secret_variables().values()), "a new secret needs its roles"
    for name, value in SECRETS.items():
        monkeypatch.setenv(name, value)
    words = {value.rpartition("of-")[2].partition("@")[0] for value in SECRETS.values()}
    seen = " ".join(environment(load(home=tmp_path), role).values())
    assert {f"of-{word}" for word in words if f"of-{word}" in seen} == known


def test_a_secret_in_a_sections_json_is_withheld_too(tmp_path, monkeypatch):
    monkeypatch.setenv("GOGH_WEBHOOK", '{"secret": "of-the-webhook", "retries": 7}')
    seen = environment(load(home=tmp_path), "metrics")
    assert seen["GOGH_WEBHOOK"] == '{"retries": 7}'
    assert "of-the-webhook" in environment(load(home=tmp_path), "worker")["GOGH_WEBHOOK"]


def test_up_makes_one_password_that_only_goghs_user_reads(settings):
    old = os.umask(0)
    try:
        make_password(settings)
    finally:
        os.umask(old)
    path = password_file(settings)
    made = api_password(settings)
    assert made is not None
    assert len(made.partition(":")[2]) > 40
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    make_password(settings)
    assert api_password(settings) == made, "the next up uses the same"
    assert os.listdir(path.parent) == [path.name]


def test_a_password_that_others_could_read_is_not_used(settings):
    make_password(settings)
    password_file(settings).chmod(0o640)
    with pytest.raises(StackError, match="others may have read"):
        api_password(settings)


def test_a_password_behind_a_link_is_not_used(settings, tmp_path):
    (tmp_path / "mine").write_text("gogh:chosen-by-somebody-else\n")
    password_file(settings).parent.mkdir(parents=True)
    password_file(settings).symlink_to(tmp_path / "mine")
    with pytest.raises(StackError, match="cannot be read"):
        api_password(settings)


def test_the_password_of_our_server_is_told_to_no_other_server(settings):
    make_password(settings)
    elsewhere = settings.prefect.model_copy(update={"url": "http://big:4200/api"})
    assert api_password(settings.model_copy(update={"prefect": elsewhere})) is None


@pytest.mark.parametrize(
    ("prefect", "todo"),
    [
        ({"authentication": False}, "prefect.authentication = true"),
        ({"authentication": False, "auth": "a:b"}, "prefect.authentication = true"),
        ({"url": "http://big:4200/api"}, "GOGH_PREFECT__AUTH"),
    ],
)
def test_act_does_not_start_without_a_password(tmp_path, prefect, todo):
    settings = load(home=tmp_path / "home", prefect=prefect, cluster={"mode": "act"})
    with pytest.raises(InvalidSettings, match=todo):
        bring_up(settings)
    assert not (tmp_path / "home").exists(), "nothing was begun"


@contextlib.contextmanager
def answering(status: int):
    """A server that answers everything with that status."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status)
            self.send_header("Content-Length", "2")
            self.end_headers()
            self.wfile.write(b"{}")

        def log_message(self, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/api"
    server.shutdown()
    server.server_close()


def test_up_refuses_a_server_that_asks_for_no_password(tmp_path):
    with answering(200) as url:
        settings = load(home=tmp_path, prefect={"url": url, "auth": "a:b"}, cluster={"mode": "act"})
        with pytest.raises(StackError, match="answers without a password"):
            bring_up(settings, say=lambda line: None)


def test_a_run_in_act_mode_refuses_a_server_that_asks_for_no_password(settings, monkeypatch):
    monkeypatch.setattr("flows.desk._LOOKS", 1)
    with answering(401) as url:
        require_guarded_server(url)
    with answering(200) as url, pytest.raises(StackError, match="answers without a password"):
        require_guarded_server(url)
    with pytest.raises(StackError, match="gave no answer"):
        require_guarded_server("http://127.0.0.1:9/api")
    bold = settings.model_copy(update={"cluster": ClusterSettings(mode="act")})
    with (
        temporary_settings({PREFECT_API_URL: None}),
        pytest.raises(StackError, match="no server with a password"),
    ):
        Desk(bold)


def test_a_server_elsewhere_is_named_by_its_url(tmp_path):
    assert api_url(load(home=tmp_path, prefect={"url": "http://big:4200/api/"})).endswith("/api")


def test_no_answer_is_told_with_what_to_do(tmp_path):
    api = Api(load(home=tmp_path, prefect={"port": 9}), patience_s=0.0)
    assert not api.healthy()
    with pytest.raises(StackError, match="gogh up"):
        api.call("GET", "/work_pools/gogh")


def test_a_taken_port_is_seen():
    import socket

    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        assert not port_is_free("127.0.0.1", taken.getsockname()[1])


def test_prefect_yaml_takes_cadence_pool_and_damper_from_the_settings(tmp_path):
    settings = load(
        home=tmp_path, cycle={"window_s": 60}, prefect={"pool": "mine", "damper_s": 7.0}
    )
    raw = rendered_deployments(settings, (PROJECT / "prefect.yaml").read_text())
    by_name = {entry["name"]: entry for entry in raw["deployments"]}
    assert by_name["reallocation"]["schedules"][0]["interval"] == 60
    assert {entry["work_pool"]["name"] for entry in raw["deployments"]} == {"mine"}
    assert by_name["replan"]["triggers"][0]["within"] == 7.0


def test_a_run_is_started_at_once_by_the_python_that_started_the_worker(tmp_path):
    settings = load(home=tmp_path)
    command = JOB_TEMPLATE["job_configuration"]["command"]
    found = shutil.which(command.split()[0], path=environment(settings)["PATH"])
    assert found is not None
    assert Path(found).parent == Path(sys.executable).parent


def test_the_pools_template_leaves_nothing_to_override(tmp_path):
    assert JOB_TEMPLATE["variables"]["properties"] == {}
    assert JOB_TEMPLATE["variables"]["additionalProperties"] is False
    assert set(JOB_TEMPLATE["job_configuration"]) == {"command"}, "Prefect merges into an `env`"
    raw = rendered_deployments(load(home=tmp_path), (PROJECT / "prefect.yaml").read_text())
    assert not any("job_variables" in entry["work_pool"] for entry in raw["deployments"])


def test_every_deployment_names_a_flow_with_a_description_and_tags():
    raw = yaml.safe_load((PROJECT / "prefect.yaml").read_text())
    names = set()
    for entry in raw["deployments"]:
        module, _, function = entry["entrypoint"].rpartition(".")
        flow = getattr(importlib.import_module(module), function)
        assert flow.name == entry["name"]
        assert entry["description"]
        assert "gogh" in entry["tags"]
        names.add(entry["name"])
    assert names >= {"reallocation", "replan", "retrain", "maintenance", "what-if", "ingest",
                     "validate", "retrain-p2", "estimate", "allocate", "emit"}  # fmt: skip


def test_runs_that_may_wait_for_a_person_have_no_concurrency_limit():
    """Prefect gives a paused run's place away and ends the run when it renews its lease."""
    raw = yaml.safe_load((PROJECT / "prefect.yaml").read_text())
    may_ask = [d for d in raw["deployments"] if d["name"] in ("reallocation", "replan")]
    assert len(may_ask) == 2
    assert not [d["name"] for d in may_ask if "concurrency_limit" in d]


def test_prefect_yaml_names_no_machine():
    text = (PROJECT / "prefect.yaml").read_text()
    assert yaml.safe_load(text)["pull"] == []
    assert str(PROJECT) not in text


NOON = datetime(2026, 11, 18, 12, 3, 7, tzinfo=UTC)


class Server:
    """Prefect as `up` asks it: the deployment of the cadence, and the runs there are."""

    def __init__(self, *, paused: bool = False, runs: tuple[str, ...] = ()) -> None:
        schedule = {"interval": 300.0, "anchor_date": "2026-01-01T00:00:00Z"}
        entries = [{"active": True, "schedule": schedule}]
        self._deployment = {"id": "d", "paused": paused, "schedules": entries}
        self._runs = runs
        self.asked: dict[str, dict] = {}

    def deployment(self, name):
        return self._deployment

    def call(self, method, path, body):
        due = body["flow_runs"]["expected_start_time"]
        assert due == {"after_": "2026-11-18T12:00:00+00:00", "before_": NOON.isoformat()}
        return list(self._runs)

    def run(self, deployment, parameters, *, key):
        self.asked.setdefault(key, parameters)
        return {"id": f"run of {key}"}


def test_the_next_cycle_comes_with_the_next_window():
    assert next_cycle(Server(), NOON) == NOON.replace(minute=5, second=0)
    edge = NOON.replace(minute=5, second=0)
    assert next_cycle(Server(), edge) == edge + timedelta(seconds=300)
    assert next_cycle(Server(paused=True), NOON) is None


def test_the_first_cycle_is_asked_for_once_in_a_window(settings):
    server = Server()
    assert first_cycle(settings, server, NOON) == first_cycle(settings, server, NOON)
    assert server.asked == {"gogh up 20261118T120000Z-0": {"window": "2026-11-18T12:00:00+00:00"}}


def test_a_window_that_the_schedule_began_needs_no_first_cycle(settings):
    server = Server(runs=("plan 12:00",))
    assert first_cycle(settings, server, NOON) is None
    assert server.asked == {}
