"""`python -m flows.server`: Prefect's server, on SQLite with writers that wait for each other.

Prefect begins a transaction without the right to write and asks for that at its first write. When
somebody else has written in between, SQLite refuses at once ("database is locked"), whatever the
time-out is. A transaction that asks first waits its turn, as Prefect's own in-memory database does.
On PostgreSQL nothing changes.
"""

from __future__ import annotations

from typing import Any

from prefect.server.database.configurations import AioSqliteConfiguration

__all__ = ["writers_wait"]

_begin = AioSqliteConfiguration.begin_transaction


def _begin_for_update(
    self: AioSqliteConfiguration, session: Any, with_for_update: bool = True
) -> Any:
    return _begin(self, session, with_for_update=True)


def writers_wait() -> None:
    """From here on every transaction of this process begins with the right to write."""
    AioSqliteConfiguration.begin_transaction = _begin_for_update  # type: ignore[method-assign]


if __name__ == "__main__":
    from prefect.cli import app

    writers_wait()
    app()
