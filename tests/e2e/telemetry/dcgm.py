"""A DCGM exporter, a Prometheus over TLS that scrapes it, a gate that wants a token; loopback."""

from __future__ import annotations

import contextlib
import socket
import ssl
import subprocess
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx

SERVERS = {"n1": ("Tesla V100-SXM2-16GB", 2), "n2": ("Tesla T4", 1)}
_WATTS = {"n1": 120.0, "n2": 50.0}


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def metrics(now: float) -> str:
    """What dcgm-exporter writes, for all GPUs of two servers."""
    lines = []
    for host, (model, gpus) in SERVERS.items():
        for gpu in range(gpus):
            labels = (
                f'gpu="{gpu}",UUID="GPU-{host}-{gpu}",modelName="{model}",Hostname="{host}",pod=""'
            )
            watts = _WATTS[host]
            values = {
                "DCGM_FI_DEV_POWER_USAGE": watts,
                "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION": round(watts * (now - 1_700_000_000) * 1000),
                "DCGM_FI_DEV_GPU_UTIL": 87,
                "DCGM_FI_DEV_FB_USED": 4096,
                "DCGM_FI_DEV_GPU_TEMP": 61,
                "DCGM_FI_DEV_SM_CLOCK": 1380,
            }
            lines += [f"{name}{{{labels}}} {value}" for name, value in values.items()]
    return "\n".join(lines) + "\n"


class Exporter:
    """Serves the metrics."""

    def __init__(self) -> None:
        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                body = metrics(time.time()).encode()
                self.send_response(200)
                self.send_header("Content-Type", "text/plain; version=0.0.4")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                with contextlib.suppress(BrokenPipeError):  # Prometheus gave up on this scrape
                    self.wfile.write(body)

            def log_message(self, *_: Any) -> None:
                return

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.port = self._server.server_address[1]
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


def certificate(folder: Path) -> tuple[Path, Path]:
    """A certificate for 127.0.0.1, which is its own CA, and its key."""
    made, key = folder / "tls.crt", folder / "tls.key"
    subprocess.run(
        [
            *("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "7"),
            *("-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1"),
            *("-out", str(made), "-keyout", str(key)),
        ],
        check=True,
        capture_output=True,
    )
    return made, key


class Prometheus:
    """Debian's Prometheus over TLS on a folder of its own; can be stopped and started again."""

    def __init__(self, folder: Path, target: int) -> None:
        self.folder = folder
        self.port = free_port()
        self.url = f"https://127.0.0.1:{self.port}"
        self._process: subprocess.Popen[bytes] | None = None
        folder.mkdir(parents=True, exist_ok=True)
        self.ca, self.key = certificate(folder)
        self.client = httpx.Client(
            base_url=self.url,
            timeout=30,
            trust_env=False,
            verify=ssl.create_default_context(cafile=str(self.ca)),
        )
        (folder / "web.yml").write_text(
            f"tls_server_config: {{cert_file: {self.ca}, key_file: {self.key}}}\n"
        )
        (folder / "prometheus.yml").write_text(
            "global: {scrape_interval: 1s, scrape_timeout: 1s}\n"
            "scrape_configs:\n  - job_name: dcgm\n    static_configs:\n"
            f"      - targets: ['127.0.0.1:{target}']\n"
        )

    def start(self) -> None:
        log = (self.folder / "log").open("ab")
        self._process = subprocess.Popen(
            [
                "prometheus",
                f"--config.file={self.folder}/prometheus.yml",
                f"--web.config.file={self.folder}/web.yml",
                f"--storage.tsdb.path={self.folder}/data",
                f"--web.listen-address=127.0.0.1:{self.port}",
            ],
            stdout=log,
            stderr=log,
        )
        wait_for(self.ready, "Prometheus")

    def ready(self) -> bool:
        try:
            return self.client.get("/-/ready").status_code == 200
        except httpx.HTTPError:
            return False

    def stop(self) -> None:
        if self._process is not None:
            self._process.terminate()
            self._process.wait(timeout=60)
            self._process = None

    def scrapes(self, start: float, end: float) -> set[tuple[str, int, float]]:
        """(server, GPU, time) of every scrape it has, by its own raw samples."""
        query = f"DCGM_FI_DEV_POWER_USAGE[{int(end - start) + 1}s]"
        form = {"query": query, "time": f"{end:.3f}"}
        answer = self.client.get("/api/v1/query", params=form).json()
        return {
            (series["metric"]["Hostname"], int(series["metric"]["gpu"]), round(float(ts), 3))
            for series in answer["data"]["result"]
            for ts, _ in series["values"]
            if start < float(ts) <= end
        }


class Gate:
    """A proxy over TLS before Prometheus that wants a token, and answers once with an error."""

    def __init__(self, prometheus: Prometheus, token: str) -> None:
        self.tokens: list[str | None] = []
        gate = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                asked = self.rfile.read(int(self.headers["Content-Length"]))
                gate.tokens.append(self.headers.get("Authorization"))
                if gate.tokens[-1] != f"Bearer {token}":
                    code, body = 401, b"no"
                elif len(gate.tokens) == 1:
                    code, body = 503, b'{"status":"error","error":"starting"}'
                else:
                    kind = {"Content-Type": self.headers["Content-Type"]}
                    answer = prometheus.client.post(self.path, content=asked, headers=kind)
                    code, body = answer.status_code, answer.content
                self.send_response(code)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: Any) -> None:
                return

        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(prometheus.ca, prometheus.key)
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        self.url = f"https://127.0.0.1:{self._server.server_address[1]}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


def wait_for(condition: Callable[[], bool], what: str, timeout_s: float = 120.0) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, f"waited in vain for {what}"
        time.sleep(0.5)
