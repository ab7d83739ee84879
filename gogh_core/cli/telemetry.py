"""`gogh ingest`, `validate`, `agent`, `quarantine`, `contracts`: telemetry and its contracts."""

from __future__ import annotations

import json
import signal
import sys
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gogh_core import settings as all_settings
from gogh_core.errors import BatchRefused, InvalidInput

if TYPE_CHECKING:
    from gogh_core.contracts import Verdict

__all__ = ["register"]

_AsJson = Annotated[bool, typer.Option("--json", help="As JSON.")]
_Ids = Annotated[list[str], typer.Argument(help="Ids, or how they begin (6 letters or more).")]


def register(app: typer.Typer) -> None:
    """Add the commands of this module."""
    app.command("ingest")(ingest)
    app.command("validate")(validate)
    app.command("agent")(agent)
    quarantine = typer.Typer(
        help="Rows that broke their contract: list, show, readmit, drop.",
        no_args_is_help=True,
        add_completion=False,
    )
    quarantine.command("list")(quarantine_list)
    quarantine.command("show")(quarantine_show)
    quarantine.command("readmit")(quarantine_readmit)
    quarantine.command("drop")(quarantine_drop)
    app.add_typer(quarantine, name="quarantine")
    contracts = typer.Typer(
        help="Data contracts: list, try one on a file, the page of results.",
        no_args_is_help=True,
        add_completion=False,
    )
    contracts.command("list")(contracts_list)
    contracts.command("check")(contracts_check)
    contracts.command("page")(contracts_page)
    app.add_typer(contracts, name="contracts")


def _echo(value: Any) -> None:
    typer.echo(json.dumps(value, indent=2, default=str))


def ingest(
    now: Annotated[datetime | None, typer.Option(help="The time it is; the clock if none.")] = None,
    records: Annotated[bool, typer.Option(help="Ask the cluster manager as well.")] = True,
    as_json: _AsJson = False,
) -> None:
    """Take in everything new: records of the cluster manager, the spool, Prometheus."""
    from gogh_core.cluster import open_manager
    from gogh_core.store import Store
    from gogh_core.telemetry import ingest as take_in

    settings = all_settings.load()
    store = Store(settings)
    store.migrate()
    state = open_manager(settings, store).state() if records else None
    moment = _utc(now) if now else (state.at if state else store.clock())
    tell = (lambda _: None) if as_json else (lambda text: typer.echo(text, err=True))
    report = take_in(store, settings, now=moment, state=state, tell=tell)
    if as_json:
        _echo(report.to_dict())
    else:
        for source in report.sources:
            typer.echo(
                f"{source.name:10} {source.rows_in:9} rows: {source.rows_clean} clean, "
                f"{source.rows_quarantined} quarantined, {source.rows_duplicate} duplicate, "
                f"{source.rows_late} late"
            )
            for warning in source.warnings:
                typer.echo(f"{'':10} warning: {warning}")
        for server, skew_s in sorted((report.skews or {}).items()):
            typer.echo(f"clock of {server} is {skew_s:+.1f} s off; corrected")
        if report.files_removed:
            typer.echo(f"{report.files_removed} files removed that were taken in long ago")
        typer.echo(f"{report.observations} observations computed")
    if not report.ok:
        raise BatchRefused("; ".join(report.faults), todo="`gogh quarantine list` shows the rows")


def _utc(moment: datetime) -> datetime:
    from datetime import UTC

    return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)


def validate(
    minutes: Annotated[float, typer.Option(min=1, help="How far back.")] = 60,
    now: Annotated[datetime | None, typer.Option(help="The time it is; the clock if none.")] = None,
    as_json: _AsJson = False,
) -> None:
    """Run every contract on what is stored; nothing is changed."""
    from gogh_core.contracts import load_suites
    from gogh_core.store import Store
    from gogh_core.telemetry import try_on_store

    settings = all_settings.load()
    store = Store(settings)
    moment = _utc(now) if now else store.clock()
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
        _echo(results)
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


def agent(
    server: Annotated[str | None, typer.Option(help="Its name; the host's if none.")] = None,
    spool: Annotated[Path | None, typer.Option(help="Where; the settings' spool if none.")] = None,
    samples: Annotated[int | None, typer.Option(min=1, help="Stop after so many.")] = None,
) -> None:
    """On a GPU server: sample every GPU once a second into the spool."""
    from gogh_core.telemetry import Agent, Devices

    settings = all_settings.load()
    stopped: list[int] = []
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda got, _: stopped.append(got))

    def tell(text: str) -> None:
        print(f"gogh agent: {text}", file=sys.stderr, flush=True)

    devices = Devices(tell)
    running = Agent(
        spool or settings.spool,
        devices,
        server=server,
        limit_mb=settings.telemetry.spool_limit_mb,
        period_s=settings.telemetry.sample_period_s,
        tell=tell,
    )
    written = running.run(lambda: bool(stopped), samples=samples)
    devices.close()
    tell(f"{written} rows written")


def quarantine_list(
    table: Annotated[str | None, typer.Option(help="Of one table only.")] = None,
    batch: Annotated[str | None, typer.Option(help="Of one batch only.")] = None,
    status: Annotated[str, typer.Option(help="held, readmitted, dropped or all.")] = "held",
    limit: Annotated[int, typer.Option(min=1)] = 50,
    as_json: _AsJson = False,
) -> None:
    """What broke its contract, with the expectation, the value, the source and the line."""
    from gogh_core.store import Store
    from gogh_core.telemetry import held

    if status not in ("held", "readmitted", "dropped", "all"):
        raise InvalidInput(f"{status!r} is no status", todo="held, readmitted, dropped or all")
    rows = held(Store(all_settings.load()), table=table, batch=batch, status=status, limit=limit)
    if as_json:
        _echo(rows)
        return
    for row in rows:
        value = "" if row["value"] is None else f" = {row['value']}"
        typer.echo(
            f"{row['quarantine_id'][:10]} {row['table_name']} {row['source']}:{row['line']} "
            f"{row['column_name'] or ''}{value}: {row['reason']}"
        )
    typer.echo(f"{len(rows)} rows", err=True)


def quarantine_show(
    quarantine_id: Annotated[str, typer.Argument(help="Its id, or how it begins.")],
    as_json: _AsJson = False,
) -> None:
    """Everything known of one row."""
    from gogh_core.store import Store
    from gogh_core.telemetry import show

    row = show(Store(all_settings.load()), quarantine_id)
    if as_json:
        _echo(row)
        return
    for name, value in row.items():
        typer.echo(f"{name:15} {value}")


def quarantine_readmit(
    ids: _Ids,
    given: Annotated[
        list[str] | None, typer.Option("--set", "-s", help="A repaired value, as column=value.")
    ] = None,
    as_json: _AsJson = False,
) -> None:
    """Run the contract again on rows, repaired or not, and take those that now hold it."""
    from gogh_core.store import Store
    from gogh_core.telemetry import readmit

    repaired: dict[str, str] = {}
    for entry in given or []:
        key, equals, value = entry.partition("=")
        if not equals:
            raise InvalidInput(f"{entry!r} is not column=value", where="--set")
        repaired[key.strip()] = value.strip()
    settings = all_settings.load()
    store = Store(settings)
    done = readmit(store, settings, ids, now=store.clock(), repaired=repaired)
    if as_json:
        _echo({"readmitted": done.readmitted, "still_held": done.still_held})
    else:
        typer.echo(f"{len(done.readmitted)} readmitted, {len(done.still_held)} still held")
        for held_id, why in done.still_held.items():
            typer.echo(f"  {held_id[:10]}: {why}")
    if done.still_held:
        raise typer.Exit(1)


def quarantine_drop(ids: _Ids, as_json: _AsJson = False) -> None:
    """Settle rows without using them; they stay in the quarantine as dropped."""
    from gogh_core.store import Store
    from gogh_core.telemetry import drop

    store = Store(all_settings.load())
    count = drop(store, ids, now=store.clock())
    if not count:
        raise InvalidInput("no such row is held", todo="`gogh quarantine list` shows what is")
    if as_json:
        _echo({"dropped": count})
    else:
        typer.echo(f"{count} dropped")


def contracts_list(as_json: _AsJson = False) -> None:
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
        _echo(rows)
        return
    for row in rows:
        typer.echo(
            f"{row['table']:15} {row['refuse']:3} refuse {row['warn']:3} warn  {row['file']}"
        )


def contracts_check(
    file: Annotated[Path, typer.Argument(help="A suite (.json), or a file of rows.")],
    suite_file: Annotated[
        Path | None, typer.Option("--suite", help="A suite of your own to try on it.")
    ] = None,
    table: Annotated[str | None, typer.Option(help="What the rows are, when not clear.")] = None,
    now: Annotated[datetime | None, typer.Option(help="The time it is; the clock if none.")] = None,
    as_json: _AsJson = False,
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
            _echo({"table": suite.table, "expectations": len(suite.checks)})
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
    moment = _utc(now) if now else store.clock()
    verdict = try_on_file(store, settings, suite, file, now=moment)
    if as_json:
        _echo(_verdict(verdict))
    else:
        _print_verdict(str(file), verdict)
    if len(verdict.failures) or verdict.refused:
        raise typer.Exit(1)


def contracts_page(
    out: Annotated[Path, typer.Option(help="The HTML file.")] = Path("contracts.html"),
    runs: Annotated[int, typer.Option(min=1, help="So many runs.")] = 50,
    as_json: _AsJson = False,
) -> None:
    """The last runs of all contracts as one page that a browser opens."""
    from gogh_core.contracts import page
    from gogh_core.store import Store

    store = Store(all_settings.load())
    out.write_text(page(store, limit=runs), encoding="utf-8")
    if as_json:
        _echo({"page": str(out)})
    else:
        typer.echo(str(out))
