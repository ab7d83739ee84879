"""`gogh bench replay`: how fast the event-driven simulation is, and how it grows with its size.

The same kind of crowd (load about 1, first come first served, idle servers off) on a sixteenth, a
quarter and the whole of the cluster. What an event costs is compared between the sizes, and with
working everything out anew, which is what each event would cost without bookkeeping.
"""

from __future__ import annotations

import json
import time
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from gogh_core.simulation import Board, Run

__all__ = ["register_bench"]

_GPUS_PER_SERVER = 8
_PROMISED_S = 60.0
_SHARES = (16, 4, 1)
_NEWEST_FIRST = ("h100", "a100", "v100", "t4", "p100", "k80")


@dataclass(frozen=True, slots=True)
class Measured:
    """One size."""

    jobs: int
    gpus: int
    cpu_s: float
    events: int
    decisions: int
    finished: int
    waiting: float
    """Jobs that waited, on average while jobs came."""
    most_waiting: int
    rebuild_ms: float
    """Working everything out anew, in the middle of the run."""

    @property
    def event_us(self) -> float:
        """Microseconds of one event, the policy's share included."""
        return 1e6 * self.cpu_s / self.events


class _FirstCome:
    """In order of arrival on the newest free GPUs, alone; the first that does not fit blocks."""

    name = "fcfs"
    every_s: float | None = None
    on_events = True

    def __init__(self) -> None:
        self.most_waiting = 0

    def act(self, board: Board, why: str) -> None:
        """Place from the front of the queue; switch idle servers off."""
        from gogh_core.domain import Slot

        self.most_waiting = max(self.most_waiting, board.waiting_count)
        for entry in board.waiting:
            count = entry.job.gpu_counts[0]
            fitting = (
                machine
                for gpu_type in _NEWEST_FIRST
                if board.idle.get(gpu_type, 0) >= count
                for machine in board.room(gpu_type, count)
            )
            machine = next(fitting, None)
            if machine is None:
                break
            board.place(entry.id, (Slot(machine.server.id, tuple(machine.free()[:count])),))
        board.idle_off()


def register_bench(app: typer.Typer) -> None:
    """Add `gogh bench replay`."""
    app.command("replay")(bench)


def bench(
    jobs: Annotated[int, typer.Option(help="Jobs of the largest run.", min=160)] = 10_000,
    gpus: Annotated[int, typer.Option(help="GPUs of the largest run.", min=768)] = 1024,
    load: Annotated[float, typer.Option(help="Work that comes over what can be done.")] = 1.0,
    seed: Annotated[int, typer.Option(help="Another seed: other jobs.", min=0)] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="As JSON.")] = False,
) -> None:
    """The event-driven simulation: events per second, and its growth with size."""
    found = [
        measure(jobs // share, gpus // _GPUS_PER_SERVER // share, load=load, seed=seed)
        for share in _SHARES
    ]
    ok = found[-1].cpu_s < _PROMISED_S
    if as_json:
        rows = [
            {**asdict(row), "event_us": row.event_us, "rebuild_over_event": _rebuild_ratio(row)}
            for row in found
        ]
        growth = found[-1].event_us / found[0].event_us
        typer.echo(json.dumps({"runs": rows, "event_growth": growth, "ok": ok}))
    else:
        _show(found)
    if not ok:
        raise typer.Exit(1)


def measure(jobs: int, servers: int, *, load: float = 1.0, seed: int = 0) -> Measured:
    """One run to the end of its last job."""
    from gogh_core.simulation import Run, crowd

    world, last_s = crowd(jobs, servers, load=load, seed=seed)
    policy = _FirstCome()
    run = Run(world, policy)
    cpu_s = _timed(run, last_s / 2)
    began = time.process_time()
    world.rebuild()
    rebuild_ms = 1e3 * (time.process_time() - began)
    cpu_s += _timed(run, last_s)
    waiting = world.totals.waiting_s / world.now_s
    cpu_s += _timed(run, float("inf"))
    return Measured(
        jobs,
        servers * _GPUS_PER_SERVER,
        cpu_s,
        run.events,
        run.decisions,
        world.totals.finished,
        waiting,
        policy.most_waiting,
        rebuild_ms,
    )


def _timed(run: Run, until_s: float) -> float:
    began = time.process_time()
    run.until(until_s, to_the_end=True)
    return time.process_time() - began


def _rebuild_ratio(row: Measured) -> float:
    return 1e3 * row.rebuild_ms / row.event_us


def _show(found: list[Measured]) -> None:
    head = ("jobs", "GPUs", "CPU s", "events/s", "us/event", "growth", "rebuild", "waiting, max")
    typer.echo("".join(f"{word:>14}" for word in head))
    for row in found:
        cells = (
            f"{row.jobs}",
            f"{row.gpus}",
            f"{row.cpu_s:.2f}",
            f"{row.events / row.cpu_s:.0f}",
            f"{row.event_us:.0f}",
            f"{row.event_us / found[0].event_us:.2f}",
            f"{_rebuild_ratio(row):.0f} events",
            f"{row.waiting:.0f}, {row.most_waiting}",
        )
        typer.echo("".join(f"{cell:>14}" for cell in cells))
    typer.echo(f"{found[-1].finished} of {found[-1].jobs} jobs of the largest run finished")
