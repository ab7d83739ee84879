"""GOGH: a planner for clusters of mixed GPU generations.

Data walks one way: telemetry, store, contracts, estimation, allocation, cluster. Each room is
one package with one front door (its `__init__`); `docs/architecture.md` has the map.
"""

__all__ = ["__version__"]

__version__ = "0.1.0"
