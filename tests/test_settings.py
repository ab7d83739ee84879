"""Settings: the file, then the environment; a wrong key is named with the nearest right one."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from gogh_core.cli import app
from gogh_core.errors import InvalidSettings
from gogh_core.settings import load, page

PROJECT = Path(__file__).resolve().parent.parent


@pytest.fixture(autouse=True)
def bare(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No gogh.toml and no variables but the test's own."""
    import os

    for name in list(os.environ):
        if name.upper().startswith("GOGH_"):
            monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)


def test_the_file_then_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Path("gogh.toml").write_text("[cycle]\nwindow_s = 600\n[allocation]\ngap = 0.05\n")
    monkeypatch.setenv("GOGH_CYCLE__WINDOW_S", "120")
    settings = load()
    assert (settings.cycle.window_s, settings.allocation.gap) == (120, 0.05)
    assert load(cycle={"window_s": 60}).cycle.window_s == 60


def test_a_file_may_be_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    other = tmp_path / "other.toml"
    other.write_text('home = "elsewhere"\n')
    assert load(other).home == Path("elsewhere")
    monkeypatch.setenv("GOGH_CONFIG", str(other))
    assert load().home == Path("elsewhere")


def test_paths_are_below_home(tmp_path: Path) -> None:
    settings = load(home=tmp_path / "h")
    assert settings.database == tmp_path / "h" / "gogh.duckdb"
    assert settings.spool == tmp_path / "h" / "spool"
    assert settings.models == tmp_path / "h" / "models"
    assert settings.plans == tmp_path / "h" / "plans"
    assert load(store={"path": "/data/x.duckdb"}).database == Path("/data/x.duckdb")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[allocation]\nsolvr = 'glpk'", r"allocation.solvr is no setting; .*allocation.solver"),
        ("[allocatoin]\ngap = 1", "allocatoin is no setting; did you mean"),
        ("[allocation]\ngap = 7", "allocation.gap: .*less than or equal to 1"),
        ("[allocation]\nsolver = 'abacus'", "allocation.solver: .*'glpk'"),
        ("[cycle\n", "is not TOML"),
    ],
)
def test_what_is_wrong_in_the_file_is_named(text: str, words: str) -> None:
    Path("gogh.toml").write_text(text)
    with pytest.raises(InvalidSettings, match=words):
        load()


def test_an_unknown_variable_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GOGH_ALLOCATION__SOLVR", "glpk")
    with pytest.raises(InvalidSettings, match="did you mean GOGH_ALLOCATION__SOLVER"):
        load()


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(InvalidSettings, match="cannot be read"):
        load(tmp_path / "none.toml")


def test_secrets_are_not_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GOGH_WEBHOOK__SECRET", "hunter2hunter2")
    for words in (["settings"], ["settings", "--json"]):
        shown = CliRunner().invoke(app, words).stdout
        assert "hunter2" not in shown
    assert "hunter2" not in repr(load())


def test_settings_as_json() -> None:
    shown = json.loads(CliRunner().invoke(app, ["settings", "--json"]).stdout)
    assert shown["cycle"]["window_s"] == 300


def test_the_page_is_the_one_in_docs() -> None:
    assert (PROJECT / "docs" / "settings.md").read_text(encoding="utf-8") == page()


def test_every_setting_says_what_it_means() -> None:
    rows = [line for line in page().splitlines() if line.startswith("| `")]
    assert len(rows) > 40
    assert all(row.split("|")[4].strip() for row in rows)
