"""`gogh plan`, `gogh verify`, `gogh explain`: problem in, plan out, checked and explained."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Annotated, Any

import typer

from gogh_core.errors import InvalidInput

__all__ = ["register"]


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command("plan")(plan_command)
    app.command("verify")(verify_command)
    app.command("explain")(explain_command)


Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def plan_command(
    problem: Annotated[Path, typer.Argument(help="A gogh.problem/1 file.")],
    out: Annotated[Path | None, typer.Option(help="Where the plan goes (- prints it).")] = None,
    solver: Annotated[str, typer.Option(help="glpk or highs.")] = "glpk",
    gap: Annotated[float, typer.Option(help="Stop when the plan is proven this near.")] = 0.01,
    time_limit: Annotated[float, typer.Option(help="Seconds for the whole call.")] = 60.0,
    as_json: Json = False,
) -> None:
    """Make a plan for a problem: no database, no cluster."""
    from gogh_core.allocation import load_problem, plan

    if solver not in ("glpk", "highs"):
        raise InvalidInput(f"solver is {solver!r}", todo="use glpk or highs")
    if not 0 <= gap < float("inf") or not 0 < time_limit < float("inf"):
        raise InvalidInput(
            f"gap is {gap}, the time limit {time_limit}", todo="give a gap >= 0 and seconds > 0"
        )
    if out is not None and out.is_dir():
        raise InvalidInput("is a directory", where=str(out), todo="name a file with --out")
    if out is not None and str(out) != "-" and not out.parent.is_dir():
        raise InvalidInput("cannot be written: there is no such folder", where=str(out))
    made = plan(load_problem(problem), solver=solver, gap=gap, time_limit_s=time_limit)  # type: ignore[arg-type]
    text = made.to_json()
    if out is not None and str(out) != "-":
        _write(out, text)
    if as_json or str(out) == "-":
        typer.echo(text)
    else:
        typer.echo(_summary(made))
        for note in made.notes:
            typer.echo(f"  {note}")
    if made.status == "infeasible":
        raise typer.Exit(1)


def _summary(plan: Any) -> str:
    if plan.status == "infeasible":
        return "infeasible: no plan keeps all of the following"
    draws_w = float(plan.spent["power_w"])
    return (
        f"{plan.status}: draws {draws_w:.1f} W, penalties {plan.cost_w - draws_w:.1f}, "
        f"bound of the sum {plan.bound_w:.1f}, gap {plan.gap:.2%}, "
        f"{len({p.job for p in plan.placements})} jobs run, {len(plan.waiting)} wait, "
        f"{len(plan.moves)} move, {len(plan.stops)} stop, {plan.solve_s:.2f} s ({plan.solver})"
    )


def _write(path: Path, text: str) -> None:
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        temporary.write_text(text + "\n", encoding="utf-8")
        temporary.replace(path)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        reason = error.strerror or str(error)
        raise InvalidInput(f"cannot be written: {reason}", where=str(path)) from error


def _load_plan(path: Path) -> Any:
    from gogh_core.domain import Plan

    try:
        raw = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        reason = error.strerror or str(error)
        raise InvalidInput(f"cannot be read: {reason}", where=str(path)) from error
    except (ValueError, RecursionError) as error:
        raise InvalidInput(f"it is no JSON: {error}", where=str(path)) from error
    return Plan.from_dict(raw, where=str(path))


def verify_command(
    problem: Annotated[Path, typer.Argument(help="A gogh.problem/1 file.")],
    plan: Annotated[Path, typer.Argument(help="A gogh.plan/1 file.")],
    as_json: Json = False,
) -> None:
    """Check a plan against its problem; every violation is listed."""
    from gogh_core.allocation import load_problem, violations_of

    violations = violations_of(load_problem(problem), _load_plan(plan))
    if as_json:
        told = {
            "good": not violations,
            "violations": [violation.text for violation in violations],
            "rules": [violation.rule for violation in violations],
        }
        typer.echo(json.dumps(told))
    else:
        for violation in violations:
            typer.echo(violation.text)
        if not violations:
            typer.echo("the plan is good: every rule, the cost and the bound hold")
    if violations:
        raise typer.Exit(1)


def _running() -> tuple[Path, Path]:
    """Problem and plan of the plan that runs now."""
    from gogh_core.planning import running_files
    from gogh_core.settings import load
    from gogh_core.store import Store

    settings = load()
    return running_files(settings, Store(settings))


def explain_command(
    job: Annotated[str, typer.Argument(help="The job's id.")],
    problem: Annotated[Path | None, typer.Option(help="A gogh.problem/1 file.")] = None,
    plan: Annotated[Path | None, typer.Option(help="A gogh.plan/1 file.")] = None,
    time_limit: Annotated[
        float, typer.Option(help="Seconds for planning alternatives again; 0: prices only.")
    ] = 20.0,
    as_json: Json = False,
) -> None:
    """Say why a job is where it is, what the alternatives were and what they would have cost."""
    from gogh_core.allocation import explain, load_problem

    if (problem is None) != (plan is None):
        raise InvalidInput("give both --problem and --plan", todo="or none, for the running plan")
    if problem is None or plan is None:
        problem, plan = _running()
    if not 0 <= time_limit < float("inf"):
        raise InvalidInput(f"the time limit is {time_limit}", todo="give seconds from 0")
    made = _load_plan(plan)
    told = explain(load_problem(problem), made, job, time_limit_s=time_limit)
    if as_json:
        facts = {name: made.versions.get(name) for name in ("objective", "price")}
        typer.echo(json.dumps({**told.to_dict(), **facts}))
    else:
        for line in [*told.lines(), *_objective(made)]:
            typer.echo(line)


def _objective(plan: Any) -> list[str]:
    """What the plan minimised; plans that were not made by a cycle do not say."""
    name, price = plan.versions.get("objective"), plan.versions.get("price")
    if name is None:
        return []
    if not isinstance(price, dict) or not isinstance(price.get("value"), int | float):
        return [f"The plan's objective is {name}."]
    return [f"The plan's objective is {name}, at {price['value']:.3g} {price.get('unit', '')}."]
