"""What `gogh bench estimators` computes and how it is written down."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from gogh_core.estimation.baselines import BASELINES
from gogh_core.estimation.catalog import Catalog
from gogh_core.estimation.evaluation import (
    Method,
    accuracy,
    gangs,
    learning_curve,
    network_method,
    simple_method,
    summary,
)
from gogh_core.estimation.memory_evaluation import feasibility
from gogh_core.estimation.networks import KINDS
from gogh_core.estimation.power_evaluation import power_accuracy, power_catalog
from gogh_core.estimation.registry import shipped
from gogh_core.estimation.report import BAR, draw, page

__all__ = ["Study", "data_folder", "draw", "page", "speed"]

# Other campaigns with several GPU types; each so-manieth of their jobs is left out.
OTHER_SOURCES = (("gavel_physical", 2), ("zeus_nsdi23", 8))
TAGS = ("name", "facts")


def data_folder(given: Path | None) -> Path | None:
    """The measurements: as given, GOGH_DATA, or beside the project."""
    beside = Path(__file__).resolve().parents[3] / "shared" / "data"
    for folder in (
        given,
        Path(os.environ["GOGH_DATA"]) if "GOGH_DATA" in os.environ else None,
        beside,
    ):
        if folder is not None and (folder / "throughput.parquet").exists():
            return folder
    return None


class Study:
    """The sections of the report on one source; each is computed on its own."""

    SECTIONS = ("speed", "accuracy", "learning", "others", "gangs", "feasibility", "power")

    def __init__(self, folder: Path, source: str, *, quick: bool, seeds: int) -> None:
        self.folder, self.source, self.quick, self.seeds = folder, source, quick, seeds
        self.catalog = _catalog(folder, source)
        self.kind = shipped()[0].kind

    def run(self, sections: Sequence[str]) -> dict[str, Any]:
        """Some of the sections, by name."""
        found: dict[str, Any] = {"served": self.kind}
        for name in sections:
            found |= getattr(self, name)()
        return found

    def _networks(self, kinds: Sequence[str], tags: Sequence[str], seed: int = 0) -> list[Method]:
        return [
            network_method(f"{kind}, {tag}", shipped(kind)[1], use_facts=tag == "facts", seed=seed)
            for tag in tags
            for kind in kinds
        ]

    def _simple_and_process(self, tags: Sequence[str]) -> list[Method]:
        simple = [simple_method(name) for name in ([BAR] if self.quick else BASELINES)]
        return simple + [
            network_method(f"process, {tag}", {}, use_facts=tag == "facts", calibrated=False)
            for tag in tags
        ]

    def speed(self) -> dict[str, Any]:
        """See `speed`."""
        return {"speed": speed()}

    def accuracy(self) -> dict[str, Any]:
        """All methods on the same splits; networks over several seeds."""
        others = [] if self.quick else [kind for kind in KINDS if kind != self.kind]
        served = self._networks([self.kind], TAGS)
        methods = [*self._simple_and_process(TAGS), *served, *self._networks(others, ["facts"])]
        runs = [accuracy(self.catalog, methods, partners=1)]
        for seed in range(1, self.seeds):
            again = [
                simple_method(BAR),
                *self._networks([self.kind], TAGS, seed),
                *self._networks(others, ["facts"], seed),
            ]
            runs.append(accuracy(self.catalog, again, partners=1, seed=seed))
        rows = pd.concat([run.assign(seed=seed) for seed, run in enumerate(runs)])
        return {
            "summary": summary(rows).to_dict("records"),
            "families": _by_family(rows, self.kind),
        }

    def learning(self) -> dict[str, Any]:
        """Error on what is never shown, against how much was."""
        kinds = [self.kind] if self.quick else KINDS
        methods = [*self._simple_and_process(["facts"]), *self._networks(kinds, ["facts"])]
        return {
            "learning": learning_curve(self.catalog, methods, seeds=(0, 1, 2)).to_dict("records")
        }

    def others(self) -> dict[str, Any]:
        """Other sources, with the same settings."""
        methods = [simple_method(BAR), *self._networks([self.kind], TAGS)]
        found = {}
        for other, every in OTHER_SOURCES:
            catalog = _catalog(self.folder, other)
            runs = [
                accuracy(catalog, methods, splits=["LOJO"], every=every),
                accuracy(catalog, methods, splits=["LOMO"]),
            ]
            found[other] = summary(pd.concat(runs)).to_dict("records")
        return {"others": found}

    def gangs(self) -> dict[str, Any]:
        """Several GPUs together."""
        methods = [simple_method(BAR), *self._networks([self.kind], ["facts"])]
        table = gangs(_catalog(self.folder, self.source, gangs=True), methods, every=4)
        return {"gangs": table.to_dict("records")}

    def feasibility(self) -> dict[str, Any]:
        """Infeasible pairs found."""
        found = {
            f"{split}, {tag}": feasibility(self.catalog, split=split, use_facts=tag == "facts")
            for split in ("LOJO", "LOMO")
            for tag in TAGS
        }
        memory = _fitted_memory(self.catalog)
        found["LOMO, declared"] = feasibility(self.catalog, split="LOMO", declared=memory)
        return {"feasibility": {name: one["found"] for name, one in found.items()}}

    def power(self) -> dict[str, Any]:
        """Watts and limits on published profiles."""
        power = pd.read_parquet(self.folder / "power.parquet")
        catalog = power_catalog(power[power["source"] == "zeus_nsdi23"])
        return {"power": power_accuracy(catalog, every=6 if self.quick else 1)}


def _catalog(folder: Path, source: str, *, gangs: bool = False) -> Catalog:
    """One source of the measurements: single GPUs with pairs, or everything alone."""
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    table = pq.read_table(folder / "throughput.parquet")
    keep = pc.equal(table["source"], source)
    part = pc.is_null(table["partner_job_type"]) if gangs else pc.equal(table["scale_factor"], 1)
    return Catalog.from_table(table.filter(pc.and_(keep, part)), where=source)


def _fitted_memory(catalog: Any) -> dict[str, float]:
    """Memory as the whole catalog implies it: what a user would declare."""
    from gogh_core.estimation.feasibility import fit_memory
    from gogh_core.estimation.jobset import JobSet

    model = fit_memory(catalog, JobSet.of(catalog), catalog.columns)
    return dict(zip(catalog.names, np.exp(model.log_memory).tolist(), strict=True))


def _by_family(rows: pd.DataFrame, kind: str) -> list[dict[str, Any]]:
    chosen = rows[rows["method"].isin([BAR, f"{kind}, facts"]) & (rows["split"] == "LOMO")]
    means = chosen.assign(mean=[float(np.mean(e)) for e in chosen["error"]])
    table = means.groupby(["task", "family", "method"])["mean"].mean().reset_index()
    return [{str(k): v for k, v in row.items()} for row in table.to_dict("records")]


def speed() -> dict[str, Any]:
    """Processor seconds: 26 classes, 1,000 with all pairs on 6 types, retraining on 20,000 rows."""
    import tempfile

    from gogh_core.domain import Descriptors
    from gogh_core.estimation import Estimator, Registry, retrain
    from gogh_core.estimation.worlds import draw_table

    version, networks = shipped()
    types = ["k80", "p100", "v100", "t4", "a100", "h100"]
    world = draw_table(7, most_jobs=40)
    catalog = Catalog.from_table(world)
    out: dict[str, Any] = {}
    for count, name in ((26, "26 classes"), (1000, "1000 classes")):
        jobs = [
            Descriptors(f"model-{i // 5}", 8 * 2 ** (i % 5), flops_per_step=1e10 * (1 + i % 97))
            for i in range(count)
        ]
        began = time.process_time()
        table = Estimator(version.id, networks).options(catalog, jobs, types)
        out[f"{name}, s"] = time.process_time() - began
        out[f"{name}, options"] = table.num_rows
        del table
    many = _repeated(world, 20_000)
    with tempfile.TemporaryDirectory() as folder:
        began, cpu = time.perf_counter(), time.process_time()
        found = Catalog.from_table(many)
        report = retrain(found, Registry(Path(folder)), budget_s=25, seed=0)
        out["retraining, rows"] = many.num_rows
        out["retraining, observations of its cells"] = report.observations
        out["retraining, s"] = time.process_time() - cpu
        out["retraining, s on the clock"] = time.perf_counter() - began
        out["retraining"] = f"{'promoted' if report.promoted else 'kept'}: {report.reason}"
    return out


def _repeated(world: Any, rows: int) -> Any:
    """A world's table measured over and over with noise of 5 %, as a store holds it."""
    import pyarrow as pa

    rng = np.random.default_rng(0)
    many = world.take(pa.array(np.arange(rows) % world.num_rows))
    noise = np.exp(rng.normal(0, 0.05, rows))
    for name in ("throughput", "partner_throughput"):
        values = many[name].to_numpy() * noise
        column = pa.array(values, from_pandas=True)
        many = many.set_column(many.column_names.index(name), name, column)
    return many
