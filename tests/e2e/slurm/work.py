"""What the lab's jobs do: they count, checkpoint on SIGTERM, resume, and report progress."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import dataclass
from pathlib import Path

from gogh_core.cluster.slurm import submit
from gogh_core.settings import Settings
from tests.e2e.slurm.lab import Lab

# Each line of <job>.jsonl is something that happened; a second run at the same time says `twice`.
SCRIPT = """#!{python} -ISE
import fcntl, json, os, signal, sys, time
work, job = "{work}", os.environ["SLURM_JOB_ID"]
lock = open(f"{{work}}/{{job}}.lock", "w")
log = os.open(f"{{work}}/{{job}}.jsonl", os.O_WRONLY | os.O_APPEND | os.O_CREAT)

def say(event, **more):
    line = dict(event=event, ts=time.time(), job_id=job, steps=count, attempt=attempt, **more)
    os.write(log, (json.dumps(line) + "\\n").encode())

def checkpoint():
    with open(f"{{work}}/{{job}}.new", "w") as file:
        file.write(str(count))
    os.replace(f"{{work}}/{{job}}.new", f"{{work}}/{{job}}.checkpoint")

def end(number, frame):
    checkpoint()
    say("checkpoint")
    os._exit(143)

count, attempt = 0, int(os.environ.get("SLURM_RESTART_COUNT") or 0)
try:
    count = int(open(f"{{work}}/{{job}}.checkpoint").read())
except OSError:
    pass
try:
    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
except BlockingIOError:
    say("twice")
signal.signal(signal.SIGTERM, end)
gpus = os.environ.get("CUDA_VISIBLE_DEVICES", "")
say("start", node=os.environ["SLURMD_NODENAME"], gpus=gpus, pid=os.getpid())
while True:
    time.sleep(0.1)
    count += 1
    if count % 20 == 0:
        say("progress")
"""


def prepare(lab: Lab) -> None:
    """Put the script where jobs are submitted from."""
    script = lab.work / "count.py"
    script.write_text(SCRIPT.format(python=sys.executable, work=lab.work))
    script.chmod(0o755)


@dataclass(frozen=True)
class Story:
    """What one job did so far."""

    lines: tuple[dict, ...]

    @property
    def starts(self) -> list[dict]:
        return [line for line in self.lines if line["event"] == "start"]

    @property
    def checkpoints(self) -> list[dict]:
        return [line for line in self.lines if line["event"] == "checkpoint"]

    def check(self) -> None:
        """It never ran twice at once, and never went back further than its checkpoint."""
        assert not [line for line in self.lines if line["event"] == "twice"]
        saved = 0
        for line in self.lines:
            if line["event"] == "checkpoint":
                saved = line["steps"]
            if line["event"] == "start":
                assert line["steps"] == saved


def story(lab: Lab, job: str) -> Story:
    path = Path(lab.work) / f"{job}.jsonl"
    text = path.read_text() if path.exists() else ""
    return Story(tuple(json.loads(line) for line in text.splitlines()))


def enqueue(lab: Lab, settings: Settings, **words: object) -> str:
    """Submit one counting job by `gogh submit`; its number."""
    before = Path.cwd()
    os.chdir(lab.work)
    try:
        return submit(settings, {"model": "resnet50", **words}, ["count.py"])
    finally:
        os.chdir(before)
