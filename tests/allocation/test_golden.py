"""Each constraint as an LP file: its sentence, what its columns stand for, and its rows.

The columns are put in by hand, so that the files do not change with the way columns are found.
`GOGH_GOLDEN=1 pytest tests/allocation/test_golden.py` writes them anew; read the difference.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from gogh_core.allocation import Option, Problem, ProblemJob, ProblemServer
from gogh_core.allocation import mip as mip_module
from gogh_core.allocation.compiled import Compiled
from gogh_core.allocation.constraints import CONSTRAINTS
from gogh_core.allocation.master import Master
from gogh_core.allocation.mip import Part, build_model
from gogh_core.domain import Slot

GOLDEN = Path(__file__).parent / "golden"


def master() -> Master:
    """Two servers; jobs that stay, come, share, fill both servers, and a spread job."""
    options = [
        Option("t", 1, ("A",), (4.0,), 100.0),
        Option("t", 1, ("A", "A"), (3.0, 3.0), 120.0),
        Option("t", 1, ("A", "S"), (3.0, 2.0), 130.0),
        Option("t", 1, ("S",), (4.0,), 90.0),
        Option("t", 1, ("S", "S"), (3.0, 3.0), 110.0),
        Option("t", 4, ("A",), (16.0,), 400.0),
    ]
    servers = [ProblemServer(name, "t", 2, 50.0, off_w=80.0) for name in ("s1", "s2")]
    jobs = [
        ProblemJob("big", "A", gpu_counts=(4,), required_throughput=16.0),
        ProblemJob("comes", "A", required_throughput=3.0, owner="x"),
        ProblemJob("mate", "A", at=(Slot("s1", (1,)),), move_cost_j=300.0),
        ProblemJob(
            "serving", "S", "spread", max_gpus=2, required_throughput=2.0, at=(Slot("s1", (1,)),)
        ),
        ProblemJob("stays", "A", at=(Slot("s1", (0,)),), move_cost_j=300.0, owner="x"),
    ]
    problem = Problem(300.0, 1000.0, {"t": 10.0}, servers, jobs, options, 900.0, 1, {"x": 3})
    made = Master(Compiled(problem))
    group = {problem.jobs[g.first].id: g for g in made.c.groups}
    made.alone(group["comes"], 0, (0,))
    made.alone(group["stays"], 0, (0,))
    made.alone(group["big"], 5, (0, 0))
    made.side(group["comes"], 1, 0, 0)
    made.pair(1, 0, (0,))
    made.stay(group["stays"], 0)
    made.host(group["stays"], 1, 0, 0)
    made.bundle(group["serving"], ((3, 0, 0, -1), (4, 0, -1, 0)))
    made.pair(4, 0, (0,))
    made.keep(group["serving"], ((2, 1, "s1", 1, -2),))
    made.keep(group["mate"], ((2, 0, "s1", 1, -2),))
    made.tie(2, "s1", 1)
    made.forbid_itself(4, 0, group["serving"].index)
    made.count_option(0)
    made.count_way(group["comes"].index, ("wait",))
    return made


@pytest.mark.parametrize("constraint", CONSTRAINTS, ids=lambda function: function.__name__)
def test_golden_lp_of(constraint, tmp_path, monkeypatch):
    made = master()
    monkeypatch.setattr(mip_module, "CONSTRAINTS", (constraint,))
    columns = made.program.columns
    model = build_model(Part(made.program, range(len(columns)), {}, {}))
    path = tmp_path / "model.lp"
    model.write(str(path), io_options={"symbolic_solver_labels": True})
    text = path.read_text()
    rows = text[text.index("s.t.") : text.index("bounds")].strip().splitlines()
    assert len(rows) > 3, "a constraint without rows shows nothing"
    used = sorted({int(number) for line in rows for number in re.findall(r"x\((\d+)\)", line)})
    stands = [f"\\ x({at}): {' '.join(map(str, columns[at].what))}" for at in used]
    lines = [f"\\ {constraint.__doc__}", *stands, "", *rows]
    golden = GOLDEN / f"{constraint.__name__}.lp"
    if os.environ.get("GOGH_GOLDEN"):
        golden.write_text("\n".join(lines) + "\n")
    assert lines == golden.read_text().splitlines()


def test_every_golden_file_belongs_to_a_constraint():
    names = {constraint.__name__ for constraint in CONSTRAINTS} | {"smallest"}
    assert {path.stem for path in GOLDEN.glob("*.lp")} == names
