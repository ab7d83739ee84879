"""The shipped networks: all three kinds of P1 and P2, trained on random synthetic worlds only.

`pretrain` draws worlds, plays episodes in them, trains each kind, and scores them on worlds that
none of them saw; the kind with the smallest error there is the one served. No measured data enters.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from gogh_core.estimation.networks import KINDS, Kind, run
from gogh_core.estimation.registry import Version, write_version
from gogh_core.estimation.training import Sample, collect, train
from gogh_core.estimation.worlds import draw_world

__all__ = ["Score", "draw_samples", "pretrain", "score_network"]

_HELD_OUT = 0.15


@dataclass(frozen=True)
class Score:
    """Mean absolute error in spreads of the process, before and after, for the three quantities.

    NaN for a quantity that no sample has.
    """

    before: tuple[float, float, float]
    after: tuple[float, float, float]

    @property
    def error(self) -> float:
        """Mean error of the network over the quantities that were measured."""
        return float(np.nanmean(self.after))

    @property
    def gain(self) -> float:
        """Mean share of the error that the network takes away."""
        return float(1 - np.mean(np.array(self.after) / np.array(self.before)))


def draw_samples(
    worlds: int, *, seed: int, report: Callable[[str, float], None] | None = None
) -> list[list[Sample]]:
    """Samples by world; every eighth world is large, every third has no facts."""
    found = []
    for i in range(worlds):
        world = draw_world(seed + i, most_jobs=60 if i % 8 == 0 else 30)
        if len(world.names) >= 4:
            found.append(collect(world, seed=seed + i, most=16, use_facts=bool(i % 3)))
        if report is not None:
            report("worlds", (i + 1) / worlds)
    return found


def score_network(network: Any, samples: Sequence[Sample]) -> Score:
    """How much a network improves on the process."""
    before: list[list[float]] = [[], [], []]
    after: list[list[float]] = [[], [], []]
    for sample in samples:
        shift, _ = run(network, sample.rows[None])
        for q in range(3):
            known = ~np.isnan(sample.errors[:, q])
            before[q] += np.abs(sample.errors[known, q]).tolist()
            after[q] += np.abs(sample.errors[known, q] - shift[q, 0, known]).tolist()
    mean = [
        tuple(float(np.mean(part)) if part else np.nan for part in side) for side in (before, after)
    ]
    return Score((mean[0][0], mean[0][1], mean[0][2]), (mean[1][0], mean[1][1], mean[1][2]))


def pretrain(
    folder: Path,
    *,
    worlds: int = 300,
    seed: int = 5000,
    samples: list[list[Sample]] | None = None,
    report: Callable[[str, float], None] | None = None,
    created_at: str = "2026-01-01T00:00:00+00:00",
) -> dict[Kind, dict[str, Score]]:
    """Train all kinds, write them below `folder`, name the best in `default.json`."""
    drawn = samples if samples is not None else draw_samples(worlds, seed=seed, report=report)
    cut = int(len(drawn) * (1 - _HELD_OUT))
    learn = [s for world in drawn[:cut] for s in world]
    check = [s for world in drawn[cut:] for s in world]
    scores: dict[Kind, dict[str, Score]] = {}
    for kind in KINDS:
        networks, scores[kind] = {}, {}
        for stage in ("P1", "P2"):
            networks[stage] = train(kind, [s for s in learn if s.stage == stage], seed=seed)
            mine = [s for s in check if s.stage == stage]
            scores[kind][stage] = score_network(networks[stage], mine)
        version = Version(
            id=f"shipped-{kind}",
            kind=kind,
            created_at=created_at,
            data_sha256="",
            reason="pre-trained on random synthetic worlds",
            settings={"worlds": len(drawn), "seed": seed, "samples": len(learn)},
            scores={k: {"before": s.before, "after": s.after} for k, s in scores[kind].items()},
        )
        write_version(folder / kind, networks, version)
    best = max(KINDS, key=lambda kind: sum(s.gain for s in scores[kind].values()))
    (folder / "default.json").write_text(json.dumps({"kind": best}) + "\n", encoding="utf-8")
    return scores
