"""The password of Prefect's API: set by `prefect.auth`, or made by `gogh up` and kept at home.

Who knows it can run any command as GOGH's user; without it every local user could. The file is
made with its final rights in one step and read only while nobody else can read it. The password
goes to processes by their environment, never by their command line, and to no log.
"""

from __future__ import annotations

import os
import secrets
import stat
from pathlib import Path

from gogh_core.errors import StackError
from gogh_core.settings import Settings

__all__ = ["api_password", "make_password", "password_file"]


def password_file(settings: Settings) -> Path:
    """Where `gogh up` keeps the password it made: one line, `user:password`."""
    return settings.home.absolute() / "prefect" / "password"


def api_password(settings: Settings) -> str | None:
    """`user:password` of the API as set or made; None where there is none."""
    chosen = settings.prefect
    if not chosen.authentication:
        return None
    if chosen.auth is not None:
        return chosen.auth.get_secret_value()
    # The password of our own server is told to no other server.
    return None if chosen.url is not None else _read(password_file(settings))


def make_password(settings: Settings) -> None:
    """Make the password of our own server unless it is set or was made before."""
    if not settings.prefect.guarded or api_password(settings) is not None:
        return
    path = password_file(settings)
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f"{path.name}.{secrets.token_hex(4)}.part")
    handle = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    with os.fdopen(handle, "w", encoding="ascii") as file:
        file.write(f"gogh:{secrets.token_urlsafe(32)}\n")
        file.flush()
        os.fsync(file.fileno())
    os.replace(part, path)


def _read(path: Path) -> str | None:
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise StackError(f"cannot be read: {error.strerror}", where=str(path)) from error
    with os.fdopen(handle, encoding="ascii", errors="replace") as file:
        found = os.fstat(handle)
        if found.st_uid not in (os.geteuid(), 0) or stat.S_IMODE(found.st_mode) & 0o077:
            raise StackError(
                "others may have read or written this password",
                where=str(path),
                todo="`gogh down`, remove it, `gogh up` makes a new one",
            )
        text = file.read(4096).strip()
    if ":" not in text or not text.isprintable():
        raise StackError("is not user:password", where=str(path), todo="remove it; `gogh up`")
    return text
