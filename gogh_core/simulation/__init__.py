"""The embedded cluster: a world of GPUs on a virtual clock behind the cluster manager's protocol.

`SimulatedCluster` is the manager, `open_cluster` opens the one of the settings, `compare` runs the
same arrivals under other policies, `replay` a trace. `Run` goes from event to event under a
policy, `figures_of` tells what came of it, `crowd` draws a world of any size. The ground truth
stays inside this room.
"""

from gogh_core.simulation.board import Board, Policy, Rates
from gogh_core.simulation.building import new_world
from gogh_core.simulation.cluster import SAMPLE_PERIOD_S, SimulatedCluster, open_cluster
from gogh_core.simulation.comparison import Comparison, Outcome, compare
from gogh_core.simulation.crowd import crowd
from gogh_core.simulation.engine import Observer, Run
from gogh_core.simulation.engine import run as run_world
from gogh_core.simulation.figures import Figures, figures_of
from gogh_core.simulation.knowledge import TrueRates
from gogh_core.simulation.metrics import Metrics
from gogh_core.simulation.policies import POLICIES
from gogh_core.simulation.policies import make as make_policy
from gogh_core.simulation.replay import (
    LeftOut,
    ReplayReport,
    TraceWorld,
    read_cluster,
    read_jobs,
    replay,
    trace_world,
)
from gogh_core.simulation.table import TableTruth
from gogh_core.simulation.world import World

__all__ = [
    "POLICIES",
    "SAMPLE_PERIOD_S",
    "Board",
    "Comparison",
    "Figures",
    "LeftOut",
    "Metrics",
    "Observer",
    "Outcome",
    "Policy",
    "Rates",
    "ReplayReport",
    "Run",
    "SimulatedCluster",
    "TableTruth",
    "TraceWorld",
    "TrueRates",
    "World",
    "compare",
    "crowd",
    "figures_of",
    "make_policy",
    "new_world",
    "open_cluster",
    "read_cluster",
    "read_jobs",
    "replay",
    "run_world",
    "trace_world",
]
