"""How a world is put together from settings."""

from __future__ import annotations

from gogh_core.domain import utc
from gogh_core.settings import SimulationSettings
from gogh_core.simulation.arrivals import Arrivals
from gogh_core.simulation.classes import CLASSES
from gogh_core.simulation.site import default_servers
from gogh_core.simulation.table import TableTruth
from gogh_core.simulation.truth import PhysicalTruth, Truth
from gogh_core.simulation.world import World

__all__ = ["new_world"]


def new_world(settings: SimulationSettings, *, seed: int | None = None) -> World:
    """A world at the beginning of its clock, with its own crowd of jobs."""
    seed = settings.seed if seed is None else seed
    truth: Truth
    if settings.throughput_table is None:
        truth = PhysicalTruth(CLASSES, seed)
        servers = default_servers(settings.servers)
    else:
        table = TableTruth.read(settings.throughput_table, settings.power_table)
        truth = table
        servers = default_servers(settings.servers, table.gpu_types)
    start = utc(settings.start)
    source = Arrivals(
        truth,
        [server.gpu_type for server in servers],
        start=start,
        seed=seed,
        servers=len(servers),
        per_hour=settings.jobs_per_hour,
    )
    return World(servers, truth, source, start=start, seed=seed)
