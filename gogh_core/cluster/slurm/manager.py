"""Slurm as cluster manager, through squeue, sinfo and scontrol.

A job is placed by setting the nodes it must have and what it asks of them, and releasing it; it is
moved by `requeuehold` (Slurm sends SIGTERM, the job writes its checkpoint) and placed again. A job
that may share was submitted with `shard` and gets all shards of a GPU when it is alone, half of
them when it is not. Every step looks first whether it was done already, so that an action that was
interrupted anywhere is simply sent again. Our last key stands in the job's AdminComment.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from gogh_core.cluster.manager import Capabilities
from gogh_core.cluster.slurm.commands import Commands
from gogh_core.cluster.slurm.reading import Node, Reading, Record, parsed, read
from gogh_core.cluster.slurm.text import text_of
from gogh_core.domain import ClusterState, PowerState, Slot
from gogh_core.errors import ActionFailed, ClusterUnavailable, NotCapable
from gogh_core.settings import Settings
from gogh_core.store import now_utc

__all__ = ["SlurmManager"]

# A look at the queue is good for this long while many actions are sent.
_FRESH_S = 0.5
_POLL_S = 0.2
_AGAIN_S = 10.0
_CREDENTIALS_S = 2.0


class SlurmManager:
    """One Slurm cluster."""

    name = "slurm"
    real = True

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._commands = Commands(settings.slurm)
        self._lock = threading.Lock()
        self._last: tuple[float, Reading] | None = None
        # When we last changed each job: older looks at it do not count.
        self._touched: dict[str, float] = {}
        self._json = True
        self._waits_since: dict[str, float] = {}
        self._switches: bool | None = None

    @property
    def capabilities(self) -> Capabilities:
        """Slurm chooses GPU indices and partners itself, and sets no power limits."""
        return Capabilities(
            chooses_gpu_index=False,
            pairs_named_jobs=False,
            sets_power_limits=False,
            switches_servers=self._can_switch(),
            action_timeout_s=self._settings.slurm.action_timeout_s,
            parallel_actions=8,
        )

    def _can_switch(self) -> bool:
        """Whether Slurm's own power saving is configured."""
        if self._switches is None:
            try:
                text = self._commands.read("scontrol", "show", "config")
            except ClusterUnavailable:
                return False
            pairs = (line.split("=", 1) for line in text.splitlines() if "=" in line)
            facts = {name.strip(): value.strip() for name, value in pairs}
            needed = ("SuspendProgram", "ResumeProgram", "SuspendTime")
            self._switches = all(
                facts.get(name, "(null)") not in ("(null)", "", "NONE", "INFINITE")
                for name in needed
            )
        return self._switches

    def state(self) -> ClusterState:
        """Servers and jobs that opted in."""
        return self.reading().state

    def refused(self) -> Mapping[str, str]:
        """Jobs with a comment or gres of which no plan can be made."""
        return self.reading(time.monotonic() - _FRESH_S).refused

    def clock(self) -> datetime:
        """The wall's, which Slurm lives by."""
        return now_utc()

    def advance(self, seconds: float) -> None:
        """Nothing: Slurm's time passes by itself."""

    def reading(self, since: float | None = None) -> Reading:
        """One look at queue and nodes, begun now or not before that (monotonic) time."""
        since = time.monotonic() if since is None else since
        with self._lock:
            if self._last is not None and self._last[0] >= since:
                return self._last[1]
            started = time.monotonic()
            reading = read(*self._jobs_and_nodes(), self._settings, self.clock())
            self._last = (started, reading)
            waiting = {job for job, record in reading.records.items() if record.waits}
            self._waits_since = {job: self._waits_since.get(job, started) for job in waiting}
            return reading

    def _jobs_and_nodes(self) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
        """By JSON where this Slurm has it, by text otherwise."""
        if self._json:
            try:
                nodes = self._commands.read("sinfo", "--json")
                queue = self._commands.read("squeue", "--json")
            except ClusterUnavailable as error:
                if "option" not in error.what:
                    raise
                self._json = False
            else:
                return (
                    parsed(queue, "jobs", "squeue --json"),
                    parsed(nodes, "nodes", "sinfo --json"),
                )
        return text_of(self._commands)

    def place(
        self,
        job: str,
        slots: tuple[Slot, ...],
        *,
        partner: str | None,
        power_limit_w: float | None,
        key: str,
    ) -> None:
        """Start a waiting job on these nodes with so many GPUs."""
        self._refuse_limit(power_limit_w)
        record, gres = self._asked(job, slots, partner)
        if not record.waits:
            if _there(record, slots):
                return
            raise _runs_already(record)
        if not self._start(record, slots, gres, key) and not self._came_there(job, slots):
            raise _runs_already(self._record(job))

    def move(
        self,
        job: str,
        slots: tuple[Slot, ...],
        *,
        partner: str | None,
        power_limit_w: float | None,
        key: str,
    ) -> None:
        """Requeue a running job (it is told to write its checkpoint) and start it there."""
        self._refuse_limit(power_limit_w)
        record, gres = self._asked(job, slots, partner)
        if not record.waits:
            if _there(record, slots):
                return
            record = self._requeue(record)
        if not self._start(record, slots, gres, key) and not self._came_there(job, slots):
            # It started elsewhere meanwhile; held in the queue it cannot do so again.
            self._start(self._requeue(self._record(job)), slots, gres, key)

    def hold(self, job: str, *, key: str) -> None:
        """Requeue a running job and keep it from starting."""
        record = self._record(job)
        if record.waits:
            if not record.held:
                self._commands.do("scontrol", "hold", job)
        else:
            self._requeue(record)
        self._sign(record, key)

    def release(self, job: str, *, key: str) -> None:
        """Let Slurm start the job where it likes."""
        record = self._record(job)
        if not record.waits:
            return
        self._commands.do("scontrol", "update", f"jobid={job}", "ReqNodeList=", "StartTime=now")
        self._sign(record, key)
        self._commands.do("scontrol", "release", job)
        self._touched[job] = time.monotonic()

    def switch(self, server: str, *, on: bool, key: str) -> None:
        """Power a node up or down by Slurm's own power saving."""
        node = self._node(server)
        if not self._can_switch():
            raise NotCapable(
                "power saving is not configured",
                where="slurm.conf",
                todo="set SuspendProgram, ResumeProgram and SuspendTime",
            )
        done = (
            (PowerState.ON, PowerState.SWITCHING_ON)
            if on
            else (PowerState.OFF, PowerState.SWITCHING_OFF)
        )
        if node.power in done:
            return
        if node.power in (PowerState.SWITCHING_ON, PowerState.SWITCHING_OFF):
            # Slurm refuses to turn a node around halfway.
            raise ClusterUnavailable(f"is {node.power.replace('_', ' ')}", where=f"node {server}")
        state = "power_up" if on else "power_down"
        self._commands.do("scontrol", "update", f"nodename={server}", f"state={state}")

    def set_power_limit(self, server: str, gpu: int, watts: float, *, key: str) -> None:
        """Slurm cannot."""
        self._refuse_limit(watts)

    @staticmethod
    def _refuse_limit(watts: float | None) -> None:
        if watts is not None:
            raise NotCapable("Slurm sets no power limits", todo="plan without them")

    def _record(self, job: str) -> Record:
        """The job, if it is one of ours; seen after we last changed it, and not long ago."""
        since = max(time.monotonic() - _FRESH_S, self._touched.get(job, 0.0))
        record = self.reading(since).records.get(job)
        if record is None:
            reading = self.reading()
            record = reading.records.get(job)
            if record is None:
                why = reading.refused.get(job, "is not in the queue, or did not opt in")
                raise ActionFailed(why, where=f"job {job}")
        return record

    def _node(self, server: str) -> Node:
        node = self.reading().nodes.get(server)
        if node is None:
            raise ActionFailed("is not known to Slurm", where=f"node {server}")
        return node

    def _asked(self, job: str, slots: tuple[Slot, ...], partner: str | None) -> tuple[Record, str]:
        """The job, and what it has to ask of each node."""
        record = self._record(job)
        nodes = self.reading(time.monotonic() - _FRESH_S).nodes
        unknown = [slot.server for slot in slots if slot.server not in nodes]
        if unknown or not slots:
            raise ActionFailed("is not known to Slurm", where=f"node {''.join(unknown[:1])}")
        counts = {len(slot.gpus) for slot in slots}
        if len(counts) != 1:
            raise ActionFailed("takes the same number of GPUs of each node", where=f"job {job}")
        count = counts.pop()
        if not record.shares:
            if partner is not None:
                raise ActionFailed(
                    "was submitted for whole GPUs and cannot share one",
                    where=f"job {job}",
                    todo="submit it with --gres=shard:1",
                )
            return record, f"gpu:{count}"
        parts = min(nodes[slot.server].shards_per_gpu for slot in slots)
        if count != 1 or parts < (1 if partner is None else 2):
            raise ActionFailed(
                f"asks for shards of one GPU; {slots[0].server} cannot give {count} GPUs as shards",
                where=f"job {job}",
            )
        return record, f"shard:{parts if partner is None else parts // 2}"

    def _start(self, record: Record, slots: tuple[Slot, ...], gres: str, key: str) -> bool:
        """Say where and what, then release; each time the same, so twice is harmless.

        False where the job started by itself meanwhile: a run that was killed had released it.
        """
        self._let_credentials_expire(record, slots)
        nodes = ",".join(slot.server for slot in slots)
        try:
            self._commands.do(
                "scontrol",
                "update",
                f"jobid={record.id}",
                f"ReqNodeList={nodes}",
                f"NumNodes={len(slots)}",
                f"gres={gres}",
                # A requeued job would otherwise wait two minutes.
                "StartTime=now",
                *self._signature(record, key),
            )
        except ActionFailed as error:
            if "no longer pending" not in error.what.lower():
                raise
            return False
        finally:
            self._touched[record.id] = time.monotonic()
        self._commands.do("scontrol", "release", record.id)
        self._touched[record.id] = time.monotonic()
        return True

    def _came_there(self, job: str, slots: tuple[Slot, ...]) -> bool:
        """Whether a job that started by itself runs where it was to go."""
        return _there(self._record(job), slots)

    def _let_credentials_expire(self, record: Record, slots: tuple[Slot, ...]) -> None:
        """Wait until a requeued job may start on its old node.

        A node revokes the credentials of a job that it ends, to the second: a new start in the
        same second is killed there ("Job credential revoked"), and Slurm gives the job up.
        """
        nodes = self.reading(time.monotonic() - _FRESH_S).nodes
        elsewhere = record.required in nodes and record.required not in {s.server for s in slots}
        if record.restarts == 0 or elsewhere:
            return
        since = self._waits_since.get(record.id, time.monotonic())
        time.sleep(max(0.0, since + _CREDENTIALS_S - time.monotonic()))

    def _requeue(self, record: Record) -> Record:
        """Back into the queue, held; returns the job when Slurm shows it there."""
        deadline = time.monotonic() + self._settings.slurm.action_timeout_s
        again = 0.0
        while not record.waits:
            if record.state != "COMPLETING" and time.monotonic() >= again:
                # Again after a while: a controller that was killed has forgotten it.
                again = time.monotonic() + _AGAIN_S
                self._requeue_once(record.id)
            if time.monotonic() > deadline:
                raise ActionFailed("its processes do not end", where=f"job {record.id}")
            time.sleep(_POLL_S)
            self._touched[record.id] = time.monotonic()
            record = self._record(record.id)
        return record

    def _requeue_once(self, job: str) -> None:
        try:
            self._commands.do("scontrol", "requeuehold", job)
        except ActionFailed as error:
            if "pending" not in error.what.lower():
                raise

    def _signature(self, record: Record, key: str) -> list[str]:
        """Our key for AdminComment, unless the site keeps something of its own there."""
        if record.admin_comment and not record.admin_comment.startswith("gogh "):
            return []
        return [f"AdminComment=gogh {key}"]

    def _sign(self, record: Record, key: str) -> None:
        signature = self._signature(record, key)
        if signature:
            self._commands.do("scontrol", "update", f"jobid={record.id}", *signature)
        self._touched[record.id] = time.monotonic()


def _runs_already(record: Record) -> ActionFailed:
    return ActionFailed(f"runs already, on {', '.join(record.nodes)}", where=f"job {record.id}")


def _there(record: Record, slots: tuple[Slot, ...]) -> bool:
    has = {slot.server: len(slot.gpus) for slot in record.slots}
    return has == {slot.server: len(slot.gpus) for slot in slots} and record.state != "COMPLETING"
