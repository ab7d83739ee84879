"""The loop that sends actions and watches them come true.

`Run` sends every action whose needs are met, reads the state once for all of them, and settles
what it shows. Actions that fail stop only those that need them. `patiently` tries again, with
growing waits and for a bounded time, what failed because the manager gave no answer.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Literal, TypeVar

from gogh_core.cluster.actions import Action, Kind
from gogh_core.cluster.approvals import Pause, paused
from gogh_core.cluster.fit import Now, came_true, misfit, shown
from gogh_core.cluster.journal import SETTLED, ActionRecord, ActionState, Journal
from gogh_core.cluster.manager import ClusterManager
from gogh_core.domain import JobState
from gogh_core.errors import ClusterError, ClusterUnavailable, InvalidInput
from gogh_core.settings import Settings

__all__ = ["Run", "patiently"]

T = TypeVar("T")

_LONGEST_WAIT_S = 4.0
_LONGEST_POLL_S = 1.0
# Where a manager answers at once or not at all, an answer is still waited for this long.
_LEAST_PATIENCE_S = 2.0
# After so many actions in a row without an answer the manager is taken for broken.
_SILENT_ACTIONS = 3
# Actions are written as sent in chunks of a share of those that are ready: a large plan costs few
# transactions, a small one is exact to the action.
_CHUNK_SHARE = 8
_SMALLEST_CHUNK = 4
_LARGEST_CHUNK = 512
# What was marked as sent and then was not.
_UNSENT = object()
_OVER = (JobState.FINISHED, JobState.FAILED, JobState.CANCELLED)


def patiently(
    call: Callable[[], T], timeout_s: float, sleep: Callable[[float], None] = time.sleep
) -> T:
    """The call's result; while the manager gives no answer it is tried again, for that long."""
    deadline = time.monotonic() + max(timeout_s, _LEAST_PATIENCE_S)
    wait_s = 0.1
    while True:
        try:
            return call()
        except ClusterUnavailable:
            if time.monotonic() + wait_s > deadline:
                raise
        sleep(wait_s)
        wait_s = min(_LONGEST_WAIT_S, wait_s * 2)


class _Stopped(Exception):
    """Somebody turned the switch."""

    def __init__(self, switch: Pause) -> None:
        self.switch = switch
        super().__init__(switch.why)


class Run:
    """The unsettled rest of one plan, on its way."""

    def __init__(
        self,
        records: Sequence[ActionRecord],
        journal: Journal,
        manager: ClusterManager,
        settings: Settings,
        sleep: Callable[[float], None],
    ) -> None:
        self._actions = {record.action.id: record.action for record in records}
        self._states: dict[str, ActionState] = {r.action.id: r.state for r in records}
        self._reasons = {r.action.id: r.reason for r in records}
        self._journal = journal
        self._manager = manager
        self._settings = settings
        self._sleep = sleep
        self.timeout_s = manager.capabilities.action_timeout_s
        # Sent before this process began: nobody knows whether the manager got them.
        self._unknown = {name for name, state in self._states.items() if state == "sent"}
        self._deadlines: dict[str, float] = {}
        self._silent = 0
        # Sent by this process.
        self._mine: list[str] = []
        self._capabilities = manager.capabilities
        # Why nothing more is sent: the switch, or a manager that is gone.
        self._halted: _Stopped | ClusterUnavailable | None = None

    @property
    def unsettled(self) -> list[Action]:
        """Actions that are intended or sent, in their order."""
        return [a for name, a in self._actions.items() if self._states[name] not in SETTLED]

    def to_the_end(self) -> tuple[Literal["done", "paused"], str]:
        """Send, watch and settle until nothing is left; ClusterUnavailable leaves the rest."""
        poll_s = 0.05
        try:
            while self.unsettled:
                self._check_switch()
                now = self._now()
                settled = self._settle(now)
                sent = self._send_ready(now)
                if settled or sent or self.timeout_s == 0:
                    poll_s = 0.05
                if self.unsettled and not (settled or self.timeout_s == 0):
                    self.write()
                    self._sleep(poll_s)
                    poll_s = min(_LONGEST_POLL_S, poll_s * 1.6)
            self._look_again()
        except _Stopped as stopped:
            return "paused", f"paused by {stopped.switch.who}: {stopped.switch.why}"
        return "done", ""

    def send_all(self) -> None:
        """Write everything that is left as sent: the whole plan goes out at once."""
        self._note([(a.id, "sent", "with the plan") for a in self.unsettled])
        self.write()

    def fail_all(self, reason: str) -> None:
        """Nothing of what was sent will come true."""
        self._note([(a.id, "failed", reason) for a in self.unsettled])

    def settle_shown(self) -> None:
        """Confirm what the cluster already shows."""
        now = self._now()
        self._note([(a.id, "confirmed", "") for a in self.unsettled if came_true(a, now)])

    def _check_switch(self) -> None:
        switch = paused(self._settings)
        if switch is not None:
            raise _Stopped(switch)

    def _now(self) -> Now:
        """The state, patiently; time without an answer does not count against actions."""
        started = time.monotonic()
        state = patiently(self._manager.state, self.timeout_s, self._sleep)
        silence_s = time.monotonic() - started
        self._deadlines = {name: at + silence_s for name, at in self._deadlines.items()}
        return Now(state, self._capabilities)

    def _note(self, steps: Sequence[tuple[str, ActionState, str]]) -> None:
        """Remember that actions got further; it is written before the next one is sent.

        What is lost by a crash in between is seen again in the cluster's state.
        """
        self._journal.note(steps)
        for name, state, reason in steps:
            self._states[name] = state
            self._reasons[name] = reason

    def write(self) -> None:
        """Put into the journal what is remembered."""
        self._journal.write()

    def _settle(self, now: Now) -> bool:
        """Settle what was sent and is true, ended or late; whether anything was."""
        steps: list[tuple[str, ActionState, str]] = []
        for action in self.unsettled:
            if self._states[action.id] != "sent":
                continue
            if came_true(action, now):
                steps.append((action.id, "confirmed", ""))
            elif action.job is not None and self._over(action.job, now):
                steps.append((action.id, "failed", f"job {action.job} ended before it was so"))
            elif action.id not in self._unknown and time.monotonic() > self._deadlines[action.id]:
                steps.append((action.id, "failed", self._late(action, now)))
        self._note(steps)
        return bool(steps)

    def _look_again(self) -> None:
        """What was confirmed on the way and is not so at the end is no success.

        A controller that was killed may have forgotten what it had shown before.
        """
        now = self._now()
        for name in self._mine:
            action = self._actions[name]
            if self._states[name] != "confirmed" or action.job is None:
                continue
            if action.kind is Kind.HOLD and self._placed_again(action.job):
                continue
            if not came_true(action, now) and not self._over(action.job, now):
                self._note([(name, "failed", "it was so for a while, and is not any more")])

    def _placed_again(self, job: str) -> bool:
        return f"place:{job}" in self._actions

    @staticmethod
    def _over(job: str, now: Now) -> bool:
        status = now.jobs.get(job)
        return status is None or status.state in _OVER

    def _late(self, action: Action, now: Now) -> str:
        """Why it counts as failed; a job that still waits must not start behind our back."""
        reason = f"not so after {self.timeout_s:g} s"
        if action.job is None or action.kind is Kind.HOLD:
            return reason
        status = now.jobs[action.job]
        if status.state is not JobState.WAITING:
            return f"{reason}: job {action.job} is {status.state} on {shown(status.slots)}"
        try:
            self._manager.hold(action.job, key=f"{self._key(action)}/back")
        except ClusterError as error:
            return f"{reason}: job {action.job} waits, and could not be put back ({error})"
        return f"{reason}: job {action.job} was put back to wait"

    def _send_ready(self, now: Now) -> bool:
        """Send what has its needs settled; whether anything was sent or skipped."""
        ready: list[Action] = []
        steps: list[tuple[str, ActionState, str]] = []
        for action in self.unsettled:
            resent = action.id in self._unknown
            if self._states[action.id] == "sent" and not resent:
                continue
            if any(self._states.get(need, "confirmed") not in SETTLED for need in action.needs):
                continue
            if came_true(action, now):
                steps.append((action.id, "confirmed", "it was so already"))
                continue
            reason = None if resent else misfit(action, now)
            if reason is None:
                ready.append(action)
            else:
                steps.append((action.id, "skipped", self._explained(action, reason)))
        self._note(steps)
        smallest = max(_SMALLEST_CHUNK, self._capabilities.parallel_actions)
        size = min(_LARGEST_CHUNK, max(smallest, len(ready) // _CHUNK_SHARE))
        for start in range(0, len(ready), size):
            self._check_switch()
            self._send_chunk(ready[start : start + size])
        return bool(steps or ready)

    def _explained(self, action: Action, reason: str) -> str:
        """The reason, with the action it had to wait for and that did not come true."""
        for need in action.needs:
            if self._states.get(need, "confirmed") != "confirmed":
                return f"{reason}; {need} was {self._states[need]}: {self._reasons[need]}"
        return reason

    def _send_chunk(self, chunk: Sequence[Action]) -> None:
        """Write the actions as sent, send them, and remember those that were refused."""
        self._note([(action.id, "sent", "") for action in chunk])
        self.write()
        if self._capabilities.parallel_actions > 1:
            with ThreadPoolExecutor(self._capabilities.parallel_actions) as pool:
                outcomes = list(pool.map(self._attempt, chunk))
        else:
            outcomes = [self._attempt(action) for action in chunk]
        for action, outcome in zip(chunk, outcomes, strict=True):
            if outcome is _UNSENT:
                self._note([(action.id, "intended", f"not sent: {self._halted}")])
                continue
            if not isinstance(outcome, ClusterUnavailable):
                self._unknown.discard(action.id)
            self._mine.append(action.id)
            self._deadlines[action.id] = time.monotonic() + self.timeout_s
            if isinstance(outcome, str):
                self._note([(action.id, "failed", outcome)])
        if self._halted is not None:
            raise self._halted

    def _attempt(self, action: Action) -> str | ClusterUnavailable | object | None:
        """Send one action: None, why it failed, _UNSENT, or that nobody knows if it arrived."""
        try:
            if self._halted is None:
                self._check_switch()
                return self._send(action)
        except _Stopped as stopped:
            self._halted = stopped
        except ClusterUnavailable as error:
            self._halted = error
            return error
        return _UNSENT

    def _send(self, action: Action) -> str | None:
        """Send one action; why it failed, or None. Raises when the manager is gone altogether."""
        try:
            patiently(lambda: self._do(action), self.timeout_s, self._sleep_or_stop)
        except ClusterUnavailable as error:
            self._silent += 1
            if self._silent >= _SILENT_ACTIONS:
                raise
            self._manager.state()
            return f"no answer: {error}"
        except (ClusterError, InvalidInput) as error:
            self._silent = 0
            return str(error)
        self._silent = 0
        return None

    def _sleep_or_stop(self, seconds: float) -> None:
        self._check_switch()
        self._sleep(seconds)

    def _key(self, action: Action) -> str:
        return f"{self._journal.plan_id}/{action.id}"

    def _do(self, action: Action) -> None:
        key, job, server = self._key(action), action.job or "", action.server or ""
        if action.kind is Kind.HOLD:
            self._manager.hold(job, key=key)
        elif action.kind in (Kind.ON, Kind.OFF):
            self._manager.switch(server, on=action.kind is Kind.ON, key=key)
        elif action.kind is Kind.LIMIT:
            for gpu in action.slots[0].gpus:
                self._manager.set_power_limit(
                    server, gpu, action.power_limit_w or 0.0, key=f"{key}/{gpu}"
                )
        else:
            send = self._manager.place if action.kind is Kind.PLACE else self._manager.move
            send(
                job,
                action.slots,
                partner=action.partner,
                power_limit_w=action.power_limit_w,
                key=key,
            )
