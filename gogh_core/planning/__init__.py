"""From store to problem to plan to cluster: one cycle, and which run plans it."""

from gogh_core.planning.request import Request

__all__ = ["Request"]
