"""`gogh bench agent` and `gogh bench progress`: what is taken from the servers and jobs measured.

The agent samples every GPU through NVML into files as always, only without waiting between two
samples; its CPU time for one sample is its share of a core at one sample a second. Where there is
no GPU, the stub of the tests stands in (`docs/telemetry.md` says how); it answers at once, so what
a real driver takes comes on top. A step of a job is called as a training loop does.
"""

from __future__ import annotations

import json
import statistics
import tempfile
import time
from pathlib import Path
from typing import Annotated, Any

import typer

__all__ = ["register_bench"]

AGENT_SHARE = 0.01
STEP_US = 10.0

_Repeats = Annotated[int, typer.Option(min=1, help="Times it is measured.")]
_AsJson = Annotated[bool, typer.Option("--json", help="As JSON.")]


def register_bench(app: typer.Typer) -> None:
    """Add `gogh bench agent` and `gogh bench progress`."""
    app.command("agent")(agent)
    app.command("progress")(progress)


def _show(figures: dict[str, Any], text: str, *, as_json: bool, good: bool) -> None:
    typer.echo(json.dumps(figures, indent=2) if as_json else text)
    if not good:
        raise typer.Exit(1)


def agent(
    samples: Annotated[int, typer.Option(min=10, help="Samples each time.")] = 300,
    repeats: _Repeats = 5,
    as_json: _AsJson = False,
) -> None:
    """CPU time of one sample of all GPUs of this server, as a share of one core."""
    from gogh_core.telemetry import Agent, Devices

    devices = Devices()
    shares: list[float] = []
    with tempfile.TemporaryDirectory(prefix="gogh-bench-") as folder:
        for number in range(repeats):
            running = Agent(Path(folder) / str(number), devices, server="bench")
            running.once(time.time())  # what a GPU does not have is found out once
            began_s, used_s = time.time(), time.process_time()
            for second in range(1, samples + 1):
                running.once(began_s + second)
            running.close()
            shares.append((time.process_time() - used_s) / samples)
    gpus = devices.count
    devices.close()
    share = statistics.median(shares)
    _show(
        {"gpus": gpus, "samples": samples, "share_of_a_core": shares, "median": share},
        f"agent: {share:.3%} of one core for {gpus} GPUs at one sample a second "
        f"({min(shares):.3%} to {max(shares):.3%} in {repeats} times {samples} samples; "
        f"asked: under {AGENT_SHARE:.0%})",
        as_json=as_json,
        good=share < AGENT_SHARE,
    )


def progress(
    steps: Annotated[int, typer.Option(min=1000, help="Calls each time.")] = 500_000,
    repeats: _Repeats = 5,
    as_json: _AsJson = False,
) -> None:
    """Microseconds of one `Progress.step()` while its thread writes to the spool."""
    from gogh_core.progress import Progress

    costs: list[float] = []
    with tempfile.TemporaryDirectory(prefix="gogh-bench-") as folder:
        for number in range(repeats):
            with Progress(f"bench{number}", folder, period_s=0.05) as counted:
                began = time.perf_counter()
                for _ in range(steps):
                    counted.step()
                costs.append((time.perf_counter() - began) / steps * 1e6)
    cost = statistics.median(costs)
    _show(
        {"steps": steps, "microseconds": costs, "median": cost},
        f"progress: {cost:.3f} microseconds a step, loop included "
        f"({min(costs):.3f} to {max(costs):.3f} in {repeats} times {steps:,} steps; "
        f"asked: under {STEP_US:.0f})",
        as_json=as_json,
        good=cost < STEP_US,
    )
