"""The command `gogh bench loop`."""

from __future__ import annotations

import json
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import typer

from gogh_core.errors import InvalidInput

__all__ = ["register_bench"]

_RIVALS = (
    "fcfs,fcfs_easy,smallest,las,sjf,srtf,lucid,sia,gavel,gavel_packed,best_fit_window,best_fit"
)
_MOST_SEEDS = 10_000
_ALL = f"{_RIVALS},best_fit_tuned,gogh_window,gogh_true,gogh"


def register_bench(app: typer.Typer) -> None:
    """Add `gogh bench loop`."""
    app.command("loop")(loop)


def loop(
    *,
    cases: Annotated[
        str, typer.Option(help="embedded, makespan, philly@0.9, … with commas; `traces`: all.")
    ] = "embedded",
    policies: Annotated[str, typer.Option(help="Policies, with commas.")] = _ALL,
    seeds: Annotated[str, typer.Option(help="Such as 200-209 or 1,5,7.")] = "200-209",
    windows: Annotated[int, typer.Option(min=1, help="Length of a run.")] = 24,
    window_s: Annotated[float, typer.Option(min=10, help="Seconds of a window.")] = 300.0,
    workers: Annotated[int, typer.Option(min=1, help="Runs at once.")] = 1,
    dask: Annotated[
        str | None, typer.Option(help="`local`, or a Dask scheduler's address; needs gogh[dask].")
    ] = None,
    keep: Annotated[
        Path, typer.Option(help="Folder of results; runs found there are not repeated.")
    ] = Path("loop-results"),
    out: Annotated[Path | None, typer.Option(help="Write the page (Markdown) and plots.")] = None,
    setting: Annotated[
        list[str] | None, typer.Option(help="name=number of [allocation], for GOGH.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="As JSON.")] = False,
) -> None:
    """Policies x cases x seeds in the closed loop: energy per work, promises, and what was lost."""
    from gogh_core.bench.loop import many, page
    from gogh_core.bench.loop.runs import shown

    asked = _asked(cases, policies, seeds, windows, window_s, setting or [])
    results: list[dict[str, Any]] = []

    def tell(done: dict[str, Any]) -> None:
        results.append(done)
        print(f"{len(results)}/{len(asked)} {shown(done)}", file=sys.stderr, flush=True)

    if dask is not None:
        address = None if dask == "local" else dask
        many.on_dask(asked, keep, workers=workers, address=address, report=tell)
    else:
        for done in many.run_many(asked, keep, workers=workers):
            tell(done)
    order = {(one.case, one.policy, one.seed): i for i, one in enumerate(asked)}
    results.sort(key=lambda raw: order[raw["case"], raw["policy"], raw["seed"]])
    if as_json:
        typer.echo(json.dumps(results))
        return
    found = page.scores(results)
    plots: dict[str, str] = {}
    if out is not None:
        for case in dict.fromkeys(score.case for score in found):
            name = f"loop-{case.replace('@', '-')}.png"
            page.plot([score for score in found if score.case == case], out.parent / name)
            plots[case] = name
    command = f"gogh bench loop --cases {cases} --seeds {seeds} --windows {windows}"
    text = page.page(found, command=command, day=f"{datetime.now(UTC):%Y-%m-%d}", plots=plots)
    if out is not None:
        out.write_text(text, encoding="utf-8")
    typer.echo(text)


def _asked(
    cases: str, policies: str, seeds: str, windows: int, window_s: float, settings: list[str]
) -> list[Any]:
    from gogh_core.bench.loop.cases import LOADS, TRACES, case_of
    from gogh_core.bench.loop.runs import GOGH, Asked
    from gogh_core.settings import load
    from gogh_core.simulation import POLICIES

    names = [
        part
        for name in cases.split(",")
        for part in (
            [f"{trace}@{load:g}" for trace in TRACES for load in LOADS]
            if name == "traces"
            else [name.strip()]
        )
    ]
    chosen = [name.strip() for name in policies.split(",")]
    for name in chosen:
        if name not in POLICIES and name not in GOGH:
            known = ", ".join([*POLICIES, *GOGH])
            raise InvalidInput(f"policy {name!r} is not known", todo=f"known: {known}")
    options = tuple(_number(text) for text in settings)
    load(home=Path("nowhere"), allocation=dict(options))
    numbers = _seeds(seeds)
    return [
        Asked(case_of(case, windows=windows, window_s=window_s).name, policy, seed, windows,
              window_s, options if policy in GOGH else ())
        for case in names for seed in numbers for policy in chosen
    ]  # fmt: skip


def _seeds(text: str) -> list[int]:
    found: list[int] = []
    for part in text.split(","):
        first, dash, last = part.strip().partition("-")
        if not first.isdecimal() or (dash and not last.isdecimal()):
            raise InvalidInput(f"seeds {text!r} cannot be read", todo="write 200-209 or 1,5,7")
        numbers = range(int(first), int(last if dash else first) + 1)
        if not 0 < len(numbers) <= _MOST_SEEDS:
            raise InvalidInput(
                f"seeds {text!r}: {len(numbers)} of them", todo=f"ask for 1 to {_MOST_SEEDS}"
            )
        found += numbers
    return list(dict.fromkeys(found))


def _number(text: str) -> tuple[str, float]:
    name, _, value = text.partition("=")
    try:
        return name, float(value)
    except ValueError as error:
        raise InvalidInput(f"setting {text!r} cannot be read", todo="write name=number") from error
