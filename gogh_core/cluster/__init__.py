"""Plans that really happen: the manager protocol, its managers, and carrying a plan out."""

from gogh_core.cluster.manager import Capabilities, ClusterManager, PlanTaker, open_manager

__all__ = ["Capabilities", "ClusterManager", "PlanTaker", "open_manager"]
