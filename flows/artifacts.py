"""What people see of a cycle, as tables and Markdown: pure functions, no Prefect.

One function for each artifact: `plan_table`, `difference`, `cycle_page`, `contracts_page`,
`energy_page`, `accuracy_page`, `seconds_page`, `orders_table`. `publish` puts them into the UI.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

from flows import charts
from flows.facts import JobFacts
from gogh_core.domain import Placement, Plan, Slot
from gogh_core.planning import Expected, Order, PlanDiff

__all__ = [
    "PAGES",
    "accuracy_page",
    "contracts_page",
    "cycle_page",
    "difference",
    "energy_page",
    "orders_table",
    "places",
    "plan_table",
    "seconds_page",
]

PAGES = {
    "gogh-plan": "the plan",
    "gogh-difference": "difference to what runs now",
    "gogh-energy": "energy and promises",
    "gogh-accuracy": "accuracy of P1 and P2",
    "gogh-contracts": "data contracts",
    "gogh-seconds": "where the seconds went",
    "gogh-cycle": "the cycle",
}
"""Key and title of every artifact."""

LEARN_AND_PLAN = ("retrain", "estimate", "allocate")
_SHOWN = 50
Row = Mapping[str, Any]


def places(slots: Iterable[Slot]) -> str:
    """Such as `s1:0,1 s2:3`; a dash for nowhere."""
    gpus: dict[str, list[int]] = {}
    for slot in slots:
        gpus.setdefault(slot.server, []).extend(slot.gpus)
    found = [f"{server}:{','.join(map(str, sorted(of)))}" for server, of in gpus.items()]
    return " ".join(found) or "–"


def plan_table(
    plan: Plan,
    facts: Mapping[str, JobFacts],
    *,
    expected: Mapping[str, Expected],
    watts: Mapping[str, float],
    why: Mapping[str, str],
) -> list[dict[str, str]]:
    """One row for each job: moves first, then stops, starts, waiting jobs, and those that stay.

    `promised` is the promise (or what the deadline needs), `expected` the estimate with its
    interval, `planned with` the figure the plan counted on and, where it asked for less than the
    promise, what it asked for.
    """
    moved = {move.job: move.reason for move in plan.moves}
    stopped = {stop.job for stop in plan.stops}
    rows = []
    for job, parts in _by_job(plan).items():
        known = facts.get(job)
        before = known.at if known else ()
        what = "moves" if job in moved else "stays" if before else "starts"
        rows.append(
            _row(job, known)
            | {
                "what": what,
                "from": places(before if what == "moves" else ()),
                "to": places(slot for part in parts for slot in part.slots),
                "with": ", ".join(sorted({p.partner for p in parts if p.partner})) or "–",
                **_rates(expected.get(job), known),
                "watts": f"{watts[job]:.0f}" if job in watts else "–",
                "why": (moved.get(job) or why.get(job, "")).removeprefix(f"{job} "),
            }
        )
    for stop in plan.stops:
        told = {"what": "stops", "from": places(stop.source), "why": stop.reason}
        rows.append(_row(stop.job, facts.get(stop.job)) | told)
    for wait in plan.waiting:
        if wait.job not in stopped:
            told = {"what": "waits", "why": wait.reason}
            rows.append(_row(wait.job, facts.get(wait.job)) | told)
    order = {"moves": 0, "stops": 1, "starts": 2, "waits": 3, "stays": 4}
    return sorted(rows, key=lambda row: (order[row["what"]], row["job"]))


def _row(job: str, known: JobFacts | None) -> dict[str, str]:
    return {
        "job": job,
        "what": "",
        "from": "–",
        "to": "–",
        "with": "–",
        "promised": _rate(known.promised, known) if known and known.promised else "best effort",
        "expected": "–",
        "planned with": "–",
        "watts": "–",
        "why": "",
        "class": known.job_class if known else "",
    }


def _rate(value: float, known: JobFacts | None) -> str:
    return f"{value:.3g} {known.unit if known else 'steps/s'}"


def _rates(rates: Expected | None, known: JobFacts | None) -> dict[str, str]:
    """The cells of a placed job's throughputs; the unit stands beside the promise or the mean."""
    if rates is None:
        return {}
    cells = {
        "expected": f"{rates.mean:.3g} ({rates.low:.3g} to {rates.high:.3g})",
        "planned with": f"{rates.counted:.3g}",
    }
    if rates.promised:
        cells["promised"] = _rate(rates.promised, known)
        if rates.required < rates.promised * (1 - 1e-6):
            cells["planned with"] += f", asked for {rates.required:.3g}"
    return cells


def _by_job(plan: Plan) -> dict[str, list[Placement]]:
    found: dict[str, list[Placement]] = {}
    for placement in plan.placements:
        found.setdefault(placement.job, []).append(placement)
    return found


def difference(diff: PlanDiff, *, window_s: float) -> str:
    """What would move, what it draws and costs: Markdown, also shown in the approval form."""
    energy_kwh = diff.planned_w * window_s / 3.6e6
    lines = [
        "## Difference to what runs now",
        "",
        f"**{diff.planned_w:,.0f} W planned** with {_jobs(diff.running_planned)} "
        f"({energy_kwh:.3f} kWh in a window); {diff.now_w:,.0f} W now with "
        f"{_jobs(diff.running_now)}.",
        "",
        *_saving(diff),
        f"{len(diff.starts)} start, {len(diff.moves)} move, {len(diff.stops)} stop, "
        f"{diff.stays} stay, {len(diff.waiting)} wait, {_servers(len(diff.switches))} switched.",
    ]
    cost_j = diff.move_cost_j + diff.switch_cost_j
    if cost_j > 0:
        back = "" if diff.payback_s is None else f", paid back after {diff.payback_s:,.0f} s"
        lines += ["", f"The change itself costs {cost_j / 3.6e6:.3f} kWh{back}."]
    if diff.empty:
        lines += ["", "Nothing would change."]
    lines += _section("Moves", ("job", "from", "to", "why"), [
        (m.job, places(m.source), places(m.target), m.reason) for m in diff.moves
    ])  # fmt: skip
    lines += _section(
        "Stops", ("job", "from", "why"), [(s.job, places(s.source), s.reason) for s in diff.stops]
    )
    lines += _section("Starts", ("job", "to"), [(job, places(to)) for job, to in diff.starts])
    lines += _section("Servers", ("server", "becomes"), [(s.id, s.action) for s in diff.switches])
    lines += _section("Waiting", ("job", "why"), [(w.job, w.reason) for w in diff.waiting])
    return "\n".join(lines) + "\n"


def _saving(diff: PlanDiff) -> list[str]:
    if diff.reference is None:
        return []
    told = "For the same jobs at the same service, on the same estimates, the plan"
    if diff.reference.left_out:
        told = "There is no saving to tell:"
    return [f"{told} **{diff.reference}**.", ""]


def _jobs(count: int) -> str:
    return "1 job" if count == 1 else f"{count} jobs"


def _servers(count: int) -> str:
    return "1 server is" if count == 1 else f"{count} servers are"


def _section(title: str, head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    if not rows:
        return []
    out = ["", f"### {title}", "", *_table(head, rows[:_SHOWN])]
    if len(rows) > _SHOWN:
        out += ["", f"… and {len(rows) - _SHOWN} more."]
    return out


def _table(head: Sequence[str], rows: Iterable[Sequence[Any]]) -> list[str]:
    return [
        f"| {' | '.join(head)} |",
        "|" + "---|" * len(head),
        *(f"| {' | '.join(_cell(value) for value in row)} |" for row in rows),
    ]


def _cell(value: Any) -> str:
    """Text as text: what a job is called must not become Markdown or HTML."""
    text = "–" if value is None else str(value)
    text = text.replace("&", "&amp;").replace("<", "&lt;").replace("\n", " ")
    return re.sub(r"([|\[\]`*_])", r"\\\1", text)


def cycle_page(
    name: str,
    *,
    state: str,
    reason: str,
    degraded: Sequence[str],
    notes: Sequence[str],
    seconds: Mapping[str, float],
    links: Mapping[str, str],
) -> str:
    """The page of one run: what came of it, what was done without, and where to read on."""
    lines = [f"# {_cell(name)}", "", f"State: **{state}**. Reason: {_cell(reason)}."]
    if degraded:
        lines += ["", "## Done without", "", *(f"- ⚠ {_cell(what)}" for what in degraded)]
    if notes:
        lines += ["", "## Notes", "", *(f"- {_cell(note)}" for note in notes[:_SHOWN])]
        if len(notes) > _SHOWN:
            lines.append(f"- … and {len(notes) - _SHOWN} more")
    if seconds:
        lines += ["", _picture("seconds by step", charts.parts("Seconds", seconds, unit="s"))]
    lines += ["", "## Read on", "", *(f"- [{title}]({url})" for title, url in links.items())]
    return "\n".join(lines) + "\n"


def seconds_page(
    seconds: Mapping[str, float], cpu_s: Mapping[str, float], *, process_cpu_s: float
) -> str:
    """Where the cycle's seconds went; `process_cpu_s` is the CPU of the run's process so far."""
    total = sum(seconds.values())
    rows = [
        (step, f"{s:.2f}", f"{s / (total or 1):.0%}", f"{cpu_s.get(step, 0.0):.2f}")
        for step, s in seconds.items()
    ]
    rest_s = max(0.0, process_cpu_s - sum(cpu_s.values()))
    rows.append(("imports, Prefect", "", "", f"{rest_s:.2f}"))
    rows.append(("total", f"{total:.2f}", "100%", f"{process_cpu_s:.2f}"))
    table = _table(("step", "seconds", "share", "CPU seconds"), rows)
    picture = _picture("seconds by step", charts.parts("Seconds", seconds, unit="s"))
    aside_s = process_cpu_s - sum(cpu_s.get(step, 0.0) for step in LEARN_AND_PLAN)
    last = f"Neither planning nor learning: {aside_s:.1f} s of CPU."
    return "\n".join(["## Where the seconds went", "", picture, "", *table, "", last]) + "\n"


def orders_table(orders: Sequence[Order], now: datetime) -> list[dict[str, Any]]:
    """One row for each order, those that stand first, then the newest."""
    listed = sorted(orders, key=lambda order: (not order.stands(now), -order.id))
    return [
        {
            "order": order.id,
            "state": order.state(now),
            "what": order.what,
            "from": f"{order.begins_at:%Y-%m-%d %H:%M}",
            "until": f"{order.ends_at:%Y-%m-%d %H:%M}" if order.ends_at else order.lifting,
            "who": order.who,
            "why": order.reason,
            "lifted by": order.lifted_by or "",
        }
        for order in listed
    ]


def contracts_page(batches: Sequence[Row], held: Sequence[Row]) -> str:
    """Contract results of the newest batches, and what is in quarantine."""
    columns = ("source", "table_name", "status", "rows_in", "rows_clean", "rows_quarantined",
               "rows_duplicate", "rows_late", "detail")  # fmt: skip
    lines = ["## Data contracts", ""]
    if batches:
        lines += _table(
            [name.removeprefix("rows_").replace("_name", "") for name in columns],
            [[row.get(name) for name in columns] for row in batches],
        )
    else:
        lines.append("No batch has been taken in yet.")
    lines += ["", "## In quarantine", ""]
    if held:
        lines += _table(
            ("table", "expectation", "column", "rows held", "example", "since"),
            [[row.get(k) for k in ("table_name", "expectation", "column_name", "held", "example",
                                   "since")] for row in held],
        )  # fmt: skip
    else:
        lines.append("Nothing is held.")
    return "\n".join(lines) + "\n"


def energy_page(windows: Sequence[Row]) -> str:
    """Planned and measured watts and kept promises of the last windows, oldest first."""
    lines = ["## Energy and promises of the last windows", ""]
    if not windows:
        return "\n".join([*lines, "No window has been planned yet."]) + "\n"
    labels = [f"{row['window_start']:%H:%M}" for row in windows]
    svg = charts.bars_and_line(
        "Watts by window",
        labels,
        {
            "planned": [row["planned_w"] for row in windows],
            "measured": [row["measured_w"] for row in windows],
        },
        ("promises kept", [row["kept"] for row in windows]),
        unit="W",
    )
    head = ("window", "planned W", "measured W", "covered", "kWh", "promises kept", "running",
            "waiting")  # fmt: skip
    rows = [
        (
            f"{row['window_start']:%Y-%m-%d %H:%M}" + (" so far" if row["over"] is False else ""),
            _number(row["planned_w"], 0),
            _number(row["measured_w"], 0),
            _share(row["covered"]),
            _number(row["energy_kwh"], 3),
            _share(row["kept"]),
            row["running"],
            row["waiting"],
        )
        for row in reversed(windows)
    ]
    return "\n".join([*lines, _picture("watts by window", svg), "", *_table(head, rows)]) + "\n"


def accuracy_page(windows: Sequence[Row], versions: Sequence[Row]) -> str:
    """Median relative error of each network by window, oldest first, and the versions serving."""
    lines = ["## Accuracy of P1 and P2", ""]
    if windows:
        moments = sorted({row["window_start"] for row in windows})
        found = {(row["window_start"], row["network"]): row["error"] for row in windows}
        networks = sorted({str(row["network"]) for row in windows})
        svg = charts.lines(
            "Median relative error by window",
            [f"{moment:%H:%M}" for moment in moments],
            {name: [_percent(found.get((m, name))) for m in moments] for name in networks},
            unit="%",
        )
        lines += [_picture("error by window", svg), ""]
        totals = _table(
            ("network", "newest error", "cells compared"),
            [
                (name, *_newest([row for row in windows if row["network"] == name]))
                for name in networks
            ],
        )
        lines += totals
    else:
        lines.append("Nothing estimated has been measured yet.")
    if versions:
        lines += ["", "## Versions", ""]
        lines += _table(
            ("network", "version", "created", "promoted", "why"),
            [[row.get(k) for k in ("network", "version", "created_at", "promoted_at", "reason")]
             for row in versions],
        )  # fmt: skip
    return "\n".join(lines) + "\n"


def _newest(rows: Sequence[Row]) -> tuple[str, int]:
    last = max(rows, key=lambda row: row["window_start"])
    return f"{last['error']:.1%}", sum(int(row["cells"]) for row in rows)


def _percent(value: float | None) -> float | None:
    return None if value is None else 100 * value


def _share(value: float | None) -> str:
    return "–" if value is None else f"{value:.1%}"


def _number(value: float | None, digits: int) -> str:
    return "–" if value is None else f"{value:,.{digits}f}"


def _picture(alt: str, svg: str) -> str:
    return f"![{alt}]({charts.data_uri(svg)})"
