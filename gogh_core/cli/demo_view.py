"""What one sees while `gogh demo` runs: a live table, or plain lines where there is no terminal."""

from __future__ import annotations

from collections import Counter
from datetime import datetime
from types import TracebackType
from typing import TYPE_CHECKING, Any, Protocol, Self

from gogh_core.cli.demo_report import NAMES, frontier, sentence

if TYPE_CHECKING:
    from rich.table import Table

    from gogh_core.domain import ClusterState
    from gogh_core.settings import Settings

__all__ = ["Plain", "Silent", "View", "open_view"]

_TITLES = {
    "state": "asking the cluster",
    "ingest": "taking telemetry in, checking its contracts",
    "retrain": "retraining P2",
    "estimate": "estimating every job on every GPU type",
    "allocate": "solving the integer program",
    "store": "storing the plan",
    "emit": "carrying the plan out",
    "publish": "publishing the snapshot",
}


class View(Protocol):
    """Somebody who watches the demo."""

    def __enter__(self) -> Self: ...
    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...
    def begin(self, state: ClusterState, settings: Settings, cycles: int) -> None:
        """The cluster as it is before the first window."""
        ...

    def cycle(self, number: int, cycles: int, now: datetime) -> None:
        """A cycle begins."""
        ...

    def step(self, name: str, seconds: float) -> None:
        """A step begins (0 s) or has ended."""
        ...

    def row(self, row: dict[str, Any]) -> None:
        """A window is over."""
        ...

    def end(self, found: dict[str, Any]) -> None:
        """Everything is known."""
        ...


class Silent:
    """Nobody watches."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        return None

    def begin(self, state: ClusterState, settings: Settings, cycles: int) -> None:
        """Nothing to show."""

    def cycle(self, number: int, cycles: int, now: datetime) -> None:
        """Nothing to show."""

    def step(self, name: str, seconds: float) -> None:
        """Nothing to show."""

    def row(self, row: dict[str, Any]) -> None:
        """Nothing to show."""

    def end(self, found: dict[str, Any]) -> None:
        """Nothing to show."""


class Plain(Silent):
    """One line for each thing that happened, and the tables at the end."""

    def __init__(self) -> None:
        from rich.console import Console

        self.console = Console(width=None if Console().is_terminal else 132, highlight=False)
        self.rows: list[dict[str, Any]] = []

    def begin(self, state: ClusterState, settings: Settings, cycles: int) -> None:
        """The cluster in one line."""
        self.console.print(_cluster_line(state))
        self.console.print(_work_line(state, settings, cycles), style="dim")

    def row(self, row: dict[str, Any]) -> None:
        """A window in one line."""
        self.rows.append(row)
        if not self.console.is_terminal:
            self.console.print(
                f"{row['name']} · kept {row['slo_attainment']:.0%} · "
                f"{sum(row['seconds'].values()):.1f} s"
            )

    def end(self, found: dict[str, Any]) -> None:
        """The tables."""
        if not self.console.is_terminal:
            self.console.print()
            self.console.print(windows_table(self.rows))
        self.console.print()
        self.console.print(comparison_table(found))
        self.console.print(
            "* no other is better in both energy for work and promises kept", style="dim"
        )
        self.console.print()
        self.console.print(f"[bold green]{sentence(found)}.[/]")
        self.console.print(
            f"{found['seconds']:.0f} s in all. Report: {found['report']}", soft_wrap=True
        )
        self.console.print(
            f"Look around: GOGH_HOME={found['home']} gogh query (or sql, cycles, replan --dry-run)",
            style="dim",
            soft_wrap=True,
        )


class Live(Plain):
    """A table that grows while the demo runs, and what is being done now."""

    def __init__(self) -> None:
        super().__init__()
        from rich.live import Live as RichLive
        from rich.spinner import Spinner

        self._spinner = Spinner("dots", text="")
        self._where = ""
        self._live = RichLive(console=self.console, refresh_per_second=8, transient=False)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()

    def begin(self, state: ClusterState, settings: Settings, cycles: int) -> None:
        """The cluster in one line; then the table opens."""
        super().begin(state, settings, cycles)
        self.console.print()
        self._live.start()

    def cycle(self, number: int, cycles: int, now: datetime) -> None:
        """Say which cycle it is."""
        self._where = f"cycle {number + 1} of {cycles}, {now:%H:%M} on the cluster's clock"
        self._draw()

    def step(self, name: str, seconds: float) -> None:
        """Say what is being done."""
        if seconds == 0:
            title = _TITLES.get(name, name)
            self._spinner.update(text=f"[dim]{self._where}:[/] {title}")
            self._draw()

    def row(self, row: dict[str, Any]) -> None:
        """One more row."""
        super().row(row)
        self._draw()

    def end(self, found: dict[str, Any]) -> None:
        """Close the table and show the rest."""
        self._live.update(windows_table(self.rows))
        self._live.stop()
        super().end(found)

    def _draw(self) -> None:
        from rich.console import Group

        parts = [windows_table(self.rows), self._spinner] if self.rows else [self._spinner]
        self._live.update(Group(*parts))


def open_view() -> View:
    """The live view, for a terminal."""
    return Live()


def _cluster_line(state: ClusterState) -> str:
    gpus: Counter[str] = Counter()
    for status in state.servers:
        gpus[status.server.gpu_type] += status.server.gpus
    kinds = ", ".join(f"{count} {kind}" for kind, count in sorted(gpus.items()))
    return f"[bold]An embedded cluster of {len(state.servers)} servers[/]: {kinds}"


def _work_line(state: ClusterState, settings: Settings, cycles: int) -> str:
    minutes = settings.cycle.window_s / 60
    return (
        f"{len(state.jobs)} jobs wait, {settings.simulation.jobs_per_hour:g} more come each hour; "
        f"{cycles} windows of {minutes:g} minutes are planned"
    )


def windows_table(rows: list[dict[str, Any]]) -> Table:
    """One row for each window."""
    from rich.table import Table

    table = Table(box=None, header_style="bold", pad_edge=False, padding=(0, 2, 0, 0))
    for name in ("window", "jobs", "wait", "moves", "W planned", "measured", "Wh", "kept"):
        table.add_column(name, justify="left" if name == "window" else "right", no_wrap=True)
    for name in ("error", "gap", "ingest", "learn", "plan", "emit"):
        table.add_column(name, justify="right", no_wrap=True, style="dim")
    for row in rows:
        seconds = row["seconds"]
        table.add_row(
            row["window"] + (" ⚠" if row["degraded"] else ""),
            str(row["running"]),
            str(row["waiting"]),
            str(row["moves"]),
            _watts(row["planned_w"]),
            _watts(row["measured_w"]),
            f"{row['energy_wh']:,.0f}",
            f"{row['slo_attainment']:.0%}",
            "–" if row["estimate_error"] is None else f"{row['estimate_error']:.0%}",
            "–" if row["gap"] is None else f"{row['gap']:.1%}",
            _seconds(seconds, "state", "ingest"),
            _seconds(seconds, "retrain", "estimate"),
            _seconds(seconds, "allocate"),
            _seconds(seconds, "store", "emit", "publish"),
        )
    return table


def comparison_table(found: dict[str, Any]) -> Table:
    """The same jobs under each scheduler."""
    from rich.table import Table

    table = Table(box=None, header_style="bold", pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column("the same jobs under", no_wrap=True)
    for name in (
        "J per s of work", "Wh", "mean W", "promises kept", "running", "waiting", "finished",
    ):  # fmt: skip
        table.add_column(name, justify="right", no_wrap=True)
    best = frontier(found)
    for name, figures in found["comparison"].items():
        table.add_row(
            NAMES.get(name, name) + (" *" if name in best else ""),
            _watts(figures["j_per_work_s"]),
            f"{figures['energy_wh']:,.0f}",
            _watts(figures["mean_w"]),
            f"{figures['slo_attainment']:.1%}",
            f"{figures['running']:.1f}",
            f"{figures['waiting']:.1f}",
            str(figures["finished"]),
            style="bold" if name == "gogh" else "",
        )
    return table


def _watts(value: float | None) -> str:
    return "–" if value is None else f"{value:,.0f}"


def _seconds(seconds: dict[str, float], *names: str) -> str:
    return f"{sum(seconds.get(name, 0.0) for name in names):.1f} s"
