"""A real server and worker, a real Chromium: what people see and do in Prefect's UI."""

from __future__ import annotations

import contextlib
import json
import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import (
    Browser,
    FloatRect,
    Locator,
    Page,
    StorageState,
    expect,
    sync_playwright,
)

from gogh_core.cluster import open_manager
from gogh_core.planning import list_cycles
from gogh_core.store import Store
from tests.e2e.stack import Stack, until

pytestmark = pytest.mark.e2e

SCREENSHOTS = Path(__file__).resolve().parents[3] / "docs" / "screenshots"
PATIENCE_MS = 120_000


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    with sync_playwright() as driver:
        found = driver.chromium.launch(
            executable_path="/usr/bin/chromium", args=["--no-sandbox", "--disable-gpu"]
        )
        yield found
        found.close()


def opened(browser: Browser, stack: Stack, signed_in: StorageState | None) -> Page:
    found = browser.new_page(
        viewport={"width": 1360, "height": 900}, base_url=stack.ui, storage_state=signed_in
    )
    found.set_default_timeout(PATIENCE_MS)
    found.set_default_navigation_timeout(PATIENCE_MS)
    expect.set_options(timeout=PATIENCE_MS)
    return found


def sign_in(page: Page, password: str) -> None:
    """Fill in the form that Prefect's UI shows to somebody it does not know."""
    page.goto("/dashboard")
    entry = page.locator("input[type=password]")
    expect(entry).to_be_visible()
    entry.fill(password)
    entry.press("Enter")


@pytest.fixture(scope="session")
def signed_in(browser: Browser, stack: Stack) -> StorageState:
    """What the browser keeps of somebody who signed in by the form."""
    page = opened(browser, stack, None)
    sign_in(page, stack.password)
    expect(page.get_by_text("Flow Runs").first).to_be_visible()
    kept = page.context.storage_state()
    page.close()
    return kept


@pytest.fixture
def page(browser: Browser, stack: Stack, signed_in: StorageState) -> Iterator[Page]:
    found = opened(browser, stack, signed_in)
    yield found
    found.close()


def test_the_ui_shows_nothing_to_somebody_with_a_wrong_password(browser: Browser, stack: Stack):
    page = opened(browser, stack, None)
    sign_in(page, "gogh:guess")
    page.wait_for_timeout(3000)
    expect(page.locator("input[type=password]")).to_be_visible()
    assert page.get_by_text("Flow Runs").count() == 0
    page.close()


def keep(page: Page, name: str, *, height: int = 900) -> None:
    """Keep the picture for the docs, when asked to; otherwise only show that it can be taken."""
    page.wait_for_timeout(500)
    if os.environ.get("GOGH_SCREENSHOTS"):
        SCREENSHOTS.mkdir(parents=True, exist_ok=True)
        clip: FloatRect = {"x": 0, "y": 0, "width": 1360, "height": height}
        page.screenshot(path=SCREENSHOTS / f"{name}.png", clip=clip)
    else:
        assert len(page.screenshot()) > 10_000


def field(page: Page, label: str) -> Locator:
    """One field of a form, by its label."""
    head = page.locator(".schema-form-property__label", has_text=label)
    return page.locator(".schema-form-property", has=head).last


def scheduled_run(stack: Stack) -> dict:
    """The newest run that the cadence began and that made a plan."""

    def done():
        runs = [r for r in stack.runs("reallocation") if r["auto_scheduled"]]
        return next(
            (
                r
                for r in runs
                if r["state_type"] == "COMPLETED" and "gogh-plan" in stack.artifacts(r["id"])
            ),
            None,
        )

    return until(done, "a scheduled run that makes a plan", patience_s=420)


def test_the_scheduled_run_happens_by_itself_and_its_name_tells(stack: Stack, page: Page):
    run = scheduled_run(stack)
    assert run["name"].startswith("plan ")
    assert " jobs" in run["name"]
    page.goto(f"/runs/flow-run/{run['id']}")
    expect(page.get_by_text(run["name"]).first).to_be_visible()
    page.wait_for_timeout(3000)  # the timeline is drawn slowly
    keep(page, "run", height=570)  # without the log: it names folders of this machine
    page.goto("/dashboard")
    expect(page.get_by_text("Flow Runs").first).to_be_visible()
    page.wait_for_timeout(1500)
    keep(page, "dashboard")


def test_the_plans_artifact_opens_and_shows_the_jobs(stack: Stack, page: Page):
    run = scheduled_run(stack)
    artifact = stack.artifacts(run["id"])["gogh-plan"]
    full = stack.api.call("GET", f"/artifacts/{artifact['id']}")
    rows = json.loads(full["data"])
    assert rows, "the embedded cluster has jobs"
    page.goto(f"/artifacts/artifact/{artifact['id']}")
    for row in rows[:5]:
        expect(page.get_by_text(row["job"], exact=True).first).to_be_visible()
    keep(page, "plan")


@pytest.mark.parametrize("key", ["gogh-energy", "gogh-cycle"])
def test_charts_are_really_drawn(stack: Stack, page: Page, key: str):
    artifact = stack.artifacts(scheduled_run(stack)["id"])[key]
    page.goto(f"/artifacts/artifact/{artifact['id']}")
    picture = page.locator("article img, .markdown-renderer img").first
    expect(picture).to_be_visible()
    assert picture.evaluate("image => image.complete && image.naturalWidth") > 100
    keep(page, key.removeprefix("gogh-"))


def test_the_pages_of_a_cycle_are_linked(stack: Stack, page: Page):
    artifact = stack.artifacts(scheduled_run(stack)["id"])["gogh-cycle"]
    page.goto(f"/artifacts/artifact/{artifact['id']}")
    link = page.get_by_role("link", name="the plan", exact=True)
    with page.context.expect_page() as opened:  # the UI opens links of a page beside it
        link.click()
    other = opened.value
    expect(other.get_by_text("gogh-plan").first).to_be_visible()
    other.close()


def test_the_replan_form_is_filled_in_and_submitted(stack: Stack, page: Page):
    scheduled_run(stack)
    deployment = stack.api.deployment("replan/replan")
    page.goto(f"/deployments/deployment/{deployment['id']}/run")
    reason = field(page, "Reason").locator("textarea")
    expect(reason).to_be_visible()
    reason.fill("heat wave")
    expect(page.get_by_text("nothing is sent").first).to_be_visible()
    field(page, "Dry run").get_by_role("switch").click()
    keep(page, "replan-form")
    gap = field(page, "Gap")
    gap.get_by_role("button", name="float").click()
    gap.locator("input").fill("7")
    submit = page.get_by_role("button", name="Submit")
    submit.click()
    expect(page.get_by_text("7 is not valid").first).to_be_visible()
    assert _replans(stack, "heat wave") == [], "a wrong value is refused in the form"
    gap.locator("input").fill("0.02")
    gap.locator("input").press("Tab")

    def submitted() -> list[dict]:
        if page.url.endswith("/run"):  # the first click may only take the old complaint away
            submit.click()
            page.wait_for_timeout(5000)
        return _replans(stack, "heat wave")

    until(submitted, "the run of the form")
    run = stack.api.wait(_replans(stack, "heat wave")[0]["id"], timeout_s=300)
    assert run["state_type"] == "COMPLETED", run["state"]["message"]
    assert run["name"].startswith("dry run ")
    asked = run["parameters"]["request"]
    assert (asked["dry_run"], asked["gap"]) == (True, 0.02)
    assert "gogh-difference" in stack.artifacts(run["id"])


def _replans(stack: Stack, reason: str) -> list[dict]:
    runs = stack.runs("replan")
    return [r for r in runs if r["parameters"].get("request", {}).get("reason") == reason]


GUARDS = (
    "[guards]\napprove_moves = 0\napprove_stops = 0\napprove_stop_share = 0\n"
    "min_runtime_s = 0\ncooldown_s = 0\n"
)
"""Every plan that moves or stops somebody is over the threshold, and anybody may be moved."""


def busiest(stack: Stack) -> str:
    """The server with most movable jobs: to drain it, somebody has to move or stop."""
    state = open_manager(stack.settings, Store(stack.settings)).state()
    users = Counter(
        slot.server for status in state.jobs if status.job.movable for slot in status.slots
    )
    return users.most_common(1)[0][0]


@pytest.mark.parametrize(("answer", "state"), [("approve", "emitted"), ("reject", "rejected")])
def test_a_plan_over_the_guards_threshold_waits_for_the_form(
    stack: Stack, page: Page, answer: str, state: str
):
    with stack.quiet(), contextlib.ExitStack() as guarded:
        before = stack.run("replan", {"request": {"reason": "somebody runs"}})
        assert before["state_type"] == "COMPLETED", before["state"]["message"]
        guarded.enter_context(stack.configured(GUARDS))
        asked = {"request": {"reason": f"to {answer}", "drain": [busiest(stack)]}}
        ident = stack.api.run("replan/replan", asked)["id"]

        def record() -> dict:
            return stack.api.call("GET", f"/flow_runs/{ident}")

        until(lambda: record()["state_type"] not in ("SCHEDULED", "PENDING", "RUNNING"), "a pause")
        assert record()["state_type"] == "PAUSED", record()["state"]["message"]
        assert record()["name"].endswith(" · waits for approval")
        for _ in range(5):  # SQLite may be locked just then; a person would press again
            answer_form(page, ident, answer)
            with contextlib.suppress(AssertionError):
                until(lambda: record()["state_type"] != "PAUSED", "a resumed run", patience_s=30)
                break
        run = stack.api.wait(ident, timeout_s=240)
        assert run["state_type"] == "COMPLETED", run["state"]["message"]
    cycles = list_cycles(Store(stack.settings), rows=50)
    mine = next(cycle for cycle in cycles if cycle["reason"] == f"to {answer}")
    assert mine["state"] == state
    assert run["name"].endswith(
        " · approved by Ada" if state == "emitted" else " · rejected by Ada"
    )


def answer_form(page: Page, ident: str, answer: str) -> None:
    """Open the paused run, fill in its form and submit it."""
    page.goto(f"/runs/flow-run/{ident}")
    page.get_by_role("button", name="Resume").click()
    expect(page.get_by_text("Difference to what runs now").first).to_be_visible()
    expect(page.get_by_text("more than 0").first).to_be_visible()  # moves or stops
    if answer == "reject":  # submitting the form as it opens approves
        field(page, "Reject").get_by_role("switch").click()
    field(page, "Your name").locator("textarea").fill("Ada")
    keep(page, f"approval-{answer}")
    page.get_by_role("button", name="Submit").click()
