"""The embedded cluster: a world of GPUs on a virtual clock behind the cluster manager's protocol.

`SimulatedCluster` is the manager, `open_cluster` opens the one of the settings, `compare` runs the
same arrivals under simple policies, `replay` a trace. The ground truth stays inside this room.
"""

from gogh_core.simulation.cluster import SAMPLE_PERIOD_S, SimulatedCluster, open_cluster
from gogh_core.simulation.comparison import Comparison, Outcome, compare
from gogh_core.simulation.metrics import Metrics

__all__ = [
    "SAMPLE_PERIOD_S",
    "Comparison",
    "Metrics",
    "Outcome",
    "SimulatedCluster",
    "compare",
    "open_cluster",
]
