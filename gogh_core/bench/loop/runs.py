"""One run: a policy in a world, to its figures; kept in a file, so that a bench can be resumed."""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any

from gogh_core import __version__
from gogh_core.bench.loop.cases import case_of
from gogh_core.errors import InvalidInput
from gogh_core.planning import Known, Learned, Planner
from gogh_core.settings import Settings, load
from gogh_core.simulation import (
    Figures,
    Policy,
    TrueRates,
    World,
    figures_of,
    make_policy,
    run_world,
)

__all__ = [
    "GOGH",
    "Asked",
    "code_mark",
    "keep",
    "kept",
    "policy_for",
    "run_asked",
    "run_kept",
    "shown",
]

GOGH = ("gogh", "gogh_true", "gogh_window")
"""With learned estimates, with the true means, and with learned estimates at windows only."""
WORK = {"work_limit": 6.0, "time_limit_s": 3600.0}
"""Work ends a plan, never the clock, so that a seed gives the same figures on every machine."""
_DECIDING = ("cases.py", "runs.py")
_SECTIONS = {"allocation", "cycle", "estimation", "guards", "objective", "service"}
_KINDS = (".py", ".json", ".safetensors")


@dataclass(frozen=True, slots=True)
class Asked:
    """Which run."""

    case: str
    policy: str
    seed: int
    windows: int = 24
    window_s: float = 300.0
    options: tuple[tuple[str, float], ...] = ()
    """Settings of `[allocation]` other than the defaults."""


def policy_for(asked: Asked, world: World, seed: int) -> tuple[Policy, Any]:
    """The policy, and the observer that it learns through, if it learns."""
    if asked.policy not in GOGH:
        return make_policy(asked.policy, TrueRates(world.truth), window_s=asked.window_s), None
    settings = _settings(asked)
    if asked.policy == "gogh_true":
        known = Known(TrueRates(world.truth))
        return Planner(settings, known, name=asked.policy), None
    learned = Learned(
        world.start,
        seed=seed,
        confidence=settings.estimation.confidence,
        half_life_days=settings.estimation.half_life_days,
        pairs=settings.allocation.share,
    )
    planner = Planner(settings, learned, name=asked.policy, events=asked.policy == "gogh")
    return planner, learned.observe


def _settings(asked: Asked) -> Settings:
    return load(
        home=Path("nowhere"),
        cycle={"window_s": round(asked.window_s)},
        allocation={**WORK, **dict(asked.options)},
    )


def run_asked(asked: Asked) -> dict[str, Any]:
    """The figures of one run, and what it took."""
    case = case_of(asked.case, windows=asked.windows, window_s=asked.window_s)
    world = case.make(asked.seed)
    policy, observer = policy_for(asked, world, asked.seed)
    began = time.process_time()
    run_world(world, policy, case.horizon_s, to_the_end=case.to_the_end, observer=observer)
    figures: Figures = figures_of(world)
    return {
        **asdict(asked),
        "options": [list(pair) for pair in asked.options],
        "version": __version__,
        "code": code_mark(),
        "figures": figures.to_dict(),
        "cpu_s": time.process_time() - began,
    }


def run_kept(asked: Asked, folder: Path) -> dict[str, Any]:
    """The same, from its file where this code has run it before."""
    found = kept(asked, folder)
    if found is None:
        found = run_asked(asked)
        keep(found, asked, folder)
    return found


def kept(asked: Asked, folder: Path) -> dict[str, Any] | None:
    """The result in its file, if this code made it."""
    path = folder / _name(asked)
    try:
        found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        found["figures"]["kept_share"]
        return found if found["code"] == code_mark() else None
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError) as error:
        raise InvalidInput(
            f"is no result of this bench ({error})", where=str(path), todo="remove it"
        ) from error


def keep(found: Mapping[str, Any], asked: Asked, folder: Path) -> None:
    """Write a result to its file, whole or not at all."""
    path = folder / _name(asked)
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_suffix(f".{os.getpid()}.part")
    part.write_text(json.dumps(found, indent=1), encoding="utf-8")
    part.replace(path)


def _name(asked: Asked) -> Path:
    told = asdict(asked)
    if asked.policy in GOGH:  # gogh.toml and GOGH_* decide its runs, too
        settings = _settings(asked)
        told["settings"] = settings.model_dump(mode="json", include=_SECTIONS)
        told["damper_s"] = settings.prefect.damper_s
    mark = hashlib.sha256(json.dumps(told, sort_keys=True).encode()).hexdigest()[:10]
    return Path(asked.case) / f"{asked.policy}-{asked.seed}-{mark}.json"


@cache
def code_mark() -> str:
    """A digest of all that decides a run: results of other code or weights are not reused."""
    return mark_of(Path(__file__).parents[2])


def mark_of(root: Path) -> str:
    """The digest of a tree: rooms, weights, and what all rooms share, such as default settings."""
    found = [*root.glob("*.py"), *(root / "bench" / "loop" / name for name in _DECIDING)]
    for room in ("allocation", "cluster", "estimation", "planning", "simulation"):
        found += (path for path in (root / room).rglob("*") if path.suffix in _KINDS)
    digest = hashlib.sha256()
    for path in sorted(found):
        digest.update(f"{path.relative_to(root)}\n".encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


def shown(raw: Mapping[str, Any]) -> str:
    """A run's result in a line."""
    figures = raw["figures"]
    joules, kept = figures["joules_per_work_s"], figures["kept_share"]
    return (
        f"{raw['case']:14} {raw['policy']:16} seed {raw['seed']:<4} "
        f"{joules or float('nan'):7.1f} J/work-s  kept {100 * (kept or 0):5.1f} %  "
        f"{raw['cpu_s']:6.1f} s"
    )
