"""Retraining on what the cluster measured: P2 in so many rounds, P1 in full now and then.

Rounds of episodes and epochs end it, so that the same measurements give the same network; the time
budget is an emergency stop, and where it struck the report says so.

Job classes whose name hashes into a fixed fifth are never trained on; candidate and serving version
are compared on them, so that neither has seen what decides. Only a better one is promoted, and
where too little can be compared nothing is trained.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import numpy as np

from gogh_core.estimation.beliefs import believe
from gogh_core.estimation.catalog import Catalog
from gogh_core.estimation.jobset import JobSet
from gogh_core.estimation.networks import Kind
from gogh_core.estimation.pretraining import score_network
from gogh_core.estimation.registry import Registry, Version
from gogh_core.estimation.training import Sample, collect, train
from gogh_core.estimation.worlds import draw_world

if TYPE_CHECKING:
    from gogh_core.store import Store

__all__ = ["RetrainReport", "held_out", "retrain"]

# The candidate must be better by this share of the serving one's error.
_MARGIN = 0.005
_FEWEST_CLASSES = 8
# A verdict on fewer throughputs would be chance.
_FEWEST_COMPARED = 4
_HALF_LIFE_DAYS = 14.0
_FOLD = 5
_ROUNDS = 12


@dataclass(frozen=True)
class RetrainReport:
    """What a retraining did."""

    promoted: bool
    version: str
    """The serving version after it."""
    candidate: str
    reason: str
    observations: int
    classes: int
    seconds: float
    scores: dict[str, Any] = field(default_factory=dict)
    drifts: int = 0

    def to_dict(self) -> dict[str, Any]:
        """As JSON."""
        return asdict(self)


def held_out(name: str) -> bool:
    """Whether a job class is kept for comparing versions, for ever."""
    return hashlib.sha256(name.encode()).digest()[0] % _FOLD == 0


def retrain(
    source: Store | Catalog,
    registry: Registry,
    *,
    budget_s: float = 30.0,
    seed: int = 0,
    full: bool = False,
    now: datetime | None = None,
    half_life_days: float = _HALF_LIFE_DAYS,
    most_rounds: int = _ROUNDS,
) -> RetrainReport:
    """Train a candidate from the serving version; promote it if it beats it on unseen classes.

    `budget_s` is an emergency stop: half of it for episodes, most of the rest for training.
    """
    moment = now or datetime.now(UTC)
    catalog = (
        source
        if isinstance(source, Catalog)
        else Catalog.from_store(source, now=moment, half_life_days=half_life_days)
    )
    catalog = catalog.believed()
    began = time.monotonic()
    known = np.unique(catalog.cells.job)
    keep = np.array([i for i in known if held_out(catalog.names[i])], int)
    serving_id = registry.serving

    def report(
        promoted: bool, candidate: str, reason: str, scores: dict[str, Any] | None = None
    ) -> RetrainReport:
        return RetrainReport(
            promoted, candidate if promoted else serving_id, candidate, reason,
            int(catalog.cells.count.sum()), len(known), time.monotonic() - began, scores or {},
            len(catalog.drifts),
        )  # fmt: skip

    if len(known) < _FEWEST_CLASSES:
        return report(False, "", f"{len(known)} measured classes are too few to learn from")
    compared = _compared(catalog, keep)
    if compared < _FEWEST_COMPARED:
        return report(
            False,
            "",
            f"nothing was trained: {compared} throughputs of the {len(keep)} held-out classes can "
            f"be compared, {_FEWEST_COMPARED} are needed",
        )
    serving, networks, _ = registry.load_good()
    serving_id = serving.id
    began = time.monotonic()  # loading torch takes seconds on a cold machine; learn for all of it
    stages = ("P1", "P2") if full else ("P2",)
    learn, check, rounds = _samples(catalog, keep, seed, began + 0.5 * budget_s, most_rounds)
    if not any(s.stage == "P2" for s in learn) or not any(s.stage == "P2" for s in check):
        return report(False, "", "no episode with a measurement could be played")
    fresh = dict(networks)
    for i, stage in enumerate(stages):
        until = began + budget_s * (0.55 + 0.35 * (i + 1) / len(stages))
        mine = [s for s in learn if s.stage == stage]
        fresh[stage] = train(
            _kind(serving), mine, seed=seed, epochs=20, rate=5e-4,
            start=networks[stage].state_dict(), until=until,
        )  # fmt: skip
    before, after = _errors(networks, check, stages), _errors(fresh, check, stages)
    old, new = float(np.mean(list(before.values()))), float(np.mean(list(after.values())))
    settings = {"seed": seed, "rounds": rounds, "full": full, "samples": len(learn)}
    late = rounds < most_rounds or time.monotonic() >= began + 0.9 * budget_s
    cut = f" (stopped by the clock: {rounds} of {most_rounds} rounds)" if late else ""
    digest = hashlib.sha256(f"{catalog.sha256}{serving.id}{sorted(settings.items())}".encode())
    version = Version(
        id=f"{moment:%Y%m%dT%H%M%S}-{digest.hexdigest()[:8]}",
        kind=serving.kind, created_at=moment.isoformat(), data_sha256=catalog.sha256,
        parent=serving.id, settings=settings, scores={"candidate": after, "serving": before},
        reason="full" if full else "incremental",
    )  # fmt: skip
    registry.add(fresh, version)
    scores = {"candidate": after, "serving": before}
    if new < old * (1 - _MARGIN):
        registry.promote(version.id, at=moment)
        return report(True, version.id, f"error {new:.4f}, was {old:.4f}{cut}", scores)
    return report(False, version.id, f"error {new:.4f} does not beat {old:.4f}{cut}", scores)


def _compared(catalog: Catalog, keep: np.ndarray[Any, Any]) -> int:
    """Throughputs both versions can be judged on: of held-out classes, beyond the first shown."""
    cells = catalog.cells
    own = cells.job[(cells.partner < 0) & np.isin(cells.job, keep)]
    return int(len(own) - len(np.unique(own)))


def _errors(
    networks: Mapping[str, Any], check: Sequence[Sample], stages: Sequence[str]
) -> dict[str, float]:
    """The error of each network on the samples of its stage, where there are any."""
    mine = {stage: [sample for sample in check if sample.stage == stage] for stage in stages}
    return {
        stage: score_network(networks[stage], found).error for stage, found in mine.items() if found
    }


def _kind(version: Version) -> Kind:
    kind: Any = version.kind
    return kind  # type: ignore[no-any-return]


def _samples(
    catalog: Catalog, keep: np.ndarray[Any, Any], seed: int, until: float, rounds: int
) -> tuple[list[Sample], list[Sample], int]:
    """Episodes of classes to learn from, of those kept, and some random worlds; their rounds."""
    rest = catalog.without([int(i) for i in keep])
    hyper = believe(rest, JobSet.of(catalog), catalog.columns).hyper
    learn: list[Sample] = []
    check: list[Sample] = []
    step = 0
    while step == 0 or (time.monotonic() < until and step < rounds):
        learn += collect(rest, seed=seed + step, most=16, hyper=hyper)
        if step < 4:
            check += collect(catalog, seed=seed + step, most=12, hyper=hyper, targets=keep)
        # A world now and then, so that what was learned there is not forgotten.
        world = draw_world(900_000 + seed + step, most_jobs=16)
        if len(world.names) >= 4:
            learn += collect(world, seed=seed + step, most=8)
        step += 1
    return learn, check, step
