"""Two transactions of Prefect's server at once, on a SQLite file as `gogh up` has it."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
import sqlalchemy as sa
from prefect.server.database.configurations import AioSqliteConfiguration

from flows import server


async def _two_at_once(path: Path) -> int:
    """One reads and then writes, as Prefect's heartbeats do; another writes in between."""
    config = AioSqliteConfiguration(connection_url=f"sqlite+aiosqlite:///{path}")
    engine = await config.engine()
    has_read = asyncio.Event()

    async def add(first: bool) -> None:
        session = await config.session(engine)
        if not first:
            await has_read.wait()
        async with session, config.begin_transaction(session):
            if first:
                await session.execute(sa.text("SELECT count(*) FROM beats"))
                has_read.set()
                # The other one commits in this time, unless it has to wait for us.
                await asyncio.wait({other}, timeout=1.0)
            await session.execute(sa.text("INSERT INTO beats VALUES (1)"))

    setup = await config.session(engine)
    async with setup, config.begin_transaction(setup):
        await setup.execute(sa.text("CREATE TABLE beats (n INTEGER)"))
    other = asyncio.create_task(add(first=False))
    await asyncio.gather(add(first=True), other)
    reading = await config.session(engine)
    async with reading:
        count = (await reading.execute(sa.text("SELECT count(*) FROM beats"))).scalar_one()
    await engine.dispose()
    return int(count)


def test_a_write_after_a_read_waits_its_turn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        AioSqliteConfiguration, "begin_transaction", AioSqliteConfiguration.begin_transaction
    )
    server.writers_wait()
    assert asyncio.run(_two_at_once(tmp_path / "prefect.db")) == 2


def test_without_it_sqlite_refuses(tmp_path: Path) -> None:
    """When this fails, Prefect has mended it, and `flows.server` can go."""
    with pytest.raises(sa.exc.OperationalError, match="database is locked"):
        asyncio.run(_two_at_once(tmp_path / "prefect.db"))
