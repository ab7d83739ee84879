"""What a policy may believe of speeds and watts: here the true means, for oracles and for rivals.

A policy sees no more than `board.Rates`. What it is given there is decided by whoever builds it.
"""

from __future__ import annotations

from gogh_core.simulation.board import Guess
from gogh_core.simulation.truth import Truth

__all__ = ["TrueRates"]


class TrueRates:
    """The true mean throughputs and watts; how fast a particular GPU is stays unknown."""

    def __init__(self, truth: Truth) -> None:
        self._truth = truth
        self._known: dict[tuple[str, int, tuple[str, ...]], Guess | None] = {}

    def run(self, gpu_type: str, gpus: int, classes: tuple[str, ...]) -> Guess | None:
        """One or two classes on `gpus` GPUs of a type; None: they do not run there."""
        key = (gpu_type, gpus, classes)
        if key not in self._known:
            run = self._truth.run(gpu_type, gpus, classes)
            self._known[key] = None if run is None else Guess(run.throughput, run.power_w)
        return self._known[key]
