"""Every expectation of every suite is broken by some row, and by the right one.

A table has one good row and a list of (what the expectation says, what is changed). All of them are
one batch: each bad row has to fail what it was made for, and the good one nothing.
"""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest

from gogh_core.contracts import Verdict, as_batch, check_batch, load_suites
from gogh_core.domain import Slot
from gogh_core.settings import Settings
from gogh_core.store import Store, append_rows, fetch
from tests.telemetry.world import at, opened, state_of

NOW = at(4000)
Row = dict[str, Any]
NAMED = [f"n{n}" for n in range(30)]
STATE = state_of(
    [*((name, "v100", 2) for name in NAMED), ("cheap", "t4", 2)],
    [(f"j{n}", (Slot(f"n{n}", (0,)),)) for n in range(12)],
)

GOOD: dict[str, Row] = {
    "gpu_samples": {
        **{"ts": at(3990), "server_id": "n0", "gpu_index": 0, "gpu_type": "v100", "power_w": 100.0},
        **{"energy_j": None, "utilisation": 0.5, "memory_used_mb": 100.0, "temperature_c": 50.0},
        **{"sm_clock_mhz": 1380.0, "throttle_reasons": 0, "processes": 1},
    },
    "job_progress": {
        **{"ts": at(3990), "job_id": "j0", "steps": 10.0, "attempt": 0, "rank": 0, "event": None},
        "written_by": None,
    },
    "job_events": {
        **{"job_id": "j0", "ts": at(3990), "event": "started", "server_id": "n0", "gpus": [0]},
        **{"partner_job_id": None, "detail": None},
    },
    "energy_windows": {
        **{"window_name": "w", "start_s": 1.0, "elapsed_s": 10.0, "gpu_index": 0},
        **{"energy_j": 1000.0, "gpu_type": "v100", "label": "x", "power_w": 100.0},
    },
    "servers": {
        **{"server_id": "n0", "gpu_type": "v100", "gpus": 2, "base_w": 200.0, "off_w": 0.0},
        **{"switch_cost_j": 0.0, "power": "on", "drain": False, "keep_on": False},
        "foreign_gpus": [],
    },
    "gpus": {"server_id": "n0", "gpu_index": 0, "gpu_type": "v100", "power_limit_w": None},
    "jobs": {
        **{"job_id": "j0", "model": "ResNet-18", "required_throughput": 1.0, "priority": 1.0},
        **{"max_gpus": 1, "submitted_at": at(0), "steps_done": 0.0, "state": "waiting"},
        "slots": "[]",
    },
    "observations": {
        **{"observation_id": "o", "job_id": "j0", "gpu_type": "v100", "gpus": 1},
        **{"window_start": at(0), "window_end": at(300), "throughput": 5.0, "samples": 100},
        **{"throughput_spread": 0.1, "power_w": 100.0, "energy_j": 30_000.0},
        **{"job_class": "ResNet-18 (batch size 64)", "unit": "steps/s"},
    },
}


def slots(server: str, gpu: int) -> str:
    return json.dumps([{"server": server, "gpus": [gpu]}])


# What an expectation says -> the rows that break it (each a change of the good row). The last of
# several rows is the one that is wrong.
BROKEN: dict[str, list[tuple[str, list[Row]]]] = {
    "gpu_samples": [
        ("every cell can be read", [{"parse_error": "power_w is x"}]),
        ("a sample has a time", [{"ts": None}]),
        ("a sample names its server", [{"server_id": None}]),
        ("a sample names its GPU", [{"gpu_index": None}]),
        ("the server is known", [{"server_id": "stranger"}]),
        ("the server has a GPU of that index", [{"gpu_index": 7}]),
        ("the GPU type is known", [{"gpu_type": "h999"}]),
        ("the GPU type is the one the server has", [{"gpu_type": "a100"}]),
        ("one GPU has one sample at a time", [{}, {"power_w": 101.0}]),
        ("a sample is not from the future", [{"ts": at(4010)}]),
        ("power is between 0 and 5000 W", [{"power_w": -1.0}]),
        ("power is between 0 and 5000 W", [{"power_w": 98_000.0}]),
        (
            "power is within what the GPU type can draw",
            [{"server_id": "cheap", "gpu_type": "t4", "power_w": 400.0}],
        ),
        ("utilisation is between 0 and 1", [{"utilisation": 1.5}]),
        ("used memory is not negative", [{"memory_used_mb": -1.0}]),
        ("used memory is within what the GPU type has", [{"memory_used_mb": 90_000.0}]),
        ("temperature is between -10 and 120 degrees", [{"temperature_c": 400.0}]),
        ("clock is between 0 and 5000 MHz", [{"sm_clock_mhz": -1.0}]),
        (
            "the energy counter never runs backwards",
            [{"ts": at(3980), "energy_j": 9000.0}, {"energy_j": 8000.0}],
        ),
        (
            "the energy counter grows no faster than the GPU type can draw",
            [{"ts": at(3980), "energy_j": 9000.0}, {"energy_j": 90_000.0}],
        ),
    ],
    "job_progress": [
        ("every cell can be read", [{"parse_error": "steps is x"}]),
        ("a report has a time", [{"ts": None}]),
        ("a report names its job", [{"job_id": None}]),
        ("a report says how many steps are done", [{"steps": None}]),
        ("the job is known", [{"job_id": "ghost"}]),
        ("a report is not from the future", [{"ts": at(4010)}]),
        ("steps are between 0 and 10^15", [{"steps": -1.0}]),
        ("attempts are counted from 0", [{"attempt": -1}]),
        ("ranks are counted from 0", [{"rank": -1}]),
        ("the event is a known one", [{"event": "perhaps"}]),
        (
            "a report is written by the owner of its job, or by GOGH's own user",
            [{"written_by": "somebody"}],
        ),
        (
            "progress never goes back without a restart",
            [{"job_id": "j9", "ts": at(3980), "steps": 20.0}, {"job_id": "j9"}],
        ),
    ],
    "job_events": [
        ("every cell can be read", [{"parse_error": "ts is x"}]),
        ("an event has a time", [{"ts": None}]),
        ("an event names its job", [{"job_id": None}]),
        ("the event is a known one", [{"event": "perhaps"}]),
        ("an event says what happened", [{"event": None}]),
        ("the job is known", [{"job_id": "ghost"}]),
        ("the server is known", [{"server_id": "stranger"}]),
        ("the server has GPUs of those indices", [{"gpus": [5]}]),
        ("a start or move says where", [{"server_id": None, "gpus": None}]),
        ("an event is not from the future", [{"ts": at(4010)}]),
    ],
    "energy_windows": [
        ("every cell can be read", [{"parse_error": "energy_j is x"}]),
        ("a window has a name", [{"window_name": None}]),
        ("a window has a start", [{"start_s": None}]),
        ("a window has an energy", [{"energy_j": None}]),
        ("a window lasts between a millisecond and a day", [{"elapsed_s": 1e6}]),
        ("a window has a length", [{"elapsed_s": None}]),
        ("the GPU index is between 0 and 63", [{"gpu_index": 64}]),
        ("the GPU type is known", [{"gpu_type": "h999"}]),
        ("energy is not negative", [{"energy_j": -5.0}]),
        ("mean power is within what the GPU type can draw", [{"power_w": 5000.0}]),
    ],
    "servers": [
        ("a server has a name", [{"server_id": None}]),
        ("a server is reported once", [{"server_id": "n29"}, {"server_id": "n29"}]),
        ("the GPU type is known", [{"gpu_type": "h999"}]),
        ("a server has between 1 and 64 GPUs", [{"gpus": 0}]),
        ("the base draw is between 0 and 20 kW", [{"base_w": -1.0}]),
        ("the draw when off is between 0 and 2 kW", [{"off_w": 1e6}]),
        ("the power state is a known one", [{"power": "perhaps"}]),
        ("the server has the GPUs that are said to be taken", [{"foreign_gpus": [9]}]),
    ],
    "gpus": [
        ("a GPU names its server", [{"server_id": None}]),
        ("a GPU is reported once", [{"server_id": "n29"}, {"server_id": "n29"}]),
        ("the GPU index is between 0 and 63", [{"gpu_index": 64}]),
        ("the GPU type is known", [{"gpu_type": "h999"}]),
        ("the power limit is within what the GPU type can draw", [{"power_limit_w": 5000.0}]),
    ],
    "jobs": [
        ("a job has a name", [{"job_id": None}]),
        ("a job is reported once", [{"job_id": "j9"}, {"job_id": "j9"}]),
        ("a job says what it runs", [{"model": None}]),
        ("the required throughput is between 0 and 10^9", [{"required_throughput": -1.0}]),
        ("the priority is between 0 and 10^6", [{"priority": -1.0}]),
        ("a job uses between 1 and 100,000 GPUs", [{"max_gpus": 0}]),
        ("a job is not submitted in the future", [{"submitted_at": at(9000)}]),
        ("steps done are not negative", [{"steps_done": -1.0}]),
        (
            "a running job is on servers and GPUs that are known",
            [{"state": "running", "slots": slots("stranger", 0)}],
        ),
        ("a GPU has at most two jobs", [{"state": "running", "slots": slots("n5", 0)}] * 3),
        ("a running job says where it runs", [{"state": "running"}]),
    ],
    "observations": [
        ("an observation has a throughput", [{"throughput": None}]),
        ("the throughput is above 0 and below 10^9", [{"throughput": 0.0}]),
        ("it stands on at least 3 windowed rates", [{"samples": 2}]),
        ("its window is longer than 0 s and at most a day", [{"window_end": at(0)}]),
        ("the GPU type is known", [{"gpu_type": "h999"}]),
        ("the power is within what its GPUs can draw", [{"power_w": 5000.0}]),
        ("energy is not negative", [{"energy_j": -1.0}]),
        ("the throughput is within what its GPUs can compute", [{"throughput": 1e6}]),
        ("the throughput changes only where the power does", [{"throughput": 50.0}]),
    ],
}
# Warnings are about many rows: each has a batch of its own.
WARNED: dict[str, list[tuple[str, list[Row]]]] = {
    "gpu_samples": [
        (
            "the energy counter agrees with the integral of power",
            [{"ts": at(3900 + s), "energy_j": 60.0 * s} for s in range(70)],
        ),
        (
            "each GPU reported at least half of the seconds",
            [
                *({"ts": at(3900 + s), "gpu_index": 1} for s in range(90)),
                *({"ts": at(3900 + s)} for s in (0, 1, 2, 50, 51)),
            ],
        ),
        ("every GPU of a reporting server reports", [{}]),
        ("the newest sample is at most half an hour old", [{"ts": at(0)}]),
        ("the samples of a GPU come in the order of time", [{}, {"ts": at(3980)}]),
    ],
    "job_progress": [
        ("the newest report is at most half an hour old", [{"ts": at(0)}]),
        ("the reports of a job come in the order of time", [{}, {"ts": at(3980), "steps": 5.0}]),
    ],
    "servers": [("a server does not change its GPU type", [{"gpu_type": "a100"}])],
    "observations": [
        ("the rates differ by less than the throughput itself", [{"throughput_spread": 9.0}])
    ],
}
# The column that tells the rows of a batch apart.
KEY = {
    "gpu_samples": ("server_id", NAMED),
    "job_progress": ("rank", list(range(40))),
    "servers": ("server_id", NAMED),
    "gpus": ("server_id", NAMED),
    "jobs": ("job_id", [f"x{n}" for n in range(40)]),
}


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> tuple[Settings, Store]:
    settings, store = opened(tmp_path_factory.mktemp("expectations"), STATE)
    with store.write() as connection:  # what observations are compared with
        connection.execute("UPDATE jobs SET flops_per_step = 1e9 WHERE job_id = 'j0'")
        schema = fetch(connection, "telemetry_stored_observations", since=NOW, limit=1).schema
        before = {**GOOD["observations"], "window_start": at(-300), "window_end": at(0)}
        before |= {"power_estimated": False, "computed_at": at(0)}
        append_rows(connection, "observations", pa.Table.from_pylist([before], schema=schema))
    return settings, store


def judged(world: tuple[Settings, Store], table: str, rows: list[Row]) -> Verdict:
    settings, store = world
    suite = load_suites(settings)[table]
    with store.write() as connection:
        schema = fetch(connection, f"telemetry_stored_{table}", since=NOW, limit=1).schema
        for name in ("parse_error", "raw"):
            schema = schema.append(pa.field(name, pa.string()))
        return check_batch(
            connection, suite, as_batch(pa.Table.from_pylist(rows, schema=schema)), now=NOW
        )


@pytest.mark.parametrize("table", sorted(GOOD))
def test_every_expectation_holds_the_row_that_breaks_it(
    world: tuple[Settings, Store], table: str
) -> None:
    rows: list[Row] = [dict(GOOD[table])]
    wrong: dict[int, str] = {}
    for number, (says, changes) in enumerate(BROKEN[table], 1):
        column, names = KEY.get(table, ("", []))
        own = {column: names[number]} if column else {}
        for again, change in enumerate(changes):
            more = {"job_id": f"y{again}"} if table == "jobs" and len(changes) == 3 else {}
            rows.append({**GOOD[table], **own, **change, **more})
        wrong[len(rows) - 1] = says
    verdict = judged(world, table, rows)
    reasons: dict[int, set[str]] = {}
    for row in verdict.failures.to_pylist():
        reasons.setdefault(row["row_id"], set()).add(row["reason"])
    assert 0 not in reasons, "the good row"
    missed = {number: says for number, says in wrong.items() if says not in reasons.get(number, ())}
    assert not missed
    suite = load_suites(world[0])[table]
    assert {c.says for c in suite.checks if c.level == "refuse"} == set(wrong.values())


@pytest.mark.parametrize(
    ("table", "says", "changes"),
    [(table, says, changes) for table, listed in WARNED.items() for says, changes in listed],
)
def test_what_is_only_warned_of_is_told_and_no_row_is_held(
    world: tuple[Settings, Store], table: str, says: str, changes: list[Row]
) -> None:
    verdict = judged(world, table, [{**GOOD[table], **change} for change in changes])
    assert any(warning.startswith(says) for warning in verdict.warnings), verdict.warnings
    assert not verdict.refused
    assert not len(verdict.failures)


def test_every_warning_is_tried(world: tuple[Settings, Store]) -> None:
    for table, suite in load_suites(world[0]).items():
        listed = {check.says for check in suite.checks if check.level == "warn"}
        assert listed == {says for says, _ in WARNED.get(table, [])}
