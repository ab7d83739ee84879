"""The embedded cluster as a cluster manager: the world, its disk, its spool.

Every method takes the lock, looks what other processes did meanwhile, does one thing, and commits
it. `advance` runs the clock; actions take effect at the virtual now.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gogh_core.cluster import Capabilities
from gogh_core.domain import ClusterState, JobStatus, ServerStatus, Slot, utc
from gogh_core.errors import ActionFailed, ClusterError, InvalidInput
from gogh_core.settings import Settings, SimulationSettings
from gogh_core.simulation import actions
from gogh_core.simulation.building import new_world
from gogh_core.simulation.disk import Disk
from gogh_core.simulation.metrics import Metrics, between, meter_row
from gogh_core.simulation.rates import EPSILON
from gogh_core.simulation.recorder import SpoolRecorder
from gogh_core.simulation.records import JobRecord
from gogh_core.simulation.released import place_released
from gogh_core.simulation.world import World

if TYPE_CHECKING:
    from gogh_core.store import Store

__all__ = ["SAMPLE_PERIOD_S", "SimulatedCluster", "open_cluster"]

SAMPLE_PERIOD_S = 10
"""Each GPU is sampled, and each job reports, this often on the virtual clock."""
_COMMIT_S = 3600  # a long advance is committed in stretches of this length
_METER_S = 60
SPOOL_S = 86_400
"""Its telemetry files are taken out of the spool after this time on the virtual clock."""
_SHOWN_S = 3600.0  # ended jobs stay in `state` this long, so that everybody learns of it
_KEYS_S = 86_400.0  # keys of actions are remembered this long


class SimulatedCluster:
    """A cluster that stands in for a real one, behind the same protocol."""

    name = "simulated"
    real = False
    capabilities = Capabilities(
        chooses_gpu_index=True,
        pairs_named_jobs=True,
        sets_power_limits=True,
        switches_servers=True,
        action_timeout_s=0.0,
    )

    def __init__(
        self, home: Path, settings: SimulationSettings, *, spool: Path | None = None
    ) -> None:
        """Open the cluster that lives in `home`; where there is none, one is made."""
        self._settings = settings
        self._disk = Disk(home, spool or home / "spool")
        self._world = new_world(settings)
        self._late: list[list[Any]] = []
        self._keys: dict[str, float] = {}
        with self._disk.lock():
            if not self._disk.exists:
                nothing = meter_row(0.0, self._world.totals)
                self._world.settle()
                self._commit([nothing])
            else:
                self._load()

    # -- reading ---------------------------------------------------------------------------

    @property
    def now(self) -> datetime:
        """The virtual clock."""
        with self._disk.lock():
            self._load()
            return self._world.now

    def state(self) -> ClusterState:
        """Everything as it is at the virtual now."""
        with self._disk.lock():
            self._load()
            world = self._world
            servers = tuple(
                ServerStatus(
                    server=record.server,
                    power=record.power,
                    drain=record.drain,
                    foreign_gpus=tuple(record.dead),
                    since=world.moment(record.since_s),
                )
                for record in world.servers.values()
            )
            users: dict[Slot, list[str]] = {}
            for record in world.jobs.values():
                for place in record.places:
                    users.setdefault(place.slot, []).append(record.id)
            jobs = tuple(self._status(record, users) for record in world.jobs.values())
            return ClusterState(at=world.now, servers=servers, jobs=jobs)

    def refused(self) -> Mapping[str, str]:
        """Jobs and servers whose record on disk cannot be read, with the reason."""
        with self._disk.lock():
            self._load()
            return dict(self._world.refused)

    def metrics(self, since: datetime | None = None, until: datetime | None = None) -> Metrics:
        """Energy, promises kept, jobs and watts between two moments of the virtual clock."""
        with self._disk.lock():
            self._load()
            world = self._world
            rows = [*self._disk.rows("meter"), meter_row(world.now_s, world.totals)]
            start = world.start
            since_s = (utc(since) - start).total_seconds() if since else 0.0
            until_s = (utc(until) - start).total_seconds() if until else world.now_s
            return between(rows, since_s, until_s)

    # -- the clock -------------------------------------------------------------------------

    def clock(self) -> datetime:
        """The virtual clock, as every cluster manager is asked for its time."""
        return self.now

    def advance(self, seconds: float) -> None:
        """Run the world for so long; telemetry goes to the spool."""
        if seconds < 0:
            raise InvalidInput(f"the clock cannot go back {-seconds:g} s")
        with self._disk.lock():
            self._load()
            self._run_to(self._world.now_s + seconds)

    def advance_to_event(self, moment: datetime) -> datetime:
        """Run up to a moment, or until a job has come, ended or lost its place, if sooner."""
        with self._disk.lock():
            self._load()
            return self._run_to((utc(moment) - self._world.start).total_seconds(), wake=True)

    def advance_to(self, moment: datetime) -> datetime:
        """Run the world up to a moment; where it is later already, nothing happens."""
        with self._disk.lock():
            self._load()
            return self._run_to((utc(moment) - self._world.start).total_seconds())

    def _run_to(self, end_s: float, *, wake: bool = False) -> datetime:
        world = self._world
        seen = _standing(world)
        while world.now_s < end_s and not (wake and _standing(world) != seen):
            self._stretch(min(end_s, (world.now_s // _COMMIT_S + 1) * _COMMIT_S), wake=wake)
        return world.now

    def _stretch(self, end_s: float, *, wake: bool = False) -> None:
        with self._undone_on_error():
            world = self._world
            seen = _standing(world)
            recorder = SpoolRecorder(self._settings, self._late)
            meter = []
            while world.now_s < end_s:
                world.settle()
                place_released(world)
                edge_s = (world.now_s // SAMPLE_PERIOD_S + 1) * SAMPLE_PERIOD_S
                world.tick(min(end_s, edge_s), recorder)
                if world.now_s % _METER_S == 0:
                    meter.append(meter_row(world.now_s, world.totals))
                world.settle()
                if wake and _standing(world) != seen:
                    break
            files = recorder.files(world)
            self._late = recorder.late
            self._commit(meter, files)
            self._disk.prune(round(world.now.timestamp()) - SPOOL_S)

    # -- actions ---------------------------------------------------------------------------

    def place(
        self,
        job: str,
        slots: tuple[Slot, ...],
        *,
        partner: str | None,
        power_limit_w: float | None,
        key: str,
    ) -> None:
        """Start a waiting job there; who shares is whoever has the same slot."""
        where = [slot.to_dict() for slot in slots]
        self._act(key, "place", job_id=job, slots=where, power_limit_w=power_limit_w)

    def move(
        self,
        job: str,
        slots: tuple[Slot, ...],
        *,
        partner: str | None,
        power_limit_w: float | None,
        key: str,
    ) -> None:
        """Carry a running job over; it is MOVING on its new slots until it has started again."""
        where = [slot.to_dict() for slot in slots]
        self._act(key, "move", job_id=job, slots=where, power_limit_w=power_limit_w)

    def hold(self, job: str, *, key: str) -> None:
        """Stop a job and let it wait."""
        self._act(key, "hold", job_id=job)

    def release(self, job: str, *, key: str) -> None:
        """Leave a job to the cluster's own first-come-first-served scheduler."""
        self._act(key, "release", job_id=job)

    def switch(self, server: str, *, on: bool, key: str) -> None:
        """Switch a server on or off; it takes its time on the virtual clock."""
        self._act(key, "switch", server_id=server, on=on)

    def set_power_limit(self, server: str, gpu: int, watts: float, *, key: str) -> None:
        """Limit what one GPU may draw."""
        self._act(key, "limit", server_id=server, gpu=gpu, watts=watts)

    def fault(self, kind: str, target: str, *, key: str | None = None) -> None:
        """Let something break: gpu_dies, server_vanishes, job_crashes, telemetry_stops."""
        try:
            self._act(key, "fault", kind=kind, target=target)
        except ActionFailed as error:
            raise InvalidInput(error.what, where=error.where, todo=error.todo) from error

    def _act(self, key: str | None, do: str, **told: Any) -> None:
        with self._disk.lock():
            self._load()
            if key is not None and key in self._keys:
                return
            action = {"do": do, "told": told, "key": key}
            with self._undone_on_error():
                self._carry(action)
                self._disk.add(action)

    def _carry(self, action: Mapping[str, Any]) -> None:
        """What an action does, now or when it is read again."""
        actions.carry(self._world, action["do"], action["told"])
        if action["do"] != "fault":
            self._world.decided()
        if action["key"] is not None:
            self._keys[action["key"]] = self._world.now_s

    # -- disk ------------------------------------------------------------------------------

    @contextmanager
    def _undone_on_error(self) -> Iterator[None]:
        """What was not committed did not happen."""
        try:
            yield
        except BaseException:
            self._disk.forget()
            raise

    def _load(self) -> None:
        with self._undone_on_error():
            state, changed, done = self._disk.load()
            if changed:
                self._restore(state)
            for action in done:
                self._carry(action)

    def _restore(self, state: Mapping[str, Any]) -> None:
        if state["settings"] != self._fingerprint():
            raise ClusterError(
                "this cluster was made with other simulation settings",
                where=str(self._disk.home),
                todo="use those, or begin with a fresh home",
            )
        world = new_world(self._settings)
        world.restore(state["world"])
        self._world = world
        self._late = state["late"]
        self._keys = state["keys"]

    def _fingerprint(self) -> dict[str, Any]:
        """Settings that a running cluster cannot change: the rates of bad telemetry may."""
        free = {"garbage_rate", "gap_rate", "late_rate"}
        return self._settings.model_dump(mode="json", exclude=free)

    def _commit(self, meter: list[dict[str, float]], files: dict[str, bytes] | None = None) -> None:
        world = self._world
        ended = [record.to_dict() for record in world.ended]
        world.ended.clear()
        for record in list(world.jobs.values()):
            if record.ended_s is not None and record.ended_s < world.now_s - _SHOWN_S:
                del world.jobs[record.id]
        self._keys = {k: at for k, at in self._keys.items() if at >= world.now_s - _KEYS_S}
        state = {
            "settings": self._fingerprint(),
            "world": world.to_dict(),
            "late": self._late,
            "keys": self._keys,
        }
        self._disk.commit(state, files or {}, {"ended": ended, "meter": meter})

    def _status(self, record: JobRecord, users: Mapping[Slot, list[str]]) -> JobStatus:
        world = self._world
        job = replace(record.demand.job, required_throughput=world.required(record))
        slots = tuple(place.slot for place in record.places)
        partners = {name for slot in slots for name in users[slot] if name != record.id}
        return JobStatus(
            job=job,
            state=record.state,
            slots=slots,
            starting=tuple(
                place.slot
                for place in record.places
                if record.pending is None and place.ready_s > world.now_s + EPSILON
            ),
            since=world.moment(record.since_s),
            partners=tuple(sorted(partners)),
            moved_at=world.moment(record.moved_s) if record.moved_s is not None else None,
            moves=record.moves,
            steps_done=record.steps,
            power_limit_w=record.limit_w,
        )


def _standing(world: World) -> frozenset[tuple[str, bool]]:
    """Which jobs there are, and which of them have a place."""
    return frozenset((job.id, bool(job.places)) for job in world.jobs.values() if job.active)


def open_cluster(settings: Settings, store: Store | None = None) -> SimulatedCluster:
    """The embedded cluster of these settings, below their home."""
    return SimulatedCluster(
        settings.below_home(Path("cluster")), settings.simulation, spool=settings.spool
    )
