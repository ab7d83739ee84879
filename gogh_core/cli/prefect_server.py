"""Prefect's server and workers as processes of ours: start, wait, ask, end.

`Daemon` is one process with a record below `home/run` (pid and the moment it began, so that a pid
used again by somebody else is never taken for ours); `Api` speaks to the server over HTTP and tries
again while its database is busy; `environment` is what one of our processes sees: its Prefect home
is below ours, never the user's own, and of the secrets it gets those that its role needs.
"""

from __future__ import annotations

import base64
import contextlib
import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import psutil

from gogh_core.cli.password import api_password
from gogh_core.errors import StackError
from gogh_core.settings import Settings, secret_variables

__all__ = [
    "HEARTBEAT_S",
    "Api",
    "Daemon",
    "Role",
    "api_url",
    "ask",
    "environment",
    "leftovers",
    "locked",
    "open_to_all",
    "port_is_free",
    "prefect_command",
]

HEARTBEAT_S = 30
"""How often a run says that it lives; Prefect allows no less."""
_MARK = "GOGH_STACK"
Role = Literal["server", "worker", "deploy", "watch", "metrics"]
_SECRETS: dict[Role, frozenset[str]] = {
    "server": frozenset(),
    "worker": frozenset({"webhook.secret", "telemetry.prometheus_token"}),
    "deploy": frozenset(),
    "watch": frozenset({"prefect.auth"}),
    "metrics": frozenset(),
}
"""The secret settings that each process gets by its environment."""
_BUSY = {429, 502, 503, 504}

# Plain lines on standard error. Rich, Prefect's default, ends the process when the reader of its
# pipe has gone, and so would end a run whose worker was killed.
_LOGGING = """\
version: 1
disable_existing_loggers: false
formatters:
  plain:
    format: "%(asctime)s %(levelname)s %(name)s: %(message)s"
handlers:
  console: {level: 0, class: logging.StreamHandler, formatter: plain, stream: "ext://sys.stderr"}
  api: {level: 0, class: prefect.logging.handlers.APILogHandler}
  worker_api: {level: 0, class: prefect.logging.handlers.WorkerAPILogHandler}
loggers:
  prefect: {level: INFO}
  prefect.extra: {level: INFO, handlers: [api], propagate: false}
  prefect.flow_runs: {level: NOTSET, handlers: [api]}
  prefect.task_runs: {level: NOTSET, handlers: [api]}
  prefect.workers: {level: NOTSET, handlers: [worker_api]}
  prefect.server: {level: WARNING}
  uvicorn: {level: WARNING, handlers: [console], propagate: false}
root: {level: WARNING, handlers: [console]}
"""


def api_url(settings: Settings) -> str:
    """The address of Prefect's API."""
    return settings.prefect.api_url


def environment(settings: Settings, role: Role = "worker") -> dict[str, str]:
    """The environment of one of our processes; nothing of the user's own Prefect gets in."""
    home = settings.home.absolute()
    prefect_home = home / "prefect"
    prefect_home.mkdir(parents=True, exist_ok=True)
    (prefect_home / "logging.yml").write_text(_LOGGING, encoding="utf-8")
    kept = {key: value for key, value in os.environ.items() if not key.startswith("PREFECT_")}
    config = os.environ.get("GOGH_CONFIG") or ("gogh.toml" if Path("gogh.toml").exists() else None)
    if config:
        kept["GOGH_CONFIG"] = str(Path(config).absolute())
    kept = _without(kept, {key for key in secret_variables() if key not in _SECRETS[role]})
    # The `python` of a run is this one, whether or not the shell knows it.
    bin_folder = str(Path(sys.executable).parent)
    kept |= {
        _MARK: str(home),
        "PATH": os.pathsep.join([bin_folder, os.environ.get("PATH", os.defpath)]),
        "GOGH_HOME": str(home),
        "PREFECT_HOME": str(prefect_home),
        "PREFECT_API_URL": api_url(settings),
        "PREFECT_LOGGING_COLORS": "false",
        "PREFECT_LOGGING_SETTINGS_PATH": str(prefect_home / "logging.yml"),
        "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
        "DO_NOT_TRACK": "1",
        "PREFECT_CLI_PROMPT": "false",
        "PREFECT_CLI_COLORS": "false",
        # Each poll of a worker writes to Prefect's database. Scheduled runs are fetched ahead, so
        # only a run asked for by hand waits for the next one.
        "PREFECT_WORKER_QUERY_SECONDS": "3",
        "PREFECT_WORKER_PREFETCH_SECONDS": "10",
        "PREFECT_SERVER_DATABASE_TIMEOUT": "30",
        "PREFECT_SERVER_SERVICES_SCHEDULER_LOOP_SECONDS": "20",
        "PREFECT_CLIENT_RETRY_EXTRA_CODES": "502,503,504",
        "PREFECT_CLIENT_MAX_RETRIES": "8",
        # A run that stops beating is marked as crashed by `gogh watch`.
        "PREFECT_FLOWS_HEARTBEAT_FREQUENCY": str(HEARTBEAT_S),
        "PYTHONUNBUFFERED": "1",
    }
    return kept | _prefect_secrets(settings, role)


def _without(env: Mapping[str, str], keys: set[str]) -> dict[str, str]:
    """The environment without these settings, whether spelt alone or in a section's JSON."""
    variables = {name for key, name in secret_variables().items() if key in keys}
    found = {name: value for name, value in env.items() if name.upper() not in variables}
    for section in {key.partition(".")[0] for key in keys}:
        for name in [name for name in found if name.upper() == f"GOGH_{section.upper()}"]:
            values = json.loads(found[name])
            kept = {key: v for key, v in values.items() if f"{section}.{key.lower()}" not in keys}
            found[name] = json.dumps(kept)
    return found


def _prefect_secrets(settings: Settings, role: Role) -> dict[str, str]:
    """The API's password and the database of Prefect, for those of its processes that need them."""
    found: dict[str, str] = {}
    password, database = api_password(settings), settings.prefect.database_url
    if password is not None and role in ("worker", "deploy"):
        found["PREFECT_API_AUTH_STRING"] = password
    if password is not None and role == "server":
        found["PREFECT_SERVER_API_AUTH_STRING"] = password
    if database is not None and role == "server":
        found["PREFECT_SERVER_DATABASE_CONNECTION_URL"] = database.get_secret_value()
    return found


def port_is_free(host: str, port: int) -> bool:
    """Whether we could bind there now."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError:
            return False
    return True


@dataclass(frozen=True)
class Daemon:
    """One process of the stack, known by its record below `home/run`."""

    name: str
    home: Path

    @property
    def record(self) -> Path:
        """Where its pid is noted."""
        return self.home / "run" / f"{self.name}.json"

    @property
    def log(self) -> Path:
        """What it printed."""
        return self.home / "logs" / f"{self.name}.log"

    def process(self) -> psutil.Process | None:
        """The process that was started, or None when it has gone."""
        try:
            noted = json.loads(self.record.read_text(encoding="utf-8"))
            found = psutil.Process(int(noted["pid"]))
            same = abs(found.create_time() - float(noted["began"])) < 2.0
            alive = same and found.is_running() and found.status() != psutil.STATUS_ZOMBIE
        except (OSError, ValueError, KeyError, psutil.Error):
            return None
        return found if alive else None

    def start(self, command: list[str], env: Mapping[str, str], *, umask: int = 0o077) -> bool:
        """Start it unless it runs already; says whether it was started now."""
        if self.process() is not None:
            return False
        for folder in (self.record.parent, self.log.parent):
            folder.mkdir(parents=True, exist_ok=True)
        with self.log.open("ab") as log:
            child = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=dict(env),
                cwd=self.home,
                start_new_session=True,
                umask=umask,
            )
        noted = {"pid": child.pid, "began": psutil.Process(child.pid).create_time()}
        part = self.record.with_suffix(".part")
        part.write_text(json.dumps(noted), encoding="utf-8")
        part.replace(self.record)
        return True

    def stop(self, *, grace_s: float = 20.0) -> bool:
        """End it and what it started; says whether there was anything to end."""
        found = self.process()
        if found is not None:
            with contextlib.suppress(psutil.NoSuchProcess):
                family = [*found.children(recursive=True), found]
                found.send_signal(signal.SIGTERM)
                _, left = psutil.wait_procs(family, timeout=grace_s)
                _end(left)
        self.record.unlink(missing_ok=True)
        return found is not None

    def tail(self, lines: int = 8) -> str:
        """The last lines it printed."""
        try:
            text = self.log.read_text(encoding="utf-8", errors="replace")
        except OSError:
            return ""
        return " | ".join(text.strip().splitlines()[-lines:])


def _end(processes: list[psutil.Process]) -> None:
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.terminate()
    _, left = psutil.wait_procs(processes, timeout=5)
    for process in left:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()
    psutil.wait_procs(left, timeout=5)


def leftovers(home: Path, *, end: bool) -> list[int]:
    """Processes of this home's stack that outlived the one that started them; ended if asked."""
    mark, own = str(home.absolute()), {os.getpid(), os.getppid()}
    found: list[psutil.Process] = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if process.pid not in own and process.environ().get(_MARK) == mark:
                found.append(process)
    if end:
        _end(found)
    return [process.pid for process in found]


# Straight to the server, whatever proxy the shell names. Not httpx: its import takes longer than
# all that `gogh status` asks of the server.
_DIRECT = urllib.request.build_opener(urllib.request.ProxyHandler({}))


def ask(
    url: str,
    *,
    timeout_s: float,
    method: str = "GET",
    body: Any = None,
    headers: Mapping[str, str] | None = None,
) -> tuple[int, bytes]:
    """Status and body of one HTTP request; OSError where no answer comes."""
    data = None if body is None else json.dumps(body).encode()
    sent = {"Content-Type": "application/json", **(headers or {})}
    request = urllib.request.Request(url, data, sent, method=method)  # noqa: S310
    try:
        with _DIRECT.open(request, timeout=timeout_s) as answer:
            return int(answer.status), bytes(answer.read())
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read()
    except http.client.HTTPException as error:
        raise ConnectionError(str(error)) from error


class Api:
    """Prefect's API, with patience while it starts or is busy."""

    def __init__(
        self, settings: Settings, *, patience_s: float = 60.0, timeout_s: float = 30.0
    ) -> None:
        self._headers = {}
        password = api_password(settings)
        if password is not None:
            encoded = base64.b64encode(password.encode()).decode()
            self._headers["Authorization"] = f"Basic {encoded}"
        self.url = api_url(settings)
        self._patience_s = patience_s
        self._timeout_s = timeout_s

    def call(self, method: str, path: str, body: Any = None, *, missing_ok: bool = False) -> Any:
        """One request; None for 404 where that is an answer; our error for the rest."""
        until = time.monotonic() + self._patience_s
        while True:
            try:
                status, content = self._ask(method, path, body, self._timeout_s)
                fault = f"{status} {content[:300].decode(errors='replace')}"
            except OSError as error:
                status, content, fault = 0, b"", f"no answer ({type(error).__name__})"
            if status and status not in _BUSY:
                break
            if time.monotonic() > until:
                raise StackError(fault, where=self.url, todo="is it up? `gogh up` starts it")
            time.sleep(0.5)
        if status == 404 and missing_ok:
            return None
        if status == 401:
            raise StackError(
                "it wants another password than ours",
                where=self.url,
                todo="set GOGH_PREFECT__AUTH, or `gogh down` and `gogh up` as the same user",
            )
        if status >= 400:
            raise StackError(fault, where=f"{self.url}{path}")
        return json.loads(content) if content else None

    def _ask(self, method: str, path: str, body: Any, timeout_s: float) -> tuple[int, bytes]:
        url, headers = f"{self.url}{path}", self._headers
        return ask(url, method=method, body=body, headers=headers, timeout_s=timeout_s)

    def healthy(self) -> bool:
        """Whether the server answers now."""
        try:
            return self._ask("GET", "/health", None, 5.0)[0] == 200
        except OSError:
            return False

    def deployment(self, name: str) -> dict[str, Any]:
        """The deployment of that name (`flow/deployment`)."""
        found = self.call("GET", f"/deployments/name/{name}", missing_ok=True)
        if found is None:
            raise StackError(f"no deployment {name}", where=self.url, todo="run `gogh up`")
        return dict(found)

    def run(
        self, deployment: str, parameters: Mapping[str, Any], *, key: str | None = None
    ) -> dict[str, Any]:
        """Ask for a run of a deployment; its record is given back at once. One run for a key."""
        ident = self.deployment(deployment)["id"]
        body = {"parameters": dict(parameters), "enforce_parameter_schema": True}
        body |= {"idempotency_key": key} if key else {}
        return dict(self.call("POST", f"/deployments/{ident}/create_flow_run", body))

    def wait(self, run_id: str, *, timeout_s: float) -> dict[str, Any]:
        """The run's record once it has ended or paused."""
        until = time.monotonic() + timeout_s
        ends = {"COMPLETED", "FAILED", "CRASHED", "CANCELLED", "PAUSED"}
        while True:
            record = dict(self.call("GET", f"/flow_runs/{run_id}"))
            if record["state_type"] in ends:
                return record
            if time.monotonic() > until:
                raise StackError(
                    f"run {record['name']} is still {record['state_name']}",
                    where=self.url,
                    todo="is a worker running? `gogh up` starts one",
                )
            time.sleep(0.5)


def open_to_all(url: str) -> bool:
    """Whether the API at that address answers somebody without a password."""
    return ask(f"{url}/admin/version", timeout_s=10.0)[0] not in (401, 403)


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    """One process at a time; others wait, and a killed one lets go."""
    import fcntl

    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def prefect_command(*arguments: str) -> list[str]:
    """Prefect's own command of this very installation."""
    return [sys.executable, "-m", "prefect", *arguments]
