"""SIGKILL at every step once and at random points: afterwards every row is there exactly once."""

from __future__ import annotations

import itertools
import random
import shutil
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from gogh_core.settings import load
from gogh_core.store import Store, ask
from tests.e2e.store.nursery import Nursery, batch
from tests.store.test_ageing import samples

NOW = datetime(2026, 1, 5, 12, 30, tzinfo=UTC)

Check = Callable[[Store], None]


@pytest.fixture(scope="module")
def nursery() -> Iterator[Nursery]:
    with Nursery() as nursery:
        yield nursery


class Scene:
    """A home that is put back to its beginning before each kill."""

    def __init__(self, folder: Path, **store: Any) -> None:
        self.home = folder / "home"
        self._kept = folder / "kept"
        self.options = store

    def store(self) -> Store:
        return Store(load(home=self.home, store=self.options))

    def keep(self) -> None:
        shutil.copytree(self.home, self._kept)

    def put_back(self) -> Store:
        if self.home.exists():
            shutil.rmtree(self.home)
        shutil.copytree(self._kept, self.home)
        return self.store()


def kill_everywhere(nursery: Nursery, scene: Scene, task: str, check: Check, **order: Any) -> int:
    """Kill the task before each of its steps; how many there were."""
    for at in itertools.count(1):
        store = scene.put_back()
        killed = nursery.run(task, scene.home, at=at, store=scene.options, **order)["killed"]
        try:
            check(store)
        except BaseException:
            print(f"{task}: killed before step {at}")
            raise
        if not killed:  # it had fewer steps, and came to its end
            print(f"{task}: killed before each of its {at - 1} steps")
            return at - 1
    raise AssertionError("it never came to its end")


def kill_at_random(
    nursery: Nursery, scene: Scene, task: str, check: Check, times: int, **order: Any
) -> None:
    """Kill the task after random times within what it takes; the points are printed."""
    scene.put_back()
    whole_s = nursery.run(task, scene.home, store=scene.options, **order)["seconds"]
    chance = random.Random(f"{task} {times}")
    points = sorted(chance.uniform(0, whole_s) for _ in range(times))
    print(f"{task}: killed after", ", ".join(f"{point * 1000:.1f}" for point in points), "ms")
    for point in points:
        store = scene.put_back()
        nursery.run(task, scene.home, delay_s=point, store=scene.options, **order)
        try:
            check(store)
        except BaseException:
            print(f"{task}: killed after {point * 1000:.1f} ms of {whole_s * 1000:.0f}")
            raise


# -- a writer ------------------------------------------------------------------------------------


@pytest.fixture
def writing(tmp_path: Path) -> Scene:
    scene = Scene(tmp_path)
    scene.store().migrate()
    scene.keep()
    return scene


def whole_batches(store: Store) -> None:
    """Each batch is there wholly or not at all; what was acknowledged is there."""
    told = store.path.parent / "acknowledged"
    acknowledged = len(told.read_text().splitlines()) if told.exists() else 0
    with store.read() as connection:
        found = connection.sql(
            "SELECT split_part(job_id, '-', 1)::INTEGER AS batch, count(*), count(DISTINCT job_id) "
            "FROM job_events GROUP BY batch ORDER BY batch"
        ).fetchall()
    assert found == [(number, 200, 200) for number in range(len(found))]
    assert acknowledged <= len(found) <= acknowledged + 1
    store.append("job_events", batch(len(found)))


@pytest.mark.e2e
def test_a_writer_killed_at_every_step(nursery: Nursery, writing: Scene) -> None:
    assert kill_everywhere(nursery, writing, "write", whole_batches, batches=2) > 10


@pytest.mark.e2e
def test_a_writer_killed_at_random(nursery: Nursery, writing: Scene) -> None:
    kill_at_random(nursery, writing, "write", whole_batches, 15, batches=4)


@pytest.mark.soak
def test_a_writer_killed_very_often(nursery: Nursery, writing: Scene) -> None:
    kill_at_random(nursery, writing, "write", whole_batches, 300, batches=8)


@pytest.mark.e2e
def test_a_migration_killed_at_random(nursery: Nursery, tmp_path: Path) -> None:
    def migrates(store: Store) -> None:
        store.migrate()
        assert store.append("job_events", batch(0)) == 200

    scene = Scene(tmp_path)
    scene.home.mkdir()
    scene.keep()
    kill_at_random(nursery, scene, "migrate", migrates, 12)


# -- the snapshot --------------------------------------------------------------------------------


@pytest.fixture
def publishing(tmp_path: Path) -> Scene:
    scene = Scene(tmp_path)
    store = scene.store()
    store.migrate()
    store.append("job_events", batch(0))
    store.publish()
    store.append("job_events", batch(1))
    scene.keep()
    return scene


def old_or_new(store: Store) -> None:
    """The snapshot is the old or the new one, whole; the next one is new."""
    sql = "SELECT count(DISTINCT job_id) AS n FROM job_events"
    assert ask(store, sql)["n"][0].as_py() in (200, 400)
    store.publish()
    assert ask(store, sql)["n"][0].as_py() == 400
    assert not list(store.path.parent.glob("*.new"))


@pytest.mark.e2e
def test_the_snapshot_killed_at_every_step(nursery: Nursery, publishing: Scene) -> None:
    assert kill_everywhere(nursery, publishing, "publish", old_or_new) > 5


@pytest.mark.e2e
def test_the_snapshot_killed_at_random(nursery: Nursery, publishing: Scene) -> None:
    kill_at_random(nursery, publishing, "publish", old_or_new, 15)


@pytest.mark.soak
def test_the_snapshot_killed_very_often(nursery: Nursery, publishing: Scene) -> None:
    kill_at_random(nursery, publishing, "publish", old_or_new, 300)


# -- ageing --------------------------------------------------------------------------------------

_EXPIRING = 10_000.0


@pytest.fixture
def ageing(tmp_path: Path) -> Scene:
    """Hours to move, a day to compact, a day to expire, a retired file and a stray one."""
    scene = Scene(tmp_path, retention_days=2.0)
    store = scene.store()
    store.migrate()
    store.append("gpu_samples", _numbered(datetime(2026, 1, 1, 3, tzinfo=UTC), _EXPIRING))
    store.append("gpu_samples", _numbered(datetime(2026, 1, 1, 4, tzinfo=UTC), _EXPIRING + 100))
    store.age(datetime(2026, 1, 2, tzinfo=UTC))
    with store.write() as connection:
        connection.execute("UPDATE sample_files SET retired_at = 1 WHERE retired_at IS NOT NULL")
    for index, hour in enumerate((-14, -13, -8, -1)):
        moment = NOW.replace(minute=0) + timedelta(hours=hour)
        store.append("gpu_samples", _numbered(moment, 100.0 * index))
    store.publish()
    stray = store.samples / "gpu_samples" / "day=2026-01-05" / f"{0:032x}.part"
    stray.parent.mkdir(parents=True, exist_ok=True)
    stray.write_bytes(b"half")
    scene.keep()
    return scene


def _numbered(start: datetime, first: float) -> Any:
    rows = samples(start, 1, gpus=2, period_s=72)
    numbers = [first + i for i in range(rows.num_rows)]
    return rows.set_column(rows.column_names.index("power_w"), "power_w", [numbers])


_LASTING = [float(i) for i in range(400)]


def every_row_once(store: Store) -> None:
    """In the views, in the snapshot, and again after ageing was run to its end."""
    with store.read() as connection:
        found = connection.sql("SELECT power_w FROM gpu_samples_all ORDER BY 1").fetchall()
    _exactly([row[0] for row in found])
    seen = ask(store, "SELECT power_w FROM gpu_samples_all ORDER BY 1")["power_w"].to_pylist()
    _exactly(seen)
    store.age(NOW)
    store.publish()
    seen = ask(store, "SELECT power_w FROM gpu_samples_all ORDER BY 1")["power_w"].to_pylist()
    assert seen == _LASTING
    with store.read() as connection:
        named = {row[0] for row in connection.sql("SELECT file FROM sample_files").fetchall()}
        hot = connection.sql("SELECT count(*) FROM gpu_samples").fetchall()
    assert hot == [(100,)]
    there = {str(p.relative_to(store.samples)) for p in store.samples.rglob("*") if p.is_file()}
    assert there - {"owner.json"} == named


def _exactly(found: list[float]) -> None:
    expiring = [number for number in found if number >= _EXPIRING]
    assert [number for number in found if number < _EXPIRING] == _LASTING
    assert expiring in ([], [_EXPIRING + i for i in range(200)])


@pytest.mark.e2e
def test_ageing_killed_at_every_step(nursery: Nursery, ageing: Scene) -> None:
    assert kill_everywhere(nursery, ageing, "age", every_row_once) > 50


@pytest.mark.e2e
def test_ageing_killed_at_random(nursery: Nursery, ageing: Scene) -> None:
    kill_at_random(nursery, ageing, "age", every_row_once, 15)


@pytest.mark.soak
def test_ageing_killed_very_often(nursery: Nursery, ageing: Scene) -> None:
    kill_at_random(nursery, ageing, "age", every_row_once, 200)


# -- backups -------------------------------------------------------------------------------------


@pytest.fixture
def restoring(ageing: Scene, tmp_path: Path) -> Scene:
    """A backup of the scene above, and another store in its place."""
    store = ageing.store()
    store.age(NOW)
    store.backup(tmp_path / "backup")
    shutil.rmtree(ageing.home)
    other = ageing.store()
    other.migrate()
    other.append("gpu_samples", _numbered(NOW, 0.0))
    shutil.rmtree(tmp_path / "kept")
    ageing.keep()
    return ageing


def old_or_restored(store: Store) -> None:
    """All of the old store or all of the backup; then it can be restored."""
    with store.read() as connection:
        found = connection.sql("SELECT power_w FROM gpu_samples_all ORDER BY 1").fetchall()
    assert [row[0] for row in found] in (_LASTING[:100], _LASTING)
    store.restore(store.path.parent.parent / "backup")
    assert ask(store, "SELECT count(*) AS n FROM gpu_samples_all")["n"][0].as_py() == 400


@pytest.mark.e2e
def test_a_restore_killed_at_random(nursery: Nursery, restoring: Scene) -> None:
    folder = str(restoring.home.parent / "backup")
    kill_at_random(nursery, restoring, "restore", old_or_restored, 12, folder=folder)


@pytest.mark.soak
def test_a_restore_killed_at_every_step(nursery: Nursery, restoring: Scene) -> None:
    folder = str(restoring.home.parent / "backup")
    kill_everywhere(nursery, restoring, "restore", old_or_restored, folder=folder)
