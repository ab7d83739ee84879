"""The named queries, against figures worked out by hand on a small cluster."""

from __future__ import annotations

import csv
import io
import json
import os
import signal
import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from gogh_core.cli import app
from gogh_core.errors import InvalidInput
from gogh_core.settings import load
from gogh_core.store import Store, append_rows, queries, query_names, run_query
from gogh_core.store.texts import run

NOON = datetime(2026, 1, 5, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)


def rows(**columns: list[Any]) -> pa.Table:
    return pa.table(columns)


def job(job_id: str, owner: str, state: str = "running", **more: Any) -> dict[str, Any]:
    return {
        "job_id": job_id,
        "owner": owner,
        "job_class": f"{job_id} class",
        "model": job_id,
        "kind": "training",
        "mode": "gang",
        "gpu_counts": [1],
        "max_gpus": 1,
        "required_throughput": 10.0,
        "unit": "steps/s",
        "priority": 1.0,
        "shareable": "true",
        "movable": True,
        "move_cost_j": 0.0,
        "submitted_at": NOON - HOUR,
        "since": None,
        "state": state,
        "seen_at": NOON + HOUR,
        "slots": "[]",
        **more,
    }


def observation(name: str, job_id: str, throughput: float, **more: Any) -> dict[str, Any]:
    return {
        "observation_id": name,
        "job_id": job_id,
        "job_class": f"{job_id} class",
        "gpu_type": "v100",
        "gpus": 1,
        "partner_class": None,
        "server_id": "s1",
        "gpu_indices": [0],
        "window_start": NOON,
        "window_end": NOON + timedelta(minutes=5),
        "throughput": throughput,
        "samples": 5,
        "unit": "steps/s",
        "power_w": 200.0,
        "computed_at": NOON + HOUR,
        **more,
    }


@pytest.fixture(scope="module")
def cluster(migrated: Path, tmp_path_factory: pytest.TempPathFactory) -> Store:
    """s1 has two V100s at 100 W for an hour; a runs on GPU 0, b joins it for the last half."""
    home = tmp_path_factory.mktemp("cluster")
    store = Store(load(home=home))
    store.path.write_bytes(migrated.read_bytes())
    minutes = [NOON + timedelta(minutes=m + 1) for m in range(60)]  # each for the minute before
    slots = '[{"server": "s1", "gpus": [0]}]'
    tables: dict[str, list[dict[str, Any]]] = {
        "servers": [
            {"server_id": "s1", "gpu_type": "v100", "gpus": 2, "base_w": 150.0, "power": "on"},
            {"server_id": "s2", "gpu_type": "v100", "gpus": 2, "base_w": 150.0, "power": "off"},
        ],
        "gpus": [
            {"server_id": s, "gpu_index": g, "gpu_type": "v100"}
            for s in ("s1", "s2")
            for g in (0, 1)
        ],
        "gpu_samples": [
            {"ts": ts, "server_id": "s1", "gpu_index": g, "power_w": 100.0, "utilisation": 0.5}
            for ts in minutes
            for g in (0, 1)
        ],
        "jobs": [
            job("a", "ann", slots=slots),
            job("b", "bob", slots=slots),
            job("c", "bob", "waiting"),
            job("d", "bob", "waiting", since=NOON + HOUR / 2),  # stopped then
        ],
        "job_events": [
            {"job_id": "a", "ts": NOON, "event": "started", "server_id": "s1", "gpus": [0]},
            {
                "job_id": "b",
                "ts": NOON + HOUR / 2,
                "event": "started",
                "server_id": "s1",
                "gpus": [0],
                "partner_job_id": "a",
            },
        ],
        "observations": [
            observation("o1", "a", 12.0),
            observation("o2", "a", 6.0, partner_class="b class", window_start=NOON + HOUR / 2),
            observation("o3", "a", 12.5, server_id="s2", gpu_indices=[1], window_start=NOON + HOUR),
            observation("o4", "b", 9.0, partner_class="a class", window_start=NOON + HOUR / 2),
        ],
        "job_windows": [
            {
                "window_start": NOON,
                "job_id": job_id,
                "required_throughput": 10.0,
                "throughput": throughput,
                "promised_s": 300.0,
                "kept_s": kept_s,
                "unknown_s": 0.0,
            }
            for job_id, throughput, kept_s in (("a", 6.0, 75.0), ("b", 9.0, 0.0), ("c", 0.0, 0.0))
        ],
        "estimates": [
            {
                "cycle_id": "c1",
                "job_class": "a class",
                "gpu_type": "v100",
                "gpus": 1,
                "mean": 15.0,
                "low": 11.0,
                "high": 16.0,
                "feasible_probability": 1.0,
                "network": "P1",
                "estimated_at": NOON,
            }
        ],
        "cycles": [
            {
                "cycle_id": "c1",
                "window_start": NOON,
                "revision": 0,
                "reason": "schedule",
                "state": "emitted",
                "begun_at": NOON,
            }
        ],
        "plans": [
            {
                "plan_id": "p1",
                "cycle_id": "c1",
                "status": "optimal",
                "solver": "glpk",
                "solve_s": 1.5,
                "cost_w": 510.0,
                "bound_w": 500.0,
                "gap": 0.02,
                "power_w": 500.0,
                "running": 2,
                "waiting": 1,
                "plan_json": "{}",
                "created_at": NOON + HOUR / 4,
                "emitted_at": NOON + HOUR / 4,
            }
        ],
        "moves": [
            {
                "plan_id": "p1",
                "step": 1,
                "job_id": "a",
                "kind": "move",
                "from_slots": "[]",
                "to_slots": "[]",
                "reason": "saves 20 W",
            }
        ],
        "waiting": [{"plan_id": "p1", "job_id": "c", "reason": "no v100 is free"}],
        "quarantine": [
            {
                "quarantine_id": f"q{i}",
                "batch_id": "b",
                "table_name": "gpu_samples",
                "source": "spool",
                "expectation": "power in range",
                "column_name": "power_w",
                "reason": "power_w is -1",
                "row_json": "{}",
                "quarantined_at": NOON,
            }
            for i in range(3)
        ],
    }
    with store.write() as connection:
        for table, entries in tables.items():
            seen = {"seen_at": NOON} if table in ("servers", "gpus") else {}
            append_rows(connection, table, pa.Table.from_pylist([e | seen for e in entries]))
    store.publish()
    return store


def answer(store: Store, name: str, **parameters: Any) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = run_query(store, name, **parameters).to_pylist()
    return found


def test_there_are_at_least_twelve() -> None:
    assert len(query_names()) >= 12
    assert all(query.about for query in queries())


@pytest.mark.parametrize("name", query_names())
def test_every_query_answers_on_an_empty_store(published: Store, name: str) -> None:
    assert run_query(published, name).num_rows == 0


def test_cluster_now(cluster: Store) -> None:
    (row,) = answer(cluster, "cluster_now")
    assert (row["servers"], row["servers_on"], row["gpus"]) == (2, 1, 4)
    assert (row["gpus_busy"], row["gpus_shared"]) == (1, 1)
    assert row["power_w"] == 100 + 100 + 150  # two GPUs and the base of the server that is on


def test_cluster_now_knows_no_watts_before_the_first_sample(migrated: Path, tmp_path: Path) -> None:
    store = Store(load(home=tmp_path))
    store.path.write_bytes(migrated.read_bytes())
    on = {"server_id": "s1", "gpu_type": "v100", "gpus": 1, "base_w": 150.0, "power": "on"}
    on["seen_at"] = NOON
    off = on | {"server_id": "s2", "gpu_type": "k80", "power": "off"}
    with store.write() as connection:
        append_rows(connection, "servers", pa.Table.from_pylist([on, off]))
    store.publish()
    watts = {row["gpu_type"]: row["power_w"] for row in answer(store, "cluster_now")}
    assert watts == {"v100": None, "k80": 0.0}


def test_energy_by_job_splits_a_shared_gpu(cluster: Store) -> None:
    by_job = {row["job_id"]: row for row in answer(cluster, "energy_by_job")}
    # GPU 0 takes 0.1 kWh: a alone for the first half, then half each.
    assert by_job["a"]["energy_kwh"] == pytest.approx(0.075, abs=1e-4)
    assert by_job["b"]["energy_kwh"] == pytest.approx(0.025, abs=1e-4)
    assert by_job["a"]["gpu_hours"] == pytest.approx(1.0, abs=0.01)


def test_energy_by_user(cluster: Store) -> None:
    assert [(r["owner"], r["jobs"]) for r in answer(cluster, "energy_by_user")] == [
        ("ann", 1),
        ("bob", 1),
    ]


def test_energy_by_gpu_type_and_day(cluster: Store) -> None:
    (by_type,) = answer(cluster, "energy_by_gpu_type")
    assert (by_type["gpu_type"], by_type["gpus"], by_type["energy_kwh"]) == ("v100", 2, 0.2)
    (by_day,) = answer(cluster, "energy_by_day")
    assert (str(by_day["day"]), by_day["energy_kwh"]) == ("2026-01-05", 0.2)
    (short,) = answer(cluster, "energy_by_gpu_type", hours=0.5)
    assert short["energy_kwh"] == pytest.approx(0.2 * 30 / 60, abs=1e-4)


def test_idle_energy_is_what_no_job_used(cluster: Store) -> None:
    (row,) = answer(cluster, "idle_energy")
    assert (row["server_id"], row["idle_kwh"], row["idle_share"]) == ("s1", 0.1, 0.5)


def test_slo_attainment(cluster: Store) -> None:
    by_owner = {row["owner"]: row for row in answer(cluster, "slo_attainment")}
    assert (by_owner["ann"]["attainment"], by_owner["ann"]["worst"]) == (0.25, 0.6)
    assert (by_owner["bob"]["attainment"], by_owner["bob"]["worst"]) == (0, 0), "c waits"


def test_estimate_error(cluster: Store) -> None:
    found = answer(cluster, "estimate_error")
    assert [(r["network"], r["observations"]) for r in found] == [("P1", 1), ("P1", 1)]
    assert [r["median_error"] for r in found] == [0.25, 0.2]  # 15 for 12, and for 12.5
    assert [r["inside_interval"] for r in found] == [1.0, 1.0]


def test_quarantined_rows(cluster: Store) -> None:
    (row,) = answer(cluster, "quarantined_rows")
    assert (row["expectation"], row["rows"], row["held"]) == ("power in range", 3, 3)


def test_speed_factors_are_relative_to_the_same_work(cluster: Store) -> None:
    found = {(r["server_id"], r["gpu_index"]): r for r in answer(cluster, "speed_factors")}
    slow, fast = found["s1", 0], found["s2", 1]
    assert slow["speed_factor"] < 1 < fast["speed_factor"]
    # Half the log ratio of 12.5 to 12, pulled to 1 by three more observations.
    assert fast["speed_factor"] == pytest.approx((12.5 / 12) ** (0.5 / 4), abs=1e-4)


def test_queue(cluster: Store) -> None:
    never_ran, stopped = answer(cluster, "queue")
    assert (never_ran["job_id"], never_ran["waited_s"]) == ("c", 7200)
    assert never_ran["reason"] == "no v100 is free"
    assert (stopped["job_id"], stopped["waited_s"]) == ("d", 1800)


def test_plan_history(cluster: Store) -> None:
    (row,) = answer(cluster, "plan_history")
    assert (row["gap"], row["solve_s"], row["moves"], row["reason"]) == (0.02, 1.5, 1, "schedule")
    assert "cost_w" not in row  # watts and penalties are shown apart
    assert row["penalties"] == 10.0


def test_moves_gained(cluster: Store) -> None:
    (row,) = answer(cluster, "moves_gained")
    assert (row["throughput_before"], row["throughput_after"]) == (12.0, 6.0)
    assert row["energy_saved_share"] == -1.0


def test_sharing(cluster: Store) -> None:
    found = {r["job_class"]: r["kept_share"] for r in answer(cluster, "sharing")}
    assert found == {"a class": pytest.approx(6 / 12.25, abs=1e-3), "b class": None}


def test_cost_and_carbon(cluster: Store) -> None:
    (row,) = answer(cluster, "cost_and_carbon", price_per_kwh=0.5, grams_co2_per_kwh="100")
    assert (row["cost"], row["co2_kg"]) == (0.1, 0.02)


def test_a_wrong_parameter_names_the_right_ones(cluster: Store) -> None:
    with pytest.raises(InvalidInput, match="has no parameter 'price'; it has price_per_kwh"):
        run_query(cluster, "cost_and_carbon", price=1)
    with pytest.raises(InvalidInput, match="hours is 'long', not a DOUBLE"):
        run_query(cluster, "energy_by_job", hours="long")
    with pytest.raises(InvalidInput, match="did you mean queue"):
        run_query(cluster, "quee")


# -- the command ---------------------------------------------------------------------------------


@pytest.fixture
def gogh(cluster: Store, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setenv("GOGH_HOME", str(cluster.path.parent))

    def run(*words: str) -> str:
        result = CliRunner().invoke(app, list(words))
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        assert result.exit_code == 0, result.output
        return result.stdout

    return run


def test_a_table_is_shown_with_a_bound(gogh: Any) -> None:
    shown = gogh("sql", "SELECT gpu_index FROM gpu_samples", "--rows", "3")
    assert len(shown.splitlines()) == 1 + 3 + 1
    assert "117 rows more" in shown


def test_json_csv_and_parquet(gogh: Any, tmp_path: Path) -> None:
    text = "SELECT 1 AS a, TIMESTAMPTZ '2026-01-05 12:00:00+00' AS t, NULL AS n, 'x,y' AS s"
    expected = {"a": 1, "t": "2026-01-05T12:00:00Z", "n": None, "s": "x,y"}
    assert json.loads(gogh("sql", text, "--json")) == [expected]
    assert list(csv.reader(io.StringIO(gogh("sql", text, "--csv")))) == [
        ["a", "t", "n", "s"],
        ["1", "2026-01-05T12:00:00Z", "", "x,y"],
    ]
    gogh("sql", text, "--parquet", str(tmp_path / "x.parquet"))
    assert pq.read_table(tmp_path / "x.parquet")["s"].to_pylist() == ["x,y"]


def test_columns_of_one_name_keep_their_own_cells(gogh: Any, tmp_path: Path) -> None:
    text = "SELECT 1 AS a, 2 AS a, 3 AS b, 4 AS a_1, 5 AS a"
    names, cells = ["a", "a_1", "b", "a_1_1", "a_2"], [1, 2, 3, 4, 5]
    assert json.loads(gogh("sql", text, "--json")) == [dict(zip(names, cells, strict=True))]
    shown = list(csv.reader(io.StringIO(gogh("sql", text, "--csv"))))
    assert shown == [names, [str(cell) for cell in cells]]
    assert gogh("sql", text).split() == [*names, *(str(cell) for cell in cells)]
    gogh("sql", text, "--parquet", str(tmp_path / "x.parquet"))
    assert pq.read_table(tmp_path / "x.parquet").column_names == names


def test_a_query_takes_parameters(gogh: Any) -> None:
    shown = gogh("query", "cost_and_carbon", "--set", "price_per_kwh=1", "--json")
    assert json.loads(shown)[0]["cost"] == 0.2


def test_queries_are_listed(gogh: Any) -> None:
    assert {entry["name"] for entry in json.loads(gogh("query", "--json"))} == set(query_names())


def test_bad_words_are_bad_input(gogh: Any) -> None:
    for words in (
        ["query", "queue", "--set", "x"],
        ["sql", "DELETE FROM jobs"],
        ["sql", "SELECT 1", "--json", "--csv"],
    ):
        with pytest.raises(InvalidInput):
            gogh(*words)


def test_backup_and_restore_by_command(gogh: Any, cluster: Store, tmp_path: Path) -> None:
    gogh("backup", str(tmp_path / "backup"))
    with pytest.raises(InvalidInput, match="--yes replaces it"):
        gogh("restore", str(tmp_path / "backup"))
    assert "restored" in gogh("restore", str(tmp_path / "backup"), "--yes")
    assert answer(cluster, "queue")


def test_ctrl_c_within_a_query_is_an_interrupt_as_anywhere_else() -> None:
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    soon = threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT))
    try:
        with duckdb.connect() as connection:
            soon.start()
            with pytest.raises(KeyboardInterrupt):
                run(connection, "SELECT count(*) FROM range(30000000000) WHERE range % 7 = 3", {})
    finally:
        soon.join()
        signal.signal(signal.SIGINT, before)
