"""What can be reached from an object, and what no policy may reach: the truth, the future."""

from __future__ import annotations

import gc
import types

from gogh_core.simulation.arrivals import Arrivals, Demand, ListedSource
from gogh_core.simulation.knowledge import TrueRates
from gogh_core.simulation.records import JobRecord, ServerRecord
from gogh_core.simulation.table import TableTruth
from gogh_core.simulation.truth import PhysicalTruth
from gogh_core.simulation.world import World

HIDDEN = (
    World,
    TableTruth,
    PhysicalTruth,
    Arrivals,
    ListedSource,
    Demand,
    JobRecord,
    ServerRecord,
    TrueRates,
)


def reached(root: object) -> list[object]:
    """Everything that can be reached from an object without going through a module's names."""
    seen: dict[int, object] = {}
    todo = [root]
    while todo:
        found = todo.pop()
        if id(found) in seen or isinstance(found, type | types.ModuleType):
            continue
        seen[id(found)] = found
        if isinstance(found, types.FunctionType):
            todo += [found.__closure__, found.__defaults__, found.__kwdefaults__]
        else:
            todo += gc.get_referents(found)
    return list(seen.values())
