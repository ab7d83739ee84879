"""Curves: what is read from which bytes, what counts at which moment, and where they come from."""

from __future__ import annotations

import io
import json
import math
import socket
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta, timezone
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gogh_core.errors import InvalidInput
from gogh_core.planning import Request, aim_of
from gogh_core.planning.curves import Curve, read_curve, zone_of
from gogh_core.planning.objectives import Outlook
from gogh_core.settings import Settings, load
from tests.planning.conftest import NOW

HOUR = timedelta(hours=1)
COST = Request(reason="test", objective="cost")


def read(text: str | bytes, kind: str = "price", **how: Any) -> Curve:
    raw = text.encode() if isinstance(text, str) else text
    return read_curve(raw, kind, source="prices.csv", **how)  # type: ignore[arg-type]


def at(curve: Curve, moment: datetime) -> float:
    return float(curve.between(moment, moment + timedelta(seconds=1))[1][0])


def day(hour: float, *, days: int = 0) -> datetime:
    return datetime(2026, 1, 5, tzinfo=UTC) + timedelta(days=days, hours=hour)


# -- reading -----------------------------------------------------------------------------------


def test_csv_json_and_parquet_say_the_same() -> None:
    rows = [{"at": day(hour), "value": 0.1 + hour / 100} for hour in range(24)]
    texts = [{"at": row["at"].isoformat(), "value": row["value"]} for row in rows]  # type: ignore[attr-defined]
    sink = io.BytesIO()
    pq.write_table(pa.Table.from_pylist(rows), sink)
    lines = ["at,value,zone", *(f"{row['at']},{row['value']},x" for row in texts)]
    for raw in (
        "\ufeff" + "\r\n".join(lines),
        json.dumps(texts),
        json.dumps({"points": texts}),
        sink.getvalue(),
    ):
        found = read(raw)
        assert [at(found, day(hour)) for hour in (0, 7.5, 23)] == [0.1, 0.17, 0.33]


@pytest.mark.parametrize("hours", [(2, 6), ("2", "6"), ("02:00", "06:00"), (2.0, 6.0)])
def test_hours_of_the_day_hold_every_day(hours: tuple[Any, Any]) -> None:
    points = [{"at": hours[0], "value": 0.1}, {"at": hours[1], "value": 0.3}]
    found = read(json.dumps(points))
    for days in (0, 1, 40):
        assert at(found, day(1.9, days=days)) == 0.3
        assert at(found, day(2, days=days)) == 0.1
        assert at(found, day(6, days=days)) == 0.3
    assert found.ends_at is None


def test_hours_of_the_day_are_those_of_the_zone() -> None:
    vienna = read("at,value\n2,0.1\n6,0.3\n", zone=zone_of("Europe/Vienna"))
    assert at(vienna, day(1)) == 0.1  # an hour ahead of UTC in winter
    assert at(vienna, day(5)) == 0.3
    assert at(vienna, datetime(2026, 7, 1, 0, 30, tzinfo=UTC)) == 0.1  # two in summer
    assert at(vienna, datetime(2026, 3, 29, 1, 30, tzinfo=UTC)) == 0.1  # the night of the change


def test_moments_keep_their_zone_and_are_utc_without_one() -> None:
    found = read("at,value\n2026-01-05T14:00+02:00,1\n2026-01-05T13:00,2\n2026-01-05T14:00Z,3\n")
    assert [at(found, day(hour)) for hour in (12, 13, 14)] == [1, 2, 3]
    assert at(found, day(12).astimezone(timezone(timedelta(hours=-5)))) == 1


def test_the_order_of_points_does_not_matter() -> None:
    found = read("at,value\n6,0.3\n2,0.1\n")
    assert at(found, day(3)) == 0.1


@pytest.mark.parametrize("missing", ["", "nan", "NaN", " "])
def test_a_value_that_is_missing_is_told_and_the_one_before_counts(missing: str) -> None:
    found = read(f"at,value\n0,0.3\n2,{missing}\n4,0.1\n")
    assert at(found, day(3)) == 0.3
    assert found.notes == ("1 value is missing in the price curve: the one before counts",)


def test_a_gap_in_time_is_bridged_by_the_value_before_it() -> None:
    found = read("at,value\n2026-01-05T00:00,1\n2026-01-05T01:00,2\n2026-01-05T09:00,3\n")
    assert at(found, day(8)) == 2


def test_prices_below_zero_count_as_little_and_are_told() -> None:
    found = read("at,value\n0,0.5\n12,-0.2\n13,0\n14,0.5\n")
    assert at(found, day(12)) == at(found, day(13)) == pytest.approx(0.005)
    (told,) = found.notes
    assert "near zero or below" in told


def test_one_point_is_a_flat_curve() -> None:
    for text in ("at,value\n7,0.3\n", "at,value\n2026-01-05T07:00,0.3\n"):
        found = read(text)
        assert {at(found, day(h, days=d)) for h in range(24) for d in (-3, 0, 9)} == {0.3}


def test_a_curve_that_ends_goes_on_with_its_last_day() -> None:
    lines = [f"{day(h, days=d).isoformat()},{d * 100 + h + 1}" for d in (0, 1) for h in range(24)]
    found = read("at,value\n" + "\n".join(lines))
    assert found.ends_at == day(0, days=2)
    for days in (2, 3, 400):
        assert [at(found, day(h, days=days)) for h in (0, 5.5, 23)] == [101, 106, 124]


def test_a_curve_of_some_hours_goes_on_with_its_mean() -> None:
    found = read("at,value\n2026-01-05T00:00,1\n2026-01-05T01:00,2\n2026-01-05T03:00,3\n")
    assert at(found, day(4)) == 3
    later, before = at(found, day(9)), at(found, day(-2))
    assert later == before == pytest.approx((1 + 2 * 2 + 3 * 1.5) / 4.5)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "is empty"),
        ("  \n", "is empty"),
        ("when,price\n1,2\n", "lacks at or value"),
        ("at,value\n", "has no value"),
        ("at,value\n1,\n2,nan\n", "has no value"),
        ("at,value\n1,cheap\n", "line 2: value 'cheap' is no number"),
        ("at,value\n1,inf\n", "line 2: value inf is no price"),
        ("at,value\n1,0\n2,-3\n", "no value is above zero"),
        ("at,value\nsoon,1\n", "neither a moment nor an hour"),
        ("at,value\n24,1\n", "neither a moment nor an hour"),
        ("at,value\n1767571200,1\n", "neither a moment nor an hour"),
        ("at,value\n7,1\n2026-01-05,2\n", "moments and hours of the day"),
        ("at,value\n7,1\n07:00,2\n", "two values for 07:00"),
        ("[1, 2]", "no JSON list of points"),
        ("[{]", "no JSON list of points"),
        ('{"data": []}', "no JSON list of points"),
        ("[" * 100_000, "no JSON list of points"),
        ('[{"at": 1, "value": true}]', "is no number"),
        (b"PAR1nonsense", "Parquet"),
        (b"\xff\xfe\x00", "no CSV, JSON or Parquet"),
    ],
)
def test_a_bad_curve_gets_one_line_that_says_what_and_where(text: str | bytes, said: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        read(text)
    assert said in str(caught.value)
    assert "prices.csv" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_carbon_below_zero_is_refused() -> None:
    with pytest.raises(InvalidInput, match="value -5 is no carbon"):
        read("at,value\n1,-5\n2,90\n", kind="carbon")


def test_a_parquet_file_without_the_columns_is_refused() -> None:
    sink = io.BytesIO()
    pq.write_table(pa.table({"hour": [1]}), sink)
    with pytest.raises(InvalidInput, match="lacks at or value"):
        read(sink.getvalue())


@given(
    st.lists(st.floats(0.01, 10.0), min_size=1, max_size=48),
    st.floats(-80, 80),
    st.floats(0.1, 100),
)
def test_every_stretch_is_covered_by_values_of_the_curve(
    values: list[float], start_h: float, hours: float
) -> None:
    lines = [f"{day(hour).isoformat()},{value}" for hour, value in enumerate(values)]
    found = read("at,value\n" + "\n".join(lines))
    start = day(start_h)
    edges, got = found.between(start, start + hours * HOUR)
    assert edges[0] == start.timestamp()
    assert math.isclose(edges[-1], (start + hours * HOUR).timestamp())
    assert (edges[1:] > edges[:-1]).all()
    assert got.min() >= min(values) - 1e-9
    assert got.max() <= max(values) + 1e-9


def test_a_window_over_a_change_costs_the_mean() -> None:
    found = read("at,value\n12:00,0.1\n12:01,0.6\n")
    aim = aim_with(found)
    assert Outlook(NOW, 300.0, aim).price == pytest.approx((0.1 + 4 * 0.6) / 5)


def aim_with(curve: Curve) -> Any:
    from gogh_core.planning import Aim

    return Aim("cost", curve)


# -- files and sources -------------------------------------------------------------------------


def rules(home: Path, **objective: Any) -> Settings:
    return load(home=home, objective=objective)


def test_a_curve_comes_from_a_file_below_home(tmp_path: Path) -> None:
    (tmp_path / "prices.csv").write_text("at,value\n7,0.3\n")
    aim = aim_of(rules(tmp_path, price="prices.csv"), COST, NOW)
    assert aim.name == "cost"
    assert aim.curve is not None
    assert at(aim.curve, NOW) == 0.3


@pytest.mark.parametrize("price", [None, "gone.csv", "."])
def test_a_person_is_told_where_no_curve_is_and_the_cadence_goes_on(
    tmp_path: Path, price: str | None
) -> None:
    settings = rules(tmp_path, name="cost", price=price)
    with pytest.raises(InvalidInput):
        aim_of(settings, COST, NOW)
    aim = aim_of(settings, Request(), NOW)
    assert aim.name == "energy"
    (told,) = aim.degraded
    assert "planned for energy, not for cost" in told


def test_an_unknown_zone_is_refused_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "prices.csv").write_text("at,value\n7,0.3\n")
    with pytest.raises(InvalidInput, match=r"objective\.zone: 'Middle/Earth' is no time zone"):
        aim_of(rules(tmp_path, price="prices.csv", zone="Middle/Earth"), COST, NOW)


class _Source(BaseHTTPRequestHandler):
    said: ClassVar[tuple[int, bytes]] = (200, b"")
    asked: ClassVar[list[str]] = []

    def do_GET(self) -> None:
        self.asked.append(self.path)
        status, content = self.said
        self.send_response(status)
        self.send_header("Location", "/elsewhere")
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def source() -> Iterator[str]:
    _Source.asked.clear()
    _Source.said = (200, b"at,value\n7,0.3\n")
    with HTTPServer(("127.0.0.1", 0), _Source) as listener:
        thread = threading.Thread(target=listener.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        yield f"http://127.0.0.1:{listener.server_port}/prices?day=1"
        listener.shutdown()
        thread.join()


def test_a_source_is_asked_once_an_hour(tmp_path: Path, source: str) -> None:
    settings = rules(tmp_path, price=source)
    for moment in (NOW, NOW + HOUR / 2, NOW + HOUR):
        assert aim_of(settings, COST, moment).notes == ()
    assert _Source.asked == ["/prices?day=1"] * 2


@pytest.mark.parametrize("bad", [(500, b""), (302, b""), (200, b"hello"), (200, b"x" * 2_000_000)])
def test_while_a_source_is_down_its_last_good_answer_counts(
    tmp_path: Path, source: str, bad: tuple[int, bytes]
) -> None:
    settings = rules(tmp_path, price=source)
    aim_of(settings, COST, NOW)
    _Source.said = bad
    later = NOW + 2 * HOUR
    for moment in (later, later + timedelta(seconds=5)):  # the second time nobody is asked
        aim = aim_of(settings, COST, moment)
        assert aim.curve is not None
        assert at(aim.curve, NOW) == 0.3
        (told,) = aim.notes
        assert "the price source is down" in told
        assert "its answer of 2026-01-05 12:00 UTC counts" in told
    assert _Source.asked == ["/prices?day=1"] * 2
    _Source.said = (200, b"at,value\n7,0.4\n")
    aim = aim_of(settings, COST, later + HOUR)
    assert aim.notes == ()
    assert aim.curve is not None
    assert at(aim.curve, NOW) == 0.4


def test_a_source_that_never_answered_is_named(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    settings = rules(tmp_path, price=f"http://me:secret@127.0.0.1:{port}/", name="cost")
    with pytest.raises(InvalidInput) as caught:
        aim_of(settings, COST, NOW)
    assert "objective.price" in str(caught.value)
    assert "secret" not in str(caught.value)
    assert aim_of(settings, Request(), NOW).name == "energy"
    assert "secret" not in (tmp_path / "curves" / "price.json").read_text()


def test_an_increment_asks_no_source(tmp_path: Path, source: str) -> None:
    settings = rules(tmp_path, price=source, name="cost")
    increment = Request(reason="jobs came", increment=True)
    assert aim_of(settings, increment, NOW).name == "energy"
    assert _Source.asked == []
    aim_of(settings, Request(), NOW)
    assert aim_of(settings, increment, NOW + 9 * HOUR).name == "cost"
    assert len(_Source.asked) == 1


def test_a_source_outside_the_allowed_networks_is_not_asked(tmp_path: Path, source: str) -> None:
    with pytest.raises(InvalidInput, match=r"none of the networks of objective\.allow"):
        aim_of(rules(tmp_path, price=source, allow=["10.2.0.0/16"]), COST, NOW)
    assert _Source.asked == []


def test_a_damaged_copy_is_fetched_again(tmp_path: Path, source: str) -> None:
    settings = rules(tmp_path, price=source)
    aim_of(settings, COST, NOW)
    for damage in ("", "{", '{"content": "!"}', "[]"):
        (tmp_path / "curves" / "price.json").write_text(damage)
        assert aim_of(settings, COST, NOW).curve is not None
    assert len(_Source.asked) == 5
