"""Queries of people against their limits: whatever is asked, one clear line ends it."""

from __future__ import annotations

import csv
import io
import json
import os
import re
import resource
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from gogh_core.cli import app
from gogh_core.cli.data import _no_formula
from gogh_core.errors import InvalidInput, ResultTooLarge
from gogh_core.settings import SqlSettings
from gogh_core.store import Store, ask, bounded_process, run_query

SORTED = "SELECT * FROM range(30000000) ORDER BY hash(range)"
"""240 MB to sort: more than the memory of these tests."""
ENDLESS = "SELECT sum(a.range * b.range) FROM range(1000000) a, range(1000000) b"
SMALL = {"memory_limit_mb": 128, "spill_limit_mb": 16}


def limited(published: Store, **limits: float) -> Store:
    chosen = published.settings.model_copy(update={"sql": SqlSettings(**limits)})
    return Store(chosen)


class Folder:
    """The most bytes that were below a folder, as seen by looking again and again."""

    def __init__(self, top: Path) -> None:
        self.most = 0
        self._top, self._ended = top, threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)

    def __enter__(self) -> Folder:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def _look(self) -> None:
        while not self._ended.wait(0.01):
            self.most = max(self.most, size(self._top))


def size(top: Path) -> int:
    total = 0
    for path in top.rglob("*"):
        try:
            total += 0 if path.is_dir() else path.stat().st_size
        except FileNotFoundError:
            continue
    return total


def test_a_query_that_would_eat_the_disk_ends_with_one_clear_line(published, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    home = published.settings.home
    before = size(home)
    with Folder(home) as seen, pytest.raises(InvalidInput) as told:
        ask(limited(published, **SMALL), SORTED)
    assert re.fullmatch(
        r"query: needs more than 128 MB of memory and 16 MB of disk; narrow it, or raise "
        r"sql\.memory_limit_mb and sql\.spill_limit_mb",
        str(told.value),
    )
    assert seen.most - before < 20 * 2**20
    assert size(home) == before, "nothing is left"
    assert os.listdir(tmp_path) == [], "nothing is in the current folder"


def test_with_room_on_disk_the_same_query_is_answered(published):
    inner = "SELECT range FROM range(6000000) ORDER BY hash(range) LIMIT 5999999"
    narrow = f"SELECT max(range) FROM ({inner})"
    assert ask(limited(published, memory_limit_mb=128), narrow).num_rows == 1


def test_spill_is_below_home_and_not_beside_the_database(published, tmp_path):
    elsewhere = published.settings.model_copy(update={"home": tmp_path / "home"})
    elsewhere.home.mkdir()
    elsewhere = elsewhere.model_copy(
        update={"store": elsewhere.store.model_copy(update={"path": published.path})}
    )
    with Store(elsewhere).snapshot() as connection:
        place = connection.sql("SELECT current_setting('temp_directory')").fetchall()[0][0]
    assert Path(place).parent == tmp_path / "home" / "spill"


def test_without_a_place_to_spill_memory_is_all_there_is(published):
    home = published.settings.home
    (home / "spill").rename(home / "aside") if (home / "spill").exists() else None
    (home / "spill").write_text("in the way")
    try:
        with pytest.raises(InvalidInput, match="needs more than 128 MB"):
            ask(limited(published, **SMALL), SORTED)
        assert ask(published, "SELECT 1 AS one").to_pylist() == [{"one": 1}]
    finally:
        (home / "spill").unlink()


def test_what_a_killed_process_left_goes_when_it_is_old(published):
    top = published.settings.home / "spill"
    old, new = top / "sql-old", top / "sql-new"
    for folder in (old, new):
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "duckdb_temp_storage-0.tmp").write_bytes(b"x")
    os.utime(old, (0, 0))
    ask(published, "SELECT 1")
    assert (old.exists(), new.exists()) == (False, True)


def test_a_query_without_end_is_ended(published):
    began = time.monotonic()
    with pytest.raises(InvalidInput, match=r"takes longer than 0\.5 s; .*sql\.timeout_s"):
        ask(limited(published, timeout_s=0.5), ENDLESS)
    assert time.monotonic() - began < 10
    assert ask(published, "SELECT 1 AS one").num_rows == 1, "the next one is answered"


def test_an_answer_with_too_many_rows_is_refused_with_its_beginning(published):
    with pytest.raises(ResultTooLarge, match=r"more than 1,000 rows \(sql\.max_rows\)") as told:
        ask(limited(published, max_rows=1000), "SELECT range AS n FROM range(100000000)")
    assert told.value.part.column("n").to_pylist() == list(range(1000))
    whole = ask(limited(published, max_rows=1000), "SELECT range AS n FROM range(1000)")
    assert whole.num_rows == 1000


def test_an_answer_of_too_many_bytes_is_refused(published):
    wide = "SELECT repeat('x', 100000) AS x FROM range(1000000)"
    with pytest.raises(ResultTooLarge, match=r"more than 8 MB \(sql\.max_mb\)"):
        ask(limited(published, max_mb=8), wide)


def test_named_queries_have_the_same_limits(published):
    with pytest.raises(InvalidInput, match="query plan_history: takes longer than"):
        run_query(limited(published, timeout_s=1e-9), "plan_history")


def test_limits_cannot_be_raised_from_within(published):
    for change in ("SET memory_limit = '100GB'", "SET max_temp_directory_size = '100GB'"):
        with pytest.raises(InvalidInput, match="is not one SELECT"):
            ask(published, change)
    with published.snapshot() as connection, pytest.raises(Exception, match="locked"):
        connection.execute("SET max_temp_directory_size = '100GB'")


def gogh(store: Store, *arguments: str, **limits: float) -> subprocess.CompletedProcess[str]:
    """The command itself, in a process of its own."""
    variables = {f"GOGH_SQL__{key.upper()}": str(value) for key, value in limits.items()}
    kept = {key: value for key, value in os.environ.items() if not key.startswith("GOGH_")}
    return subprocess.run(
        [sys.executable, "-m", "gogh_core.cli", *arguments],
        env={**kept, **variables, "GOGH_HOME": str(store.settings.home)},
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip


def test_one_value_of_gigabytes_is_refused(published):
    """DuckDB does not count it as its memory: 8 GB came of this one."""
    done = gogh(published, "sql", "SELECT length(repeat('x', 2000000000)) AS n", max_mb=64)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.count("\n") == 1
    assert "needs more than 1024 MB of memory" in done.stderr


def test_a_call_that_nothing_interrupts_ends_with_its_process(published):
    ended: list[str] = []
    limits = SqlSettings(timeout_s=0.01)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("gogh_core.store.people._GRACE_S", 0.05)
        with bounded_process(limits, end=ended.append):
            time.sleep(0.5)  # DuckDB within one row
    assert ended == ["query: takes longer than 0.01 s; narrow it, or raise sql.timeout_s"]
    assert resource.getrlimit(resource.RLIMIT_DATA)[0] == resource.RLIM_INFINITY


def test_ctrl_c_ends_a_query_of_a_person(published):
    kept = {key: value for key, value in os.environ.items() if not key.startswith("GOGH_")}
    running = subprocess.Popen(
        [sys.executable, "-m", "gogh_core.cli", "sql", ENDLESS],
        env={**kept, "GOGH_HOME": str(published.settings.home)},
        stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    top = published.settings.home / "spill"
    until = time.monotonic() + 60
    while not list(top.glob("sql-????????")) and time.monotonic() < until:
        time.sleep(0.05)
    time.sleep(0.5)
    began = time.monotonic()
    running.send_signal(signal.SIGINT)
    _, said = running.communicate(timeout=50)
    assert running.returncode == 130
    assert said in ("", "gogh: interrupted\n"), "no traceback"
    assert time.monotonic() - began < 10


@pytest.fixture
def shell(published, monkeypatch):
    monkeypatch.setenv("GOGH_HOME", str(published.settings.home))

    def run(*arguments: str):
        return CliRunner().invoke(app, list(arguments))

    return run


def test_a_table_shows_the_beginning_of_a_long_answer_and_says_so(shell, monkeypatch):
    monkeypatch.setenv("GOGH_SQL__MAX_ROWS", "1000")
    shown = shell("sql", "SELECT range AS n FROM range(100000000)", "--rows", "3")
    assert shown.exit_code == 0
    assert shown.output.split()[:4] == ["n", "0", "1", "2"]
    assert "more than 1,000 rows (sql.max_rows)" in shown.output
    for option in ("--json", "--csv", "--spreadsheet"):
        refused = shell("sql", "SELECT range AS n FROM range(100000000)", option)
        assert isinstance(refused.exception, ResultTooLarge)
        assert refused.output == "", "nobody takes a part for the whole"


def test_json_comes_row_by_row_and_is_json(shell):
    told = shell("sql", "SELECT range AS n, [1, 2] AS l, NULL AS z FROM range(3000)", "--json")
    rows = json.loads(told.output)
    assert rows[2999] == {"n": 2999, "l": [1, 2], "z": None}
    assert json.loads(shell("sql", "SELECT 1 AS n WHERE false", "--json").output) == []


FORMULAS = ["=1+1", "+1", "-1", "@SUM(A1)", "\t=1", "\r=1", " =1", "\uff1d1", "=cmd|'/C calc'!A0"]


def test_cells_that_begin_a_formula_are_quoted_on_request(shell):
    names = ", ".join("'" + text.replace("'", "''") + "'" for text in FORMULAS)
    asked = f"SELECT unnest([{names}]) AS \"=cell\", -5 AS number, 'plain' AS word"
    cells = list(csv.reader(io.StringIO(shell("sql", asked, "--spreadsheet").output, newline="")))
    assert cells[0] == ["'=cell", "number", "word"]
    assert [row[0] for row in cells[1:]] == [f"'{text}" for text in FORMULAS]
    assert {(row[1], row[2]) for row in cells[1:]} == {("-5", "plain")}, "numbers stay numbers"
    plain = shell("sql", "SELECT '=1+1' AS x", "--csv").output
    assert plain == "x\n=1+1\n", "only on request"


@given(st.text())
def test_no_text_begins_a_formula_for_a_spreadsheet(text: str):
    cell = _no_formula(text)
    assert cell in (text, f"'{text}")
    assert not str(cell).lstrip().startswith(("=", "+", "-", "@"))


def test_an_answer_without_limits_reached_is_the_same_as_before(published):
    told = ask(published, "SELECT 1 AS a, 2 AS a, 'x' AS b")
    assert told.equals(
        pa.table({"a": pa.array([1], pa.int32()), "a_1": pa.array([2], pa.int32()), "b": ["x"]})
    )
