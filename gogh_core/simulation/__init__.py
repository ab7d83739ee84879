"""The embedded cluster: a world of GPUs on a virtual clock behind the cluster manager's protocol.

`SimulatedCluster` is the manager, `open_cluster` opens the one of the settings, `compare` runs the
same arrivals under simple policies, `replay` a trace. The ground truth stays inside this room.
"""

from gogh_core.simulation.cluster import SAMPLE_PERIOD_S, SimulatedCluster, open_cluster
from gogh_core.simulation.comparison import Comparison, Outcome, compare
from gogh_core.simulation.metrics import Metrics
from gogh_core.simulation.replay import ReplayReport, read_cluster, read_jobs, replay
from gogh_core.simulation.table import TableTruth

__all__ = [
    "SAMPLE_PERIOD_S",
    "Comparison",
    "Metrics",
    "Outcome",
    "ReplayReport",
    "SimulatedCluster",
    "TableTruth",
    "compare",
    "open_cluster",
    "read_cluster",
    "read_jobs",
    "replay",
]
