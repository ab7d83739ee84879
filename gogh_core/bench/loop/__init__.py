"""`gogh bench loop`: policies x cases x seeds in the closed loop, at equal work.

`cases` makes the worlds, `runs` runs one policy in one of them and keeps its figures in a file,
`many` runs many of them (processes here, or a Dask cluster through Prefect), `page` makes the
table, the plot and the page.
"""

from gogh_core.bench.loop.command import register_bench

__all__ = ["register_bench"]
