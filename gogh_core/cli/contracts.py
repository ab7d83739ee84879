"""`gogh contracts list | check | page` and `gogh validate`: data contracts, tried and shown."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gogh_core import settings as all_settings
from gogh_core.cli.common import AsJson, Now, cluster_time, echo_json, in_utc
from gogh_core.errors import BatchRefused, InvalidInput

if TYPE_CHECKING:
    from gogh_core.contracts import Verdict

__all__ = ["register"]


def register(app: typer.Typer) -> None:
    """Add the commands of this module."""
    app.command("validate")(validate)
    contracts = typer.Typer(
        help="Data contracts: list, try one on a file, the page of results.",
        no_args_is_help=True,
        add_completion=False,
    )
    contracts.command("list")(list_suites)
    contracts.command("check")(check)
    contracts.command("page")(write_page)
    app.add_typer(contracts, name="contracts")


def validate(
    minutes: Annotated[float, typer.Option(min=1, help="How far back.")] = 60,
    now: Now = None,
    as_json: AsJson = False,
) -> None:
    """Run every contract on what is stored; nothing is changed."""
    from gogh_core.contracts import load_suites
    from gogh_core.store import Store
    from gogh_core.telemetry import try_on_store

    settings = all_settings.load()
    store = Store(settings)
    moment = in_utc(now) if now else cluster_time(settings, store)
    since = moment - timedelta(minutes=minutes)
    results: dict[str, Any] = {}
    failed = 0
    for table, suite in load_suites(settings).items():
        verdict = try_on_store(store, suite, since=since, now=moment)
        if verdict is None:
            results[table] = {"rows": 0}
            if not as_json:
                typer.echo(f"{table}: nothing stored since {since:%Y-%m-%d %H:%M}Z")
            continue
        results[table] = _verdict(verdict)
        failed += results[table]["rows_failed"] + len(results[table]["refused"])
        if not as_json:
            _print_verdict(table, verdict)
    if as_json:
        echo_json(results)
    if failed:
        raise BatchRefused(f"{failed} stored rows break their contract")


def _verdict(verdict: Verdict) -> dict[str, Any]:
    rows = verdict.results[0].rows if verdict.results else 0
    return {
        "rows": rows,
        "rows_failed": len(set(verdict.failures["row_id"].to_pylist())),
        "refused": list(verdict.refused.values()),
        "expectations": [
            {
                "says": result.check.says,
                "level": result.check.level,
                "column": result.check.column,
                "success": result.outcome.success,
                "failed": result.outcome.failed,
                "observed": result.outcome.observed,
            }
            for result in verdict.results
        ],
    }


def _print_verdict(name: str, verdict: Verdict) -> None:
    said = _verdict(verdict)
    typer.echo(f"{name}: {said['rows']} rows, {said['rows_failed']} break the contract")
    for entry in said["expectations"]:
        if not entry["success"]:
            word = "warning" if entry["level"] == "warn" else "failed"
            count = entry["failed"] or entry["observed"]
            typer.echo(f"  {word}: {entry['says']} ({count})")
    for why in said["refused"]:
        typer.echo(f"  refused: {why}")


def list_suites(as_json: AsJson = False) -> None:
    """Every contract: its table, its file, how many expectations at which level."""
    from gogh_core.contracts import load_suites

    suites = load_suites(all_settings.load())
    rows = [
        {
            "table": table,
            "file": suite.where,
            "refuse": sum(check.level == "refuse" for check in suite.checks),
            "warn": sum(check.level == "warn" for check in suite.checks),
            "sha256": suite.sha256,
        }
        for table, suite in suites.items()
    ]
    if as_json:
        echo_json(rows)
        return
    for row in rows:
        typer.echo(
            f"{row['table']:15} {row['refuse']:3} refuse {row['warn']:3} warn  {row['file']}"
        )


def check(
    file: Annotated[Path, typer.Argument(help="A suite (.json), or a file of rows.")],
    suite_file: Annotated[
        Path | None, typer.Option("--suite", help="A suite of your own to try on it.")
    ] = None,
    table: Annotated[str | None, typer.Option(help="What the rows are, when not clear.")] = None,
    now: Now = None,
    as_json: AsJson = False,
) -> None:
    """See whether a suite can be run, or try a contract on a file; nothing is stored."""
    import pandas as pd

    from gogh_core.contracts import load_suite, load_suites, run_checks
    from gogh_core.store import Store
    from gogh_core.telemetry import table_of, try_on_file

    settings = all_settings.load()
    if file.suffix == ".json" and suite_file is None:
        suite = load_suite(file)
        columns = {name for check in suite.checks for name in check.columns}
        run_checks(
            suite.checks,
            pd.DataFrame({"row_id": [], **{c: [] for c in columns}}),
            where=suite.where,
        )
        if as_json:
            echo_json({"table": suite.table, "expectations": len(suite.checks)})
        else:
            typer.echo(f"{file}: {len(suite.checks)} expectations on {suite.table}")
        return
    if suite_file is not None:
        suite = load_suite(suite_file)
    else:
        name = table or table_of(file.absolute())
        suites = load_suites(settings)
        if name not in suites:
            raise InvalidInput(f"which contract is {file.name} for?", todo="say it with --table")
        suite = suites[name]
    store = Store(settings)
    moment = in_utc(now) if now else cluster_time(settings, store)
    verdict = try_on_file(store, settings, suite, file, now=moment)
    if as_json:
        echo_json(_verdict(verdict))
    else:
        _print_verdict(str(file), verdict)
    if len(verdict.failures) or verdict.refused:
        raise typer.Exit(1)


def write_page(
    out: Annotated[Path, typer.Option(help="The HTML file.")] = Path("contracts.html"),
    runs: Annotated[int, typer.Option(min=1, help="So many runs.")] = 50,
    as_json: AsJson = False,
) -> None:
    """The last runs of all contracts as one page that a browser opens."""
    from gogh_core.contracts import page
    from gogh_core.store import Store

    store = Store(all_settings.load())
    out.write_text(page(store, limit=runs), encoding="utf-8")
    if as_json:
        echo_json({"page": str(out)})
    else:
        typer.echo(str(out))
