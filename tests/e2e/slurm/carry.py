"""Carries one plan out in a process of its own, which may be killed after its n-th scontrol.

`python -m tests.e2e.slurm.carry FOLDER [N]`: the folder holds settings.json, plan.json and
basis.json. With N the process ends itself (SIGKILL) right after its N-th call of scontrol; without,
it prints how many it made.
"""

from __future__ import annotations

import itertools
import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

from gogh_core.cluster import carry_out, state_from_dict
from gogh_core.cluster.slurm import SlurmManager
from gogh_core.cluster.slurm.commands import Commands
from gogh_core.domain import Plan
from gogh_core.settings import Settings
from gogh_core.store import Store


def main(folder: Path, kill_after: int | None) -> None:
    settings = Settings(**json.loads((folder / "settings.json").read_text()))
    plan = Plan.from_dict(json.loads((folder / "plan.json").read_text()))
    basis = state_from_dict(json.loads((folder / "basis.json").read_text()))
    calls = itertools.count(1)
    done = 0
    real = Commands.do

    def counted(self: Commands, program: str, *arguments: str, **how: Any) -> str:
        nonlocal done
        out = real(self, program, *arguments, **how)
        if program == "scontrol" and arguments[0] != "show":
            done = next(calls)
            if done == kill_after:
                os.kill(os.getpid(), signal.SIGKILL)
        return out

    Commands.do = counted  # type: ignore[method-assign]
    report = carry_out(
        plan,
        basis,
        manager=SlurmManager(settings),
        store=Store(settings),
        settings=settings,
        cycle_id="20260105T090000Z-0",
        now=basis.at,
    )
    print(json.dumps({"calls": done, "state": report.state}))


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else None)
