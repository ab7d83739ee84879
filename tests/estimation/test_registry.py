"""Versions: kept, promoted, rolled back; bad weights refused; only the better is promoted."""

from __future__ import annotations

import json
import math
import shutil
import time
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from gogh_core.errors import InvalidInput, WeightsRefused
from gogh_core.estimation import Catalog, Registry, Version, load_estimator, retrain
from gogh_core.estimation.networks import KINDS, build, run
from gogh_core.estimation.registry import shipped
from gogh_core.estimation.retraining import held_out

NOW = datetime(2026, 1, 5, tzinfo=UTC)


def keep(registry: Registry, name: str, seed: int = 0) -> Version:
    version = Version(id=name, kind="feed-forward", created_at=NOW.isoformat(), data_sha256="")
    networks = {stage: build("feed-forward", seed=seed) for stage in ("P1", "P2")}
    return registry.add(networks, version)


def test_promotion_and_rollback(tmp_path: Path) -> None:
    registry = Registry(tmp_path)
    assert registry.serving == "shipped"
    for name in ("one", "two"):
        keep(registry, name)
        registry.promote(name, at=NOW)
    assert load_estimator(tmp_path).version == "two"
    assert registry.rollback() == "one"
    assert registry.rollback() == "shipped"
    with pytest.raises(InvalidInput, match="nothing to roll back"):
        registry.rollback()
    assert [v.id for v in registry.versions()] == ["one", "two"]


@pytest.mark.parametrize(
    "damage",
    [
        lambda raw: raw[:-7],
        lambda raw: b"\x80\x04cposix\nsystem\n",
        lambda raw: raw[:-1] + bytes([raw[-1] ^ 1]),
        lambda raw: b"",
        lambda raw: raw + b"0" * 5_000_000,
    ],
)
def test_a_damaged_or_hostile_file_is_refused_and_the_serving_one_stays(
    tmp_path: Path, damage
) -> None:
    registry = Registry(tmp_path)
    keep(registry, "good")
    registry.promote("good", at=NOW)
    keep(registry, "bad", seed=1)
    path = tmp_path / "versions" / "bad" / "p2.safetensors"
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(WeightsRefused):
        registry.promote("bad", at=NOW)
    assert load_estimator(tmp_path).version == "good"


def test_foreign_tensors_and_nan_are_refused(tmp_path: Path) -> None:
    import torch
    from safetensors.torch import save_file

    from gogh_core.estimation.registry import load_weights

    save_file({"x": torch.zeros(3)}, tmp_path / "foreign.safetensors")
    with pytest.raises(WeightsRefused, match="not those"):
        load_weights(tmp_path / "foreign.safetensors", "gru")
    state = build("gru").state_dict()
    state["enter.bias"] = torch.full_like(state["enter.bias"], float("nan"))
    save_file(state, tmp_path / "nan.safetensors")
    with pytest.raises(WeightsRefused, match="NaN"):
        load_weights(tmp_path / "nan.safetensors", "gru")
    with pytest.raises(WeightsRefused, match="kind"):
        load_weights(tmp_path / "nan.safetensors", "oracle")


def test_weights_without_a_checksum_are_refused(tmp_path: Path) -> None:
    registry = Registry(tmp_path)
    keep(registry, "good")
    registry.promote("good", at=NOW)
    keep(registry, "bad", seed=1)
    path = tmp_path / "versions" / "bad" / "version.json"
    raw = json.loads(path.read_text())
    for sums in ({}, {"P1": raw["weights_sha256"]["P1"]}, {"P1": "", "P2": ""}, None, "x"):
        path.write_text(json.dumps({**raw, "weights_sha256": sums}))
        with pytest.raises(WeightsRefused, match="checksum"):
            registry.promote("bad", at=NOW)
    assert load_estimator(tmp_path).version == "good"


def test_absurd_weights_are_refused(tmp_path: Path) -> None:
    import torch

    registry = Registry(tmp_path)
    networks = {stage: build("feed-forward") for stage in ("P1", "P2")}
    with torch.no_grad():
        networks["P2"].enter.weight[0, 0] = -1e30
    version = Version(id="absurd", kind="feed-forward", created_at="", data_sha256="")
    registry.add(networks, version)
    with pytest.raises(WeightsRefused, match=r"enter.weight' holds 1e\+30; weights are within 100"):
        registry.promote("absurd", at=NOW)


@pytest.mark.parametrize("broken", ["weights", "gone"])
def test_rolling_back_to_a_broken_version_says_so(tmp_path: Path, broken: str) -> None:
    registry = Registry(tmp_path)
    for name in ("one", "two"):
        keep(registry, name)
        registry.promote(name, at=NOW)
    path = tmp_path / "versions" / "one" / "p1.safetensors"
    if broken == "weights":
        path.write_bytes(b"garbage")
    else:
        shutil.rmtree(path.parent)
    with pytest.raises(WeightsRefused, match="'one', which served before, is broken") as told:
        registry.rollback()
    assert "'two' goes on serving" in str(told.value)
    assert registry.serving == "two"


def test_versions_and_promotions_have_a_bound(tmp_path: Path) -> None:
    from gogh_core.estimation import registry as room

    registry = Registry(tmp_path)
    keep(registry, "0000")
    registry.promote("0000", at=NOW)
    made = keep(registry, "0001")
    first = tmp_path / "versions" / "0001"
    for number in range(2, room.KEEP + 10):
        name = f"{number:04}"
        shutil.copytree(first, first.with_name(name))
        raw = {**json.loads((first / "version.json").read_text()), "id": name}
        (first.with_name(name) / "version.json").write_text(json.dumps(raw))
    keep(registry, "9999")
    kept = [version.id for version in registry.versions()]
    assert len(kept) == room.KEEP + 1
    assert kept[0] == "0000"  # it serves
    assert kept[-1] == "9999"
    assert made.id not in kept
    assert not list(tmp_path.glob(".gone-*"))
    for turn in range(room.KEEP + 5):
        registry.promote(kept[1 + turn % 2], at=NOW)
    history = json.loads((tmp_path / "serving.json").read_text())["history"]
    assert len(history) == room.KEEP


def test_a_serving_version_that_rots_falls_back_and_says_so(tmp_path: Path) -> None:
    registry = Registry(tmp_path)
    keep(registry, "one")
    registry.promote("one", at=NOW)
    (tmp_path / "versions" / "one" / "version.json").write_text(json.dumps({"schema": "x"}))
    estimator = load_estimator(tmp_path)
    assert estimator.version.startswith("shipped")
    assert "schema" in estimator.refused


@pytest.mark.parametrize("kind", KINDS)
def test_every_shipped_kind_loads_and_is_deterministic(kind: str) -> None:
    import numpy as np

    _, networks = shipped(kind)
    rows = np.random.default_rng(0).normal(size=(4, 3, 24)).astype(np.float32)
    first, again = run(networks["P2"], rows), run(networks["P2"], rows)
    assert (first[0] == again[0]).all()
    assert abs(first[0]).max() <= 1.5


def test_retraining_beats_a_bad_serving_version_is_promoted_and_rolled_back(
    tmp_path: Path, catalog: Catalog
) -> None:
    """Judged on classes that neither version was trained on."""
    import torch

    registry = Registry(tmp_path)
    networks = {stage: build("feed-forward", seed=1) for stage in ("P1", "P2")}
    with torch.no_grad():
        networks["P2"].leave.bias[:3] = 0.6
    version = Version(id="bad", kind="feed-forward", created_at=NOW.isoformat(), data_sha256="")
    registry.add(networks, version)
    registry.promote("bad", at=NOW)
    report = retrain(catalog, registry, budget_s=60, seed=0, now=NOW, most_rounds=1)
    assert report.promoted, report.reason
    assert report.classes == len(catalog.names)
    assert report.scores["candidate"]["P2"] < report.scores["serving"]["P2"]
    assert registry.serving == report.version == report.candidate
    kept = {v.id: v for v in registry.versions()}
    assert kept[report.candidate].parent == "bad"
    assert kept[report.candidate].data_sha256 == catalog.sha256
    assert registry.rollback() == "bad"


def test_a_candidate_that_does_not_win_is_kept_and_does_not_serve(
    tmp_path: Path, catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    from gogh_core.estimation import retraining

    def spoiled(kind, samples, **settings):
        network = build(kind, seed=0)
        network.leave.bias.data[:3] = 2.0
        return network.eval()

    monkeypatch.setattr(retraining, "train", spoiled)
    registry = Registry(tmp_path)
    report = retrain(catalog, registry, budget_s=60, seed=0, now=NOW, most_rounds=1)
    assert not report.promoted
    assert [v.id for v in registry.versions()] == [report.candidate]
    assert registry.serving == "shipped"


def test_too_few_classes_teach_nothing(tmp_path: Path) -> None:
    report = retrain(Catalog.empty(), Registry(tmp_path), budget_s=1, seed=0, now=NOW)
    assert not report.promoted
    assert "too few" in report.reason


def test_nothing_is_trained_where_versions_cannot_be_compared(
    tmp_path: Path, world: pa.Table
) -> None:
    """Each held-out class was measured on one GPU type: nothing is left to predict."""
    alone = world.filter(pc.is_null(world["partner_job_type"]))
    seen: set[str] = set()
    first = []
    for name in alone["job_type"].to_pylist():
        first.append(not held_out(name) or name not in seen)
        seen.add(name)
    registry = Registry(tmp_path)
    learned = retrain(
        Catalog.from_table(alone.filter(pa.array(first))), registry, budget_s=60, now=NOW
    )
    assert not learned.promoted
    assert not learned.candidate
    assert learned.reason.startswith("nothing was trained: ")
    assert "can be compared" in learned.reason
    assert registry.versions() == []


def test_versions_are_compared_where_no_pair_was_measured(tmp_path: Path, world: pa.Table) -> None:
    alone = Catalog.from_table(world.filter(pc.is_null(world["partner_job_type"])))
    report = retrain(alone, Registry(tmp_path), budget_s=60, seed=0, now=NOW, most_rounds=1)
    assert report.candidate
    assert "nan" not in report.reason
    for scores in report.scores.values():
        assert math.isfinite(scores["P2"])


@pytest.mark.parametrize("factor", [10.0, 0.1])
def test_a_clock_that_runs_faster_or_slower_trains_the_same_network(
    tmp_path: Path, catalog: Catalog, monkeypatch: pytest.MonkeyPatch, factor: float
) -> None:
    usual = retrain(catalog, Registry(tmp_path / "usual"), budget_s=3600, now=NOW, most_rounds=2)
    real = time.monotonic
    monkeypatch.setattr(time, "monotonic", lambda: factor * real())
    other = retrain(catalog, Registry(tmp_path / "other"), budget_s=3600, now=NOW, most_rounds=2)
    assert (other.candidate, other.scores) == (usual.candidate, usual.scores)
    assert "clock" not in other.reason


def test_a_retraining_that_the_clock_cut_short_says_so(tmp_path: Path, catalog: Catalog) -> None:
    report = retrain(catalog, Registry(tmp_path), budget_s=0.01, now=NOW, most_rounds=12)
    assert "stopped by the clock: 1 of 12 rounds" in report.reason
