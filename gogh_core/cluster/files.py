"""A site of its own: each plan as one JSON file, as a signed POST, or both.

The site writes its state to `state.json` (`gogh.state/1`) in the folder of plans, and takes from
there `<plan>.json` (`gogh.plan/1`, see docs/plan.schema.json). It may answer with
`<plan>.ack.json`: `{"plan": id, "accepted": true, "message": "..."}`. Single actions go the same
way as `<key>.action.json` (`gogh.action/1`). Files appear whole or not at all, and the newest
`KEEP` documents are kept, with what the site answered. With
`webhook.url` set, the same document is posted, and the endpoint's answer is the acknowledgement.
"""

from __future__ import annotations

import json
import os
import re
import secrets
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

from gogh_core.cluster.manager import Capabilities
from gogh_core.cluster.outbound import LONGEST_ANSWER
from gogh_core.cluster.statefile import read_state
from gogh_core.cluster.webhook import post, read_answer
from gogh_core.domain import ClusterState, Plan, Slot
from gogh_core.errors import ActionFailed, ClusterUnavailable, InvalidInput
from gogh_core.settings import Settings
from gogh_core.store import file_errors, now_utc

__all__ = ["KEEP", "FilesManager", "write_whole"]

KEEP = 1000
_STATE = "state.json"


def write_whole(path: Path, text: str) -> None:
    """Write a file that appears whole or not at all, and survives a power cut."""
    path.parent.mkdir(parents=True, exist_ok=True)
    name = path.parent / f".{secrets.token_hex(8)}.open"
    handle = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.replace(name, path)
    except BaseException:
        name.unlink(missing_ok=True)
        raise


class FilesManager:
    """A cluster that takes plans as files or requests."""

    name = "files"
    real = True

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._folder = settings.plans

    @property
    def capabilities(self) -> Capabilities:
        """The site does what the plan says; how long it takes is the site's affair."""
        return Capabilities(True, True, True, True, action_timeout_s=120.0)

    def state(self) -> ClusterState:
        """What the site last wrote to `state.json`, without the records that are refused."""
        return self._read()[0]

    def _read(self) -> tuple[ClusterState, Mapping[str, str]]:
        path = self._folder / _STATE
        try:
            raw = json.loads(path.read_text(encoding="utf-8"))
            return read_state(raw, where=str(path))
        except FileNotFoundError as error:
            raise ClusterUnavailable(
                "is not there", where=str(path), todo="the site writes it (docs/cluster.md)"
            ) from error
        except (OSError, ValueError, RecursionError, InvalidInput) as error:
            raise ClusterUnavailable(f"cannot be read: {error}", where=str(path)) from error

    def refused(self) -> Mapping[str, str]:
        """Records of `state.json` that cannot be read, with the reason."""
        return self._read()[1]

    def clock(self) -> datetime:
        """The wall's; the site's file may be a while old."""
        return now_utc()

    def advance(self, seconds: float) -> None:
        """Nothing: a site's time passes by itself."""

    def deliver(self, plan: Plan, *, key: str) -> str:
        """Hand a plan over; what the site said so far. The same plan is written once."""
        return self._send(plan.to_json(), _safe(plan.id), key)

    def place(
        self,
        job: str,
        slots: tuple[Slot, ...],
        *,
        partner: str | None,
        power_limit_w: float | None,
        key: str,
    ) -> None:
        """Ask the site to start a waiting job."""
        self._check(job=job, slots=slots)
        self._act("place", key, job=job, slots=slots, partner=partner, limit=power_limit_w)

    def move(
        self,
        job: str,
        slots: tuple[Slot, ...],
        *,
        partner: str | None,
        power_limit_w: float | None,
        key: str,
    ) -> None:
        """Ask the site to move a running job."""
        self._check(job=job, slots=slots)
        self._act("move", key, job=job, slots=slots, partner=partner, limit=power_limit_w)

    def hold(self, job: str, *, key: str) -> None:
        """Ask the site to stop a job."""
        self._check(job=job)
        self._act("hold", key, job=job)

    def release(self, job: str, *, key: str) -> None:
        """Ask the site to schedule the job by itself."""
        self._check(job=job)
        self._act("release", key, job=job)

    def switch(self, server: str, *, on: bool, key: str) -> None:
        """Ask the site to switch a server."""
        self._check(server=server)
        self._act("on" if on else "off", key, server=server)

    def set_power_limit(self, server: str, gpu: int, watts: float, *, key: str) -> None:
        """Ask the site to limit a GPU."""
        self._check(server=server)
        self._act("limit", key, server=server, gpu=gpu, limit=watts)

    def _check(
        self, *, job: str | None = None, server: str | None = None, slots: tuple[Slot, ...] = ()
    ) -> None:
        state = self.state()
        if job is not None and state.job(job) is None:
            raise ActionFailed("is not known to the site", where=f"job {job}")
        for name in [server] if server else [slot.server for slot in slots]:
            if state.server(name) is None:
                raise ActionFailed("is not known to the site", where=f"server {name}")

    def _act(
        self,
        action: str,
        key: str,
        *,
        slots: tuple[Slot, ...] = (),
        limit: float | None = None,
        **subject: Any,
    ) -> None:
        document = {
            "schema": "gogh.action/1",
            "key": key,
            "action": action,
            "slots": [slot.to_dict() for slot in slots],
            "power_limit_w": limit,
            **subject,
        }
        text = json.dumps(document, sort_keys=True, ensure_ascii=False)
        self._send(text, _safe(key) + ".action", key)

    def _send(self, text: str, name: str, key: str) -> str:
        """Write the document, post it where the settings say so; the site's word about it."""
        path = self._folder / f"{name}.json"
        if not path.exists():
            with file_errors(path):
                write_whole(path, text)
                self._drop_oldest()
        said = post(self._settings.webhook, text, key) if self._settings.webhook.url else ""
        acknowledgement = self._folder / f"{name}.ack.json"
        try:
            with acknowledgement.open("rb") as file:
                answer = file.read(LONGEST_ANSWER + 1)
        except FileNotFoundError:
            return said or f"written to {path.name}"
        return read_answer(answer, where=str(acknowledgement))

    def _drop_oldest(self) -> None:
        """A site takes its documents soon; those of long ago go."""
        ours = [
            p for p in self._folder.glob("*.json") if not p.name.endswith((".ack.json", _STATE))
        ]
        ours.sort(key=lambda path: path.stat().st_mtime_ns)
        for old in ours[:-KEEP]:
            old.unlink(missing_ok=True)
            old.with_name(old.name.removesuffix(".json") + ".ack.json").unlink(missing_ok=True)


def _safe(name: str) -> str:
    """A plan's or action's identity as the name of a file."""
    return re.sub(r"[^A-Za-z0-9._-]", "_", name).lstrip(".")[:150] or "plan"
