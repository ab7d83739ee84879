"""The scoreboard of the closed loop: what is run, kept, repeated, told, and never told."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gogh_core.bench.loop import command, many, page, runs
from gogh_core.bench.loop.cases import case_of, data_folder
from gogh_core.bench.loop.runs import Asked, policy_for, run_asked, run_kept
from gogh_core.errors import InvalidInput
from gogh_core.planning import Learned, Planner
from gogh_core.simulation import TrueRates
from gogh_core.simulation.engine import Run
from tests.simulation.reach import HIDDEN, reached

FEW = [Asked("embedded", policy, seed, 2) for policy in ("fcfs", "best_fit") for seed in (300, 301)]
Score = page.Score


def told(found: dict[str, Any]) -> dict[str, Any]:
    """A result without what it took."""
    return {name: value for name, value in found.items() if name != "cpu_s"}


@pytest.fixture(scope="module")
def results() -> list[dict[str, Any]]:
    return [run_asked(one) for one in FEW]


class TestKept:
    def test_a_run_is_not_repeated_by_the_same_code(self, tmp_path: Path) -> None:
        first = run_kept(FEW[0], tmp_path)
        assert run_kept(FEW[0], tmp_path) == first  # the CPU seconds, too

    def test_other_code_runs_it_again(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        first = run_kept(FEW[0], tmp_path)
        monkeypatch.setattr(runs, "code_mark", lambda: "other")
        again = run_kept(FEW[0], tmp_path)
        assert first["code"] != "other"
        assert again["code"] == "other"
        assert again["figures"] == first["figures"]
        assert len(list(tmp_path.rglob("*.json"))) == 1

    def test_other_questions_have_other_files(self, tmp_path: Path) -> None:
        for one in (*FEW, Asked("embedded", "fcfs", 300, 1), Asked("embedded", "fcfs", 300, 2, 60)):
            run_kept(one, tmp_path)
        assert len(list(tmp_path.rglob("*.json"))) == len(FEW) + 2
        assert not list(tmp_path.rglob("*.part"))

    def test_other_settings_of_gogh_have_other_files(self, monkeypatch: pytest.MonkeyPatch) -> None:
        before = [runs._name(Asked("embedded", policy, 1)) for policy in ("fcfs", "gogh")]
        monkeypatch.setenv("GOGH_ALLOCATION__MARGIN", "0.31")
        after = [runs._name(Asked("embedded", policy, 1)) for policy in ("fcfs", "gogh")]
        assert after[0] == before[0]
        assert after[1] != before[1]

    @pytest.mark.parametrize(
        ("name", "decides"),
        [
            ("settings.py", True),
            ("estimation/weights/new.json", True),
            ("simulation/policies/sia.py", True),
            ("bench/loop/cases.py", True),
            ("bench/loop/page.py", False),
            ("cli/main.py", False),
        ],
    )
    def test_what_decides_a_run_is_in_its_mark(
        self, tmp_path: Path, name: str, decides: bool
    ) -> None:
        for made in ("bench/loop/cases.py", "bench/loop/runs.py", name):
            (tmp_path / made).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / made).write_text("before")
        before = runs.mark_of(tmp_path)
        (tmp_path / name).write_text("after")
        assert (runs.mark_of(tmp_path) != before) == decides

    @pytest.mark.parametrize("text", ["", "{", "[]", "{}", "null", '{"code": "1"}', "\x00\x01"])
    def test_a_damaged_file_is_refused_in_one_line(self, tmp_path: Path, text: str) -> None:
        run_kept(FEW[0], tmp_path)
        (path,) = tmp_path.rglob("*.json")
        path.write_text(text)
        with pytest.raises(InvalidInput) as caught:
            run_kept(FEW[0], tmp_path)
        line = str(caught.value)
        assert str(path) in line
        assert "remove it" in line
        assert "\n" not in line
        assert path.read_text() == text

    def test_bytes_that_are_no_text_are_refused(self, tmp_path: Path) -> None:
        run_kept(FEW[0], tmp_path)
        (path,) = tmp_path.rglob("*.json")
        path.write_bytes(b"\xff\xfe\x00")
        with pytest.raises(InvalidInput, match="remove it"):
            run_kept(FEW[0], tmp_path)


class TestSame:
    def test_two_workers_find_what_one_finds(
        self, tmp_path: Path, results: list[dict[str, Any]]
    ) -> None:
        found = list(many.run_many(FEW, tmp_path, workers=2))
        found.sort(key=lambda raw: FEW.index(Asked(raw["case"], raw["policy"], raw["seed"], 2)))
        assert [told(raw) for raw in found] == [told(raw) for raw in results]

    @pytest.mark.parametrize("policy", ["best_fit", "gogh_true", "gogh"])
    def test_two_runs_of_one_seed_are_the_same(self, policy: str) -> None:
        one = Asked("embedded", policy, 302, 1)
        first = run_asked(one)
        assert told(run_asked(one)) == told(first)
        assert first["figures"]["energy_j"] > 0
        assert first["figures"]["work_s"] > 0

    def test_seeds_differ(self, results: list[dict[str, Any]]) -> None:
        assert results[0]["figures"] != results[1]["figures"]


class TestAsked:
    @pytest.mark.parametrize(
        ("text", "seeds"),
        [
            ("200-209", list(range(200, 210))),
            ("1,5,7", [1, 5, 7]),
            ("3", [3]),
            ("1-3, 9", [1, 2, 3, 9]),
            ("4-4,4,3", [4, 3]),
        ],
    )
    def test_seeds_are_read(self, text: str, seeds: list[int]) -> None:
        assert command._seeds(text) == seeds

    @pytest.mark.parametrize("text", ["", "a", "1-", "-1", "1,,2", "5-1", "1-b", "0-99999999", "²"])
    def test_bad_seeds_are_one_line(self, text: str) -> None:
        with pytest.raises(InvalidInput) as caught:
            command._seeds(text)
        assert repr(text) in str(caught.value)
        assert "\n" not in str(caught.value)

    @pytest.mark.parametrize(
        ("arguments", "said"),
        [
            (
                ("--cases", "mars"),
                "case 'mars' is not known; known: embedded, makespan",
            ),
            (("--cases", "philly@-1"), "case 'philly@-1' is not known"),
            (("--cases", "philly@much"), "case 'philly@much' is not known"),
            (("--policies", "fcfs,frob"), "policy 'frob' is not known; known: fcfs, "),
            (("--seeds", "7-x"), "seeds '7-x' cannot be read; write 200-209 or 1,5,7"),
            (("--setting", "margin"), "setting 'margin' cannot be read; write name=number"),
            (("--setting", "frob=1"), "frob"),
        ],
    )
    def test_what_is_not_known_is_one_line(
        self, gogh: Callable[..., tuple[int, str, str]], arguments: tuple[str, ...], said: str
    ) -> None:
        code, out, err = gogh("bench", "loop", *arguments)
        assert (code, out) == (2, "")
        assert said in err
        assert len(err.strip().splitlines()) == 1

    def test_traces_need_their_data(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        monkeypatch.setenv("GOGH_DATA", str(tmp_path))
        with pytest.raises(InvalidInput, match="set GOGH_DATA"):
            data_folder()

    def test_settings_go_to_gogh_only(self) -> None:
        asked = command._asked("embedded", "fcfs,gogh", "1", 2, 300.0, ["margin=0.1"])
        assert [one.options for one in asked] == [(), (("margin", 0.1),)]


def score(policy: str, joules: float, kept: float) -> Score:
    return Score("toy", policy, (1,), (joules,), (kept,), ({},))


class TestPage:
    def test_the_frontier_is_what_nothing_beats_in_both(self) -> None:
        found = [
            score("thrifty", 100, 90),
            score("between", 150, 95),
            score("same", 150, 95),
            score("keeps", 200, 99),
            score("beaten", 151, 95),
            score("worse", 200, 98),
            score("worst", 300, 50),
        ]
        assert page.frontier(found) == {"thrifty", "between", "same", "keeps"}
        assert page.frontier(found[-1:]) == {"worst"}

    def test_scores_are_means_over_seeds(self, results: list[dict[str, Any]]) -> None:
        found = page.scores(reversed(results))
        assert [(one.policy, one.seeds) for one in found] == [
            ("best_fit", (300, 301)),
            ("fcfs", (300, 301)),
        ]
        first, second = (raw["figures"] for raw in results[:2])
        fcfs = found[1]
        assert fcfs.joules == (first["joules_per_work_s"], second["joules_per_work_s"])
        assert fcfs.kept == (100 * first["kept_share"], 100 * second["kept_share"])
        assert fcfs.mean("kwh") == pytest.approx((first["kwh"] + second["kwh"]) / 2)
        lost = sum(fcfs.lost(cause) for cause in first["unkept_job_s"])
        assert lost == pytest.approx(100 - sum(fcfs.kept) / 2)

    def test_a_figure_that_no_seed_has_is_a_dash(self) -> None:
        one = Score("toy", "p", (1, 2), (1.0, 1.0), (1.0, 1.0), ({"x": None}, {"x": None}))
        assert one.mean("x") is None

    def test_every_policy_and_cause_is_on_the_page(
        self, results: list[dict[str, Any]], tmp_path: Path
    ) -> None:
        found = page.scores(results)
        page.plot(found, tmp_path / "new" / "plot.png")
        assert (tmp_path / "new" / "plot.png").read_bytes().startswith(b"\x89PNG")
        text = page.page(
            found, command="gogh bench loop", day="2026-01-05", plots={"embedded": "plot.png"}
        )
        assert "## embedded" in text
        assert "(plot.png)" in text
        for cause in results[0]["figures"]["unkept_job_s"]:
            assert f" {cause.replace('_', ' ')} |" in text
        for policy in ("fcfs", "best_fit"):
            rows = [line for line in text.splitlines() if line.strip("| *").startswith(policy)]
            assert len(rows) == 3, policy  # the main table, what was lost, the rest
        widths = {}
        for line in text.splitlines():
            if line.startswith("|---"):
                widths = {line.count("|")}
            elif line.startswith("|") and widths:
                assert {line.count("|")} == widths, line
            elif not line:
                widths = {}

    def test_the_command_writes_page_and_plot(
        self, gogh: Callable[..., tuple[int, str, str]], tmp_path: Path
    ) -> None:
        asked = ("--policies", "fcfs,best_fit", "--seeds", "300-301", "--windows", "1")
        kept = ("--keep", tmp_path / "kept")
        out = tmp_path / "docs" / "loop.md"
        code, text, err = gogh("bench", "loop", *asked, *kept, "--out", out)
        assert code == 0, err
        assert out.read_text().strip() == text.strip()
        assert (out.parent / "loop-embedded.png").exists()
        assert len(err.strip().splitlines()) == 4
        code, text, _ = gogh("bench", "loop", *asked, *kept, "--json")
        assert [(raw["policy"], raw["seed"]) for raw in json.loads(text)] == [
            ("fcfs", 300),
            ("best_fit", 300),
            ("fcfs", 301),
            ("best_fit", 301),
        ]


class TestWhatAPolicyMayKnow:
    def hidden(self, policy: str) -> tuple[list[object], Planner, Any]:
        """What is hidden and yet reachable from planner, knowledge and board after two windows."""
        asked = Asked("embedded", policy, 303, 2)
        case = case_of("embedded", windows=2, window_s=300.0)
        world = case.make(303)
        planner, observer = policy_for(asked, world, 303)
        assert isinstance(planner, Planner)
        run = Run(world, planner, observer=observer)
        run.until(case.horizon_s)
        roots = (planner, planner._knowledge, run.board)
        found = [one for root in roots for one in reached(root) if isinstance(one, HIDDEN)]
        return found, planner, run

    def test_the_truth_cannot_be_reached_from_gogh(self) -> None:
        found, planner, run = self.hidden("gogh")
        knowledge = planner._knowledge
        assert isinstance(knowledge, Learned)
        assert len(knowledge._rows) > 5  # it has learned from what was measured
        assert any(one is knowledge for one in reached(planner))
        assert not found
        assert any(isinstance(one, HIDDEN) for one in reached(run))  # the walk does find it

    def test_the_walk_finds_what_the_oracle_was_given(self) -> None:
        found, _, _ = self.hidden("gogh_true")
        assert any(isinstance(one, TrueRates) for one in found)
