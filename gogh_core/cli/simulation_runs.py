"""The runs of `gogh simulate`: one replay for each policy, its progress, and the table."""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gogh_core.errors import InvalidInput

if TYPE_CHECKING:
    from gogh_core.domain import Server
    from gogh_core.simulation import Observer, Policy, TableTruth, World

__all__ = ["Replays", "chosen_policies", "replay_table"]

SAVE_EVERY_S = 60.0
_EVERY_S = 30.0
_NAMED = 5


def chosen_policies(text: str) -> list[str]:
    """The policies asked for, each once, in their order."""
    from gogh_core.simulation import POLICIES

    known = [*POLICIES, "gogh"]
    names = known if text == "all" else [part.strip() for part in text.split(",")]
    for name in names:
        if name not in known:
            raise InvalidInput(
                f"policy {name!r} is not known", todo=f"known: {', '.join(known)}, all"
            )
    return list(dict.fromkeys(names))


class Replays:
    """The same trace, table and cluster for every policy."""

    def __init__(
        self,
        jobs: Sequence[Mapping[str, Any]],
        truth: TableTruth,
        servers: Sequence[Server],
        *,
        window_s: float,
        promise: float,
        gap: float,
        seed: int,
        horizon_s: float,
        learned: bool,
    ) -> None:
        self._jobs, self._truth, self._servers = jobs, truth, servers
        self._window_s, self._promise, self._gap = window_s, promise, gap
        self._seed, self._horizon_s, self._learned = seed, horizon_s, learned

    def run(self, name: str, saved: Path | None) -> dict[str, Any]:
        """Everything that came of the trace under one policy, as `--json` prints it."""
        from gogh_core.simulation import TrueRates, make_policy, replay, trace_world

        trace = trace_world(
            self._jobs, self._truth, self._servers, promise=self._promise, seed=self._seed
        )
        observer: Observer | None = None
        learned = name == "gogh" and self._learned
        if name == "gogh":
            policy, observer = self._gogh(trace.world)
        else:
            policy = make_policy(name, TrueRates(self._truth), window_s=self._window_s)
        progress = _Progress(name, len(trace.demands))
        found = replay(
            trace,
            policy,
            horizon_s=self._horizon_s,
            observer=observer,
            report=progress.show,
            saved=saved,
            save_every_s=SAVE_EVERY_S,
        )
        progress.end()
        raw = {**found.to_dict(), "policy": name, "estimates": "learned" if learned else "true"}
        return {**raw, "seed": self._seed, "window_s": self._window_s}

    def _gogh(self, world: World) -> tuple[Policy, Any]:
        """GOGH as a policy, and the observer that it learns through, if it learns."""
        from gogh_core.planning import Known, Learned, Planner
        from gogh_core.settings import load
        from gogh_core.simulation import TrueRates

        settings = load(
            home=Path("nowhere"),
            cycle={"window_s": round(self._window_s)},
            allocation={"gap": self._gap},
        )
        if not self._learned:
            return Planner(settings, Known(TrueRates(self._truth)), name="gogh_true"), None
        learned = Learned(
            world.start,
            seed=self._seed,
            confidence=settings.estimation.confidence,
            half_life_days=settings.estimation.half_life_days,
            pairs=settings.allocation.share,
        )
        return Planner(settings, learned), learned.observe


class _Progress:
    """How far a replay is, on stderr: in place on a terminal, else a line now and then."""

    def __init__(self, name: str, jobs: int) -> None:
        self._name, self._jobs = name, jobs
        self._told = time.monotonic()
        self._terminal = sys.stderr.isatty()

    def show(self, hours: float, through: int) -> None:
        """Tell it, if it is time."""
        now = time.monotonic()
        if not self._terminal and now - self._told < _EVERY_S:
            return
        self._told = now
        text = f"{self._name}: {hours:.0f} h, {through} of {self._jobs} jobs through"
        print(f"\r{text}" if self._terminal else text, file=sys.stderr, flush=True,
              end="" if self._terminal else "\n")  # fmt: skip

    def end(self) -> None:
        """The next line is another's."""
        if self._terminal:
            print(file=sys.stderr)


def _number(name: str, factor: float = 1.0, form: str = ".2f") -> Callable[[Any], str]:
    def show(raw: Mapping[str, Any]) -> str:
        value = raw[name]
        return "-" if value is None else format(value * factor, form)

    return show


_HOUR, _MINUTE = 1 / 3600, 1 / 60
_ROWS: tuple[tuple[str, Callable[[Any], str]], ...] = (
    ("estimates", lambda raw: str(raw["estimates"])),
    ("jobs finished", lambda raw: f"{raw['finished']} of {raw['trace_jobs']}"),
    ("left out", lambda raw: str(len(raw["left_out"]))),
    ("simulated, h", _number("seconds", _HOUR, ".4g")),
    ("J per work-second", _number("joules_per_work_s", 1.0, ".1f")),
    ("energy, kWh", _number("kwh")),
    ("promises kept", _number("kept_share", 1.0, ".1%")),
    ("JCT mean, h", _number("jct_mean_s", _HOUR)),
    ("JCT p95, h", _number("jct_p95_s", _HOUR)),
    ("queueing mean, h", _number("queueing_mean_s", _HOUR)),
    ("queueing p95, h", _number("queueing_p95_s", _HOUR)),
    ("slowdown mean", _number("slowdown_mean")),
    ("slowdown p95", _number("slowdown_p95")),
    ("utilisation, all", _number("utilisation", 1.0, ".1%")),
    ("utilisation, on", _number("utilisation_on", 1.0, ".1%")),
    ("work per on-GPU-s", _number("work_per_on_gpu_s", 1.0, ".3f")),
    ("makespan, h", _number("makespan_s", _HOUR)),
    ("fairness mean", _number("fairness_mean")),
    ("fairness worst", _number("fairness_worst")),
    ("moves per job", _number("moves_per_job")),
    ("stops per job", _number("stops_per_job")),
    ("lost work, min", _number("lost_work_s", _MINUTE, ".1f")),
)


def _lost(cause: str) -> Callable[[Any], str]:
    def show(raw: Mapping[str, Any]) -> str:
        promised = raw["promised_job_s"]
        return f"{raw['unkept_job_s'][cause] / promised:.1%}" if promised else "-"

    return show


def replay_table(found: Sequence[Mapping[str, Any]], horizon_s: float) -> str:
    """One column for each policy; below it what was cut off, left out and drawn."""
    causes = [(f"  {cause.replace('_', ' ')}", _lost(cause)) for cause in found[0]["unkept_job_s"]]
    at = 1 + next(i for i, (label, _) in enumerate(_ROWS) if label == "promises kept")
    rows = [*_ROWS[:at], ("promises lost to", lambda _: ""), *causes, *_ROWS[at:]]
    lines = [("", *(str(raw["policy"]) for raw in found))]
    lines += [(label, *(show(raw) for raw in found)) for label, show in rows]
    wide = max(16, *(len(cell) + 2 for line in lines for cell in line[1:]))
    text = [
        (f"{line[0]:18}" + "".join(f"{cell:>{wide}}" for cell in line[1:])).rstrip()
        for line in lines
    ]
    text += [
        f"{raw['policy']} {raw['note']}; --max-hours and --windows set the limit"
        for raw in found
        if raw["note"] and raw["seconds"] >= horizon_s - 1
    ]
    return "\n".join(text + _told(found[0]))


def _told(raw: Mapping[str, Any]) -> list[str]:
    """Which rows of the trace were not run as they are; the same under every policy."""
    text = []
    for why, count in Counter(one["why"] for one in raw["left_out"]).most_common():
        names = [one["job"] for one in raw["left_out"] if one["why"] == why]
        shown = ", ".join(names[:_NAMED]) + (", …" if count > _NAMED else "")
        text.append(f"{count} left out, {why}: {shown}")
    if raw["drawn_classes"]:
        text.append(f"{raw['drawn_classes']} jobs had no class of the table: drawn at random")
    if raw["drawn_batch_sizes"]:
        count = raw["drawn_batch_sizes"]
        text.append(f"{count} jobs had a model without a batch size: drawn at random")
    return text
