"""Every cycle has one holder and one end, whoever comes late, twice or dies."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest

from gogh_core.domain import Cycle
from gogh_core.errors import InvalidInput
from gogh_core.planning import Request
from gogh_core.planning.cycles import (
    CycleLost,
    Turn,
    end_cycle,
    keep,
    list_cycles,
    take_turn,
)
from gogh_core.settings import Settings, load
from gogh_core.store import Store, fetch

NOON = datetime(2026, 1, 5, 12, 0, 7, tzinfo=UTC)
WINDOW = timedelta(seconds=300)
SCHEDULED = Request()
BY_HAND = Request(reason="by hand")


@pytest.fixture(scope="module")
def settings(tmp_path_factory: pytest.TempPathFactory) -> Settings:
    return load(home=tmp_path_factory.mktemp("cycles"))


@pytest.fixture(scope="module")
def migrated(settings: Settings) -> Store:
    store = Store(settings)
    store.migrate()
    return store


@pytest.fixture
def store(migrated: Store) -> Iterator[Store]:
    yield migrated
    with migrated.write() as connection:
        connection.execute("DELETE FROM cycle_claims")
        connection.execute("DELETE FROM cycles")


def ask(store: Store, request: Request = SCHEDULED, **how: object) -> Turn:
    options = {"cycle": None, "now": NOON, **how}
    return take_turn(store, store.settings, request, **options)  # type: ignore[arg-type]


def end(store: Store, turn: Turn, state: str = "emitted") -> None:
    with store.write() as connection:
        end_cycle(connection, turn.cycle, state, None, NOON)


def states(store: Store) -> dict[str, str]:
    return {row["cycle_id"]: row["state"] for row in list_cycles(store, rows=100)}


def disown(store: Store, turn: Turn, **columns: object) -> None:
    """Let the claim look as if another process had made it."""
    with store.write() as connection:
        for name, value in columns.items():
            connection.execute(
                f"UPDATE cycle_claims SET {name} = ? WHERE cycle_id = ?", [value, turn.cycle.id]
            )


def dead_pid() -> int:
    process = subprocess.Popen([sys.executable, "-c", "pass"])
    process.wait()
    return process.pid


def test_the_schedule_takes_revision_0_and_a_replan_the_next(store: Store) -> None:
    first = ask(store)
    assert (first.kind, first.cycle.id) == ("mine", "20260105T120000Z-0")
    end(store, first)
    second = ask(store, BY_HAND)
    assert (second.kind, second.cycle.id) == ("mine", "20260105T120000Z-1")
    end(store, second)
    assert ask(store, BY_HAND).cycle.revision == 2


def test_a_cycle_that_came_to_its_end_is_not_planned_again(store: Store) -> None:
    for state in ("emitted", "waiting", "rejected"):
        turn = ask(store, BY_HAND)
        end(store, turn, state)
        again = ask(store, BY_HAND, cycle=turn.cycle)
        assert (again.kind, again.state) == ("done", state)


def test_a_failed_cycle_may_be_run_again(store: Store) -> None:
    turn = ask(store)
    end(store, turn, "failed")
    again = ask(store)
    assert again.kind == "mine"
    assert again.cycle == turn.cycle
    assert again.token != turn.token


def test_a_doubled_run_does_nothing_while_the_first_one_lives(store: Store) -> None:
    first = ask(store)
    assert ask(store).kind == "busy"
    with store.write() as connection:
        keep(connection, store.settings, first)


@pytest.mark.parametrize(
    "columns",
    [
        {"pid": "dead"},
        {"process_started": 1.0},
        {"boot": "another"},
        {"heartbeat_at": NOON - timedelta(days=300), "host": "elsewhere"},
        {"heartbeat_at": NOON - timedelta(days=300)},
    ],
    ids=["process gone", "number reused", "machine restarted", "silent host", "hangs"],
)
def test_a_dead_holder_is_taken_over_and_fenced(store: Store, columns: dict[str, object]) -> None:
    first = ask(store)
    if columns.get("pid") == "dead":
        columns = {"pid": dead_pid()}
    disown(store, first, **columns)
    second = ask(store)
    assert (second.kind, second.cycle) == ("mine", first.cycle)
    with store.write() as connection, pytest.raises(CycleLost, match="taken over"):
        keep(connection, store.settings, first)


def test_a_holder_on_another_host_is_believed_until_the_time_out(store: Store) -> None:
    first = ask(store)
    disown(store, first, host="elsewhere", pid=dead_pid())
    assert ask(store).kind == "busy"


def test_a_stored_plan_is_resumed_not_made_again(store: Store) -> None:
    first = ask(store)
    disown(store, first, pid=dead_pid(), plan_id="p-1")
    with store.write() as connection:
        connection.execute("UPDATE cycles SET state = 'planned'")
    second = ask(store)
    assert (second.kind, second.plan_id, second.state) == ("mine", "p-1", "planned")


def test_a_late_run_plans_the_newest_window(store: Store) -> None:
    late = ask(store, cycle=Cycle.at(NOON - 3 * WINDOW, 300))
    assert late.cycle == Cycle.at(NOON, 300)


def test_a_window_far_ahead_is_refused(store: Store) -> None:
    with pytest.raises(InvalidInput, match="ahead"):
        ask(store, cycle=Cycle.at(NOON + 3 * WINDOW, 300))


def test_missed_windows_are_recorded_once(store: Store) -> None:
    end(store, ask(store))
    end(store, ask(store, now=NOON + 4 * WINDOW))
    missed = list_cycles(store, missed=True)
    assert [row["cycle_id"] for row in missed] == [
        "20260105T121500Z-0",
        "20260105T121000Z-0",
        "20260105T120500Z-0",
    ]
    assert missed[0]["detail"] == "no run began in this window; 20260105T122000Z-0 came next"
    end(store, ask(store, now=NOON + 5 * WINDOW))
    assert len(list_cycles(store, missed=True)) == 3


def test_windows_across_midnight_are_found_too(store: Store) -> None:
    night = datetime(2026, 1, 5, 23, 50, 1, tzinfo=UTC)
    end(store, ask(store, now=night))
    end(store, ask(store, now=night + 4 * WINDOW))
    assert len(list_cycles(store, missed=True)) == 3


def test_replans_alone_miss_nothing(store: Store) -> None:
    end(store, ask(store, BY_HAND))
    end(store, ask(store, BY_HAND, now=NOON + 9 * WINDOW))
    assert list_cycles(store, missed=True) == []


def test_a_late_schedule_leaves_a_newer_revision_alone(store: Store) -> None:
    end(store, ask(store, BY_HAND))
    late = ask(store)
    assert late.kind == "superseded"
    assert states(store)["20260105T120000Z-0"] == "superseded"
    assert ask(store).kind == "done"


def test_the_same_key_is_the_same_cycle(store: Store) -> None:
    first = ask(store, BY_HAND, key="run-7")
    end(store, first, "failed")
    again = ask(store, BY_HAND, key="run-7")
    assert again.cycle == first.cycle


def test_replans_at_once_are_serialised_and_the_newest_wins(store: Store) -> None:
    first = ask(store)
    others: dict[str, Turn] = {}

    def replan(name: str) -> None:
        others[name] = ask(store, Request(reason=name))

    threads = []
    for number, name in enumerate(("older", "newer")):
        thread = threading.Thread(target=replan, args=(name,))
        thread.start()
        threads.append(thread)
        wait_for(lambda want=number + 2: len(states(store)) == want)  # type: ignore[misc]
    wait_for(lambda: "older" in others)
    assert others["older"].kind == "superseded"
    assert "newer" not in others
    with store.write() as connection, pytest.raises(CycleLost, match="newer"):
        keep(connection, store.settings, first)
    end(store, first, "superseded")
    for thread in threads:
        thread.join(60)
    assert (others["newer"].kind, others["newer"].cycle.revision) == ("mine", 2)


def test_a_dead_request_in_the_queue_stops_nobody(store: Store) -> None:
    first = ask(store)
    disown(store, first, pid=dead_pid())
    second = ask(store, BY_HAND)
    assert second.kind == "mine"
    assert states(store)[first.cycle.id] == "failed"
    disown(store, second, pid=dead_pid())
    third = ask(store, now=NOON + WINDOW)
    with store.write() as connection:
        keep(connection, store.settings, third)


def test_waiting_too_long_gives_up_and_says_so(store: Store) -> None:
    ask(store)
    turn = ask(store, BY_HAND, patience_s=0.0)
    assert turn.kind == "busy"
    assert states(store)[turn.cycle.id] == "failed"


def test_the_request_is_kept_beside_the_claim(store: Store) -> None:
    request = Request(reason="heat", drain=("s1",), power_cap_w=5000.0)
    turn = ask(store, request)
    with store.read() as connection:
        row = fetch(connection, "planning_cycle", cycle_id=turn.cycle.id).to_pylist()[0]
    assert Request.from_json(row["request"]) == request


def wait_for(condition: object) -> None:
    ready = threading.Event()
    for _ in range(600):
        if condition():  # type: ignore[operator]
            return
        ready.wait(0.1)
    raise AssertionError("did not happen in a minute")
