"""Debian's PostgreSQL in a folder of its own, on a free port of the loopback."""

from __future__ import annotations

import contextlib
import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

from tests.e2e.stack import free_port, until


@contextlib.contextmanager
def postgres() -> Iterator[str]:
    """A database for Prefect; gives its address."""
    bin_dir = sorted(Path("/usr/lib/postgresql").glob("*/bin"))[-1]
    home = Path(tempfile.mkdtemp(prefix="gogh-pg-"))
    # PostgreSQL refuses to run as root; the tests may be root or anybody.
    user = "postgres" if os.geteuid() == 0 else None
    if user:
        entry = pwd.getpwnam(user)
        os.chown(home, entry.pw_uid, entry.pw_gid)
    port, env = free_port(), {"PATH": f"{bin_dir}:/usr/bin:/bin", "LC_ALL": "C.UTF-8"}

    def run(*command: str) -> None:
        subprocess.run(
            command, user=user, group=user, env=env, cwd=home, check=True, capture_output=True
        )

    (home / "password").write_text("pw\n")
    os.chmod(home / "password", 0o644)
    server = None
    try:
        run(
            str(bin_dir / "initdb"), "-D", str(home / "data"), "-U", "gogh", "-A", "scram-sha-256",
            "--pwfile", str(home / "password"), "--no-sync", "-E", "UTF8",
        )  # fmt: skip
        server = subprocess.Popen(
            [
                str(bin_dir / "postgres"), "-D", str(home / "data"), "-p", str(port),
                "-h", "127.0.0.1", "-k", str(home), "-c", "fsync=off",
            ],
            user=user, group=user, env=env, cwd=home,
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip

        def ready() -> bool:
            done = subprocess.run(
                [str(bin_dir / "pg_isready"), "-h", "127.0.0.1", "-p", str(port)],
                env=env, capture_output=True, check=False,
            )  # fmt: skip
            return done.returncode == 0

        until(ready, "PostgreSQL")
        yield f"postgresql+asyncpg://gogh:pw@127.0.0.1:{port}/postgres"
    finally:
        if server is not None:
            server.terminate()
            server.wait(60)
        shutil.rmtree(home, ignore_errors=True)
