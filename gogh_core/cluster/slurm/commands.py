"""Slurm's programs: arguments as lists, every call under a time-out, answers sorted.

A call that got no answer, or one that a controller gives while it starts, is ClusterUnavailable
(try again); any other refusal is ActionFailed. Nothing goes through a shell.
"""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from gogh_core.errors import ActionFailed, ClusterUnavailable
from gogh_core.settings import SlurmSettings

__all__ = ["Commands"]

# What Slurm's programs say while the controller is away, or has just come back.
_TRANSIENT = (
    "unexpected message received",
    "socket timed out",
    "unable to contact slurm controller",
    "transport endpoint",
    "zero bytes were transmitted",
    "connection refused",
    "connection reset",
    "unable to connect",
    "communication connection failure",
    "in standby mode",
    "slurm backup controller",
    "resource temporarily unavailable",
    "insane message length",
    "header lengths are longer",
    "protocol authentication error",
    "could not establish a configuration source",
    "failed to fetch config",
    "try again later",
)


class Commands:
    """The programs of one Slurm installation."""

    def __init__(self, settings: SlurmSettings) -> None:
        self._settings = settings
        self._environment = dict(os.environ)
        if settings.conf is not None:
            self._environment["SLURM_CONF"] = str(settings.conf)
        # Options that a person's shell may carry must not change what we ask.
        for name in list(self._environment):
            if name.startswith(("SQUEUE_", "SINFO_", "SCONTROL_", "SBATCH_")):
                del self._environment[name]
        self._environment["SLURM_TIME_FORMAT"] = "%s"

    def read(self, program: str, *arguments: str) -> str:
        """What a program prints; any failure is ClusterUnavailable."""
        try:
            return self.do(program, *arguments)
        except ActionFailed as error:
            raise ClusterUnavailable(error.what, where=error.where) from error

    def do(self, program: str, *arguments: str, **how: Any) -> str:
        """What a program prints; a refusal is ActionFailed."""
        path = str(self._settings.bin / program) if self._settings.bin else program
        code, out, err = self._run([path, *arguments], **how)
        if code == 0:
            return out
        said = " ".join((err or out).split())[:500] or f"exit status {code}"
        where = f"{program} {arguments[0] if arguments else ''}".strip()
        if any(text in said.lower() for text in _TRANSIENT):
            raise ClusterUnavailable(said, where=where)
        raise ActionFailed(said, where=where)

    def _run(
        self, command: Sequence[str], *, cwd: str | None = None, timeout_s: float | None = None
    ) -> tuple[int, str, str]:
        try:
            # A session of its own, so that what hangs ends with everything it started.
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env=self._environment,
                start_new_session=True,
                cwd=cwd,
            )
        except FileNotFoundError as error:
            raise ClusterUnavailable(
                f"{command[0]} is not there", todo="install Slurm's programs or set slurm.bin"
            ) from error
        except (OSError, ValueError) as error:
            raise ActionFailed(f"{command[0]} cannot be started: {error}") from error
        patience_s = timeout_s or self._settings.timeout_s
        try:
            out, err = process.communicate(timeout=patience_s)
        except subprocess.TimeoutExpired:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            with suppress(subprocess.TimeoutExpired):
                process.communicate(timeout=1)
            raise ClusterUnavailable(
                f"{os.path.basename(command[0])} gave no answer within {patience_s:g} s",
                todo="see whether slurmctld runs",
            ) from None
        return process.returncode, out.decode(errors="replace"), err.decode(errors="replace")
