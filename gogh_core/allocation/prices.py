"""Dual values of the master's rows, by what they are the price of."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from gogh_core.allocation.master import Master
from gogh_core.allocation.ways import Way

__all__ = ["Prices"]

Floats = npt.NDArray[np.float64]


@dataclass(slots=True)
class Prices:
    """Dual values by what they are the price of; all but `groups` are >= 0."""

    groups: Floats
    gpus: Floats
    room: Floats
    servers: Floats
    occupied: Floats
    cells: Floats
    quotas: Floats
    moves: float
    power: float
    empty: Floats = field(default_factory=lambda: np.zeros(0))
    """By kind: price of a server in use without a job, where it draws less than one that is off."""
    slots: dict[tuple[int, int, int], float] = field(default_factory=dict)
    ties: dict[tuple[Any, ...], float] = field(default_factory=dict)
    selves: dict[tuple[int, int, int], float] = field(default_factory=dict)
    """(row, realm, group): price of filling a class with itself."""
    counts: dict[int, float] = field(default_factory=dict)
    """Price of using an option whose count is branched on; of either sign."""
    ways: dict[tuple[int, Way], float] = field(default_factory=dict)
    """Price of a group's way that is branched on; of either sign."""

    @classmethod
    def of(cls, master: Master, duals: Floats) -> Prices:
        """From the duals of the master's rows."""
        c = master.c
        occupied = np.zeros(len(c.kinds))
        for k, row in master.occ_rows.items():
            occupied[k] = -duals[row]
        prices = cls(
            duals[master.job_rows],
            -duals[master.cap_rows] if master.cap_rows else np.zeros(0),
            -duals[master.room_rows] if master.room_rows else np.zeros(0),
            -duals[master.use_rows] if master.use_rows else np.zeros(0),
            occupied,
            -duals[master.cell_rows] if master.cell_rows else np.zeros(0),
            -duals[list(master.quota_rows.values())] if master.quota_rows else np.zeros(0),
            -float(duals[master.moves_row]) if master.moves_row >= 0 else 0.0,
            -float(duals[master.power_row]) if master.power_row >= 0 else 0.0,
        )
        prices.empty = np.zeros(len(c.kinds))
        for k, row in master.empty_rows.items():
            prices.empty[k] = -duals[row]
        for option_row, (row, _) in master.count_rows.items():
            prices.counts[option_row] = -float(duals[row])
        for way, (_, row, _) in master.way_rows.items():
            prices.ways[way] = -float(duals[row])
        for key, row in master.program.row_of.items():
            if key[0] == "slot" and key[3] >= 0:
                prices.slots[key[1], key[2], key[3]] = float(duals[row])
            elif key[0] == "tie":
                prices.ties[key[1:]] = float(duals[row])
            elif key[0] == "self" and duals[row] < 0:
                prices.selves[key[1], key[2], key[3]] = -float(duals[row])
        return prices
