"""Who holds a cycle, and whether that process still lives.

A claim names host, boot and process. On the same host death can be proven (the process is gone, or
the number belongs to a younger one, or the machine was started anew); of another host it is only
assumed, when no sign came for `timeout_s`.
"""

from __future__ import annotations

import os
import secrets
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

import psutil

__all__ = ["Holder", "alive", "wall"]


def wall() -> datetime:
    """The clock on the wall; claims are about processes, whose time is not the cluster's."""
    return datetime.now(UTC)


@cache
def _boot() -> str:
    path = Path("/proc/sys/kernel/random/boot_id")
    return path.read_text(encoding="ascii").strip() if path.exists() else str(psutil.boot_time())


@dataclass(frozen=True, slots=True)
class Holder:
    """This process, as a claim names it."""

    token: str
    host: str
    boot: str
    pid: int
    process_started: float

    @classmethod
    def me(cls) -> Holder:
        """A new claim of this process; the token tells it from earlier claims of its own."""
        pid = os.getpid()
        started = psutil.Process(pid).create_time()
        return cls(secrets.token_hex(8), socket.gethostname(), _boot(), pid, started)

    def columns(self) -> dict[str, Any]:
        """For the statements that claim."""
        return {name: getattr(self, name) for name in self.__slots__}


def alive(claim: Mapping[str, Any], timeout_s: float) -> bool:
    """Whether the holder of a claim may still be at work."""
    if (wall() - claim["heartbeat_at"]).total_seconds() > timeout_s:
        return False
    if claim["host"] != socket.gethostname():
        return True
    if claim["boot"] != _boot():
        return False
    try:
        process = psutil.Process(int(claim["pid"]))
        same = abs(process.create_time() - float(claim["process_started"])) < 1.0
        return bool(same and process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False
    except psutil.AccessDenied:
        return True
