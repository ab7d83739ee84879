"""Sites of their own: plan files, the webhook, and the published schema."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import jsonschema
import pytest
from pydantic import SecretStr

from gogh_core.cluster import carry_out, state_to_dict
from gogh_core.cluster.files import FilesManager, write_whole
from gogh_core.cluster.webhook import post, read_answer, signature
from gogh_core.domain import Plan
from gogh_core.errors import ActionFailed, ClusterUnavailable, InvalidPlan
from gogh_core.settings import ClusterSettings, GuardSettings, Settings, WebhookSettings
from tests.cluster.fake import NOW, Fake, at, plan, running, server, waiting
from tests.conftest import PROJECT

SECRET = "whsec_YmV0d2VlbiB1cyBhbmQgbm9ib2R5IGVsc2U="


@pytest.fixture
def fake() -> Fake:
    return Fake.of([server("s1"), server("s2")], [running("a", at("s1", 0)), waiting("b")])


@pytest.fixture
def site(settings: Settings, fake: Fake) -> Settings:
    """A site that has written its state, and may be acted on."""
    settings = settings.model_copy(
        update={"cluster": ClusterSettings(manager="files", mode="act"), "guards": GuardSettings()}
    )
    tell(settings, fake)
    return settings


def tell(settings: Settings, fake: Fake) -> None:
    write_whole(settings.plans / "state.json", json.dumps(state_to_dict(fake.state())))


@pytest.fixture
def wanted() -> Plan:
    return plan(
        "p1/é",
        places={"b": at("s1", 1)},
        moves=[("a", at("s1", 0), at("s2", 0))],
    )


def carry(wanted: Plan, fake: Fake, settings: Settings, store):
    return carry_out(
        wanted,
        fake.state(),
        manager=FilesManager(settings),
        store=store,
        settings=settings,
        cycle_id="c",
        now=NOW,
        sleep=lambda _: None,
    )


def schema() -> dict:
    return json.loads((PROJECT / "docs" / "plan.schema.json").read_text())


class TestFiles:
    def test_a_plan_appears_whole_and_is_confirmed_when_the_site_says_so(
        self, site, fake, wanted, store
    ) -> None:
        basis = fake.state()
        report = carry(wanted, fake, site, store)
        assert report.state == "delivered"
        assert {record.state for record in report.records} == {"sent"}
        files = [p for p in site.plans.iterdir() if p.name != "state.json"]
        assert [path.name for path in files] == ["p1__.json"]
        assert Plan.from_dict(json.loads(files[0].read_text())) == wanted
        fake.move("a", at("s2", 0), partner=None, power_limit_w=None, key="x/1")
        fake.place("b", at("s1", 1), partner=None, power_limit_w=None, key="x/2")
        tell(site, fake)
        report = carry_out(
            wanted,
            basis,
            manager=FilesManager(site),
            store=store,
            settings=site,
            cycle_id="c",
            now=NOW,
        )
        assert report.state == "done"
        assert {record.state for record in report.records} == {"confirmed"}

    def test_a_site_that_refuses_is_believed(self, site, fake, wanted, store) -> None:
        answer = {"plan": "p1/é", "accepted": False, "message": "not at night"}
        write_whole(site.plans / "p1__.ack.json", json.dumps(answer))
        report = carry(wanted, fake, site, store)
        assert {record.state for record in report.records} == {"failed"}
        assert "not at night" in report.records[0].reason

    def test_guards_keep_the_whole_file_back(self, site, fake, wanted, store) -> None:
        strict = site.model_copy(update={"guards": GuardSettings(max_moves=0)})
        report = carry(wanted, fake, strict, store)
        assert report.state == "abandoned"
        assert not list(site.plans.glob("p1*"))

    def test_a_site_without_a_state_cannot_be_planned_for(self, settings) -> None:
        with pytest.raises(ClusterUnavailable, match="the site writes it"):
            FilesManager(settings).state()

    @pytest.mark.parametrize(
        "text", ["", "{", '{"schema": "x"}', '{"schema":"gogh.state/1"}', "[]"]
    )
    def test_half_a_state_is_no_state(self, settings, text) -> None:
        settings.plans.mkdir(parents=True)
        (settings.plans / "state.json").write_text(text)
        with pytest.raises(ClusterUnavailable):
            FilesManager(settings).state()

    def test_half_of_a_plan_file_is_refused_with_every_fault(self, wanted) -> None:
        whole = wanted.to_dict()
        half = {key: whole[key] for key in ("schema", "id", "placements")}
        half["placements"] = [{"job": "a"}]
        with pytest.raises(InvalidPlan, match="cost_w is missing"):
            Plan.from_dict(half)
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate(half, schema())
        text = wanted.to_json()
        with pytest.raises(ValueError, match=r"Expecting|Unterminated"):
            json.loads(text[: len(text) // 2])


class TestSchema:
    def test_it_is_a_schema(self) -> None:
        jsonschema.Draft202012Validator.check_schema(schema())

    def test_plans_keep_it(self, wanted) -> None:
        jsonschema.validate(json.loads(wanted.to_json()), schema())

    @pytest.mark.parametrize(
        ("key", "value"),
        [
            ("schema", "gogh.plan/2"),
            ("status", "perfect"),
            ("cost_w", "12"),
            ("servers", [{"id": "s1", "action": "explode"}]),
            (
                "placements",
                [{"job": "a", "slots": [{"server": "s1", "gpus": []}], "throughput": 1}],
            ),
            (
                "placements",
                [{"job": "a", "slots": [{"server": "s1", "gpus": [-1]}], "throughput": 1}],
            ),
        ],
    )
    def test_what_is_no_plan_breaks_it(self, wanted, key, value) -> None:
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate({**wanted.to_dict(), key: value}, schema())


Answer = Callable[[], tuple[int, bytes]]


class Endpoint:
    """A site's endpoint that gives the answers it is told to, the last one again and again."""

    def __init__(self) -> None:
        self.answers: list[tuple[int, bytes]] = [(200, b'{"accepted": true, "message": "ok"}')]
        self.requests: list[tuple[dict[str, str], bytes]] = []
        endpoint = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                endpoint.requests.append((dict(self.headers), body))
                answers = endpoint.answers
                status, text = answers.pop(0) if len(answers) > 1 else answers[0]
                self.send_response(status)
                self.send_header("Content-Length", str(len(text)))
                self.end_headers()
                self.wfile.write(text)

            def log_message(self, *args: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}/plans"
        threading.Thread(target=self.server.serve_forever, args=(0.02,), daemon=True).start()


@pytest.fixture
def endpoint() -> Iterator[Endpoint]:
    found = Endpoint()
    yield found
    found.server.shutdown()
    found.server.server_close()


def hook(endpoint: Endpoint, **more) -> WebhookSettings:
    return WebhookSettings(url=endpoint.url, secret=SecretStr(SECRET), timeout_s=5, **more)


class TestWebhook:
    def test_a_plan_is_posted_signed_and_acknowledged(
        self, site, fake, wanted, store, endpoint
    ) -> None:
        site = site.model_copy(update={"webhook": hook(endpoint)})
        report = carry(wanted, fake, site, store)
        assert report.state == "delivered"
        assert report.detail == "accepted: ok"
        headers, body = endpoint.requests[0]
        assert json.loads(body)["id"] == wanted.id
        ident, at = headers["webhook-id"], headers["webhook-timestamp"]
        assert headers["webhook-signature"] == signature(SECRET, ident, at, body)
        assert SECRET not in str(headers)

    def test_the_key_is_the_same_each_time(self, endpoint) -> None:
        for _ in range(2):
            post(hook(endpoint), "{}", "p1", sleep=lambda _: None)
        keys = {headers["Idempotency-Key"] for headers, _ in endpoint.requests}
        assert len(keys) == 1

    def test_failures_are_tried_again_with_growing_waits(self, endpoint) -> None:
        good = endpoint.answers[0]
        endpoint.answers = [(503, b""), (429, b""), good]
        waits: list[float] = []
        assert post(hook(endpoint), "{}", "p1", sleep=waits.append) == "accepted: ok"
        assert waits == sorted(waits)
        assert len(endpoint.requests) == 3
        assert len({headers["Idempotency-Key"] for headers, _ in endpoint.requests}) == 1

    def test_it_gives_up_after_so_many(self, endpoint) -> None:
        endpoint.answers = [(500, b"")]
        with pytest.raises(ClusterUnavailable, match="answered 500"):
            post(hook(endpoint, retries=2), "{}", "p1", sleep=lambda _: None)
        assert len(endpoint.requests) == 3

    def test_a_refusal_is_not_tried_again(self, endpoint) -> None:
        endpoint.answers = [(403, b"no")]
        with pytest.raises(ActionFailed, match="answered 403"):
            post(hook(endpoint), "{}", "p1", sleep=lambda _: None)
        assert len(endpoint.requests) == 1

    @pytest.mark.parametrize(
        "nonsense", [b"", b"ok", b"<html>", b"[]", b"null", b'{"accepted": "yes"}', b"\xff\xfe" * 9]
    )
    def test_nonsense_is_no_acknowledgement(self, nonsense) -> None:
        with pytest.raises(ClusterUnavailable):
            read_answer(nonsense, where="there")

    def test_an_endpoint_that_answers_nonsense_leaves_the_plan_for_later(
        self, site, fake, wanted, store, endpoint
    ) -> None:
        endpoint.answers = [(200, b"<html>welcome</html>")]
        site = site.model_copy(update={"webhook": hook(endpoint, retries=0)})
        report = carry(wanted, fake, site, store)
        assert report.state == "interrupted"
        assert "no acknowledgement" in report.detail
        assert {record.state for record in report.records} == {"sent"}

    def test_nobody_listens(self) -> None:
        nobody = WebhookSettings(
            url="http://127.0.0.1:9/", secret=SecretStr(SECRET), timeout_s=1, retries=0
        )
        with pytest.raises(ClusterUnavailable, match="gave no answer"):
            post(nobody, "{}", "p1")


def test_the_newest_documents_are_kept_and_the_oldest_go(
    site: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gogh_core.cluster.files.KEEP", 3)
    manager = FilesManager(site)
    for number in range(6):
        manager.deliver(plan(f"p{number}"), key=str(number))
        os.utime(site.plans / f"p{number}.json", (number, number))
        write_whole(site.plans / f"p{number}.ack.json", json.dumps({"plan": f"p{number}"}))
    manager.deliver(plan("p6"), key="6")
    left = sorted(path.name for path in site.plans.iterdir())
    assert left == ["p4.ack.json", "p4.json", "p5.ack.json", "p5.json", "p6.json", "state.json"]
