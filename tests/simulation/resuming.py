"""A run that is to be killed: `python -m tests.simulation.resuming FILE PAUSE_S`.

Runs a small world under a policy with a state of its own, saves it after every event (with a pause,
so that there is time to kill it) and prints its figures, segments included, as one JSON line.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

from gogh_core.settings import SimulationSettings
from gogh_core.simulation.board import Board
from gogh_core.simulation.building import new_world
from gogh_core.simulation.engine import run
from gogh_core.simulation.figures import figures_of
from gogh_core.simulation.segments import Segment
from tests.simulation.random_worlds import Chaos

HORIZON_S = 1.2 * 3600.0
SETTINGS = SimulationSettings(servers=4, jobs_per_hour=30, seed=7)


class Counting(Chaos):
    """Random orders, and sums of what it was told."""

    def __init__(self, pause_s: float) -> None:
        super().__init__(11, 300.0, True)
        self._pause_s = pause_s
        self.told: list[float] = [0.0, 0.0]

    def act(self, board: Board, why: str) -> None:
        time.sleep(self._pause_s)
        super().act(board, why)

    def observe(self, segment: Segment) -> None:
        self.told[0] += 1
        self.told[1] += segment.throughput * (segment.ended_s - segment.begun_s)

    def to_dict(self) -> dict[str, Any]:
        return {**super().to_dict(), "told": self.told}

    def restore(self, raw: dict[str, Any]) -> None:
        super().restore(raw)
        self.told = raw["told"]


def outcome(saved: Path | None, pause_s: float = 0.0) -> dict[str, Any]:
    """Everything the run amounts to."""
    world, policy = new_world(SETTINGS), Counting(pause_s)
    run(world, policy, HORIZON_S, observer=policy.observe, saved=saved, save_every_s=0.0)
    return {
        "figures": figures_of(world).to_dict(),
        "told": policy.told,
        "ended": [record.to_dict() for record in world.ended],
        "world": world.to_dict(),
    }


if __name__ == "__main__":
    print(json.dumps(outcome(Path(sys.argv[1]), float(sys.argv[2]))))
