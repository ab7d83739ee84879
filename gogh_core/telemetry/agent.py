"""The agent on a GPU server: every GPU once a second through NVML, into rotated files of the spool.

A field that a GPU does not have, or that needs more rights, is left empty and not asked for again.
Files are `gpu/<server>-<n>.csv`, written as `.open` and renamed when full or a minute old; the
oldest of this server are removed when they take more than the spool may. A disk that is full or a
driver that is reloaded does not end the agent: it goes on when it can and says what happened.
"""

from __future__ import annotations

import os
import re
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TextIO

from gogh_core.errors import SourceUnavailable

__all__ = ["AGENT_COLUMNS", "Agent", "Devices"]

AGENT_COLUMNS = (
    "ts,server_id,gpu_index,gpu_type,power_w,energy_j,utilisation,memory_used_mb,"
    "temperature_c,sm_clock_mhz,throttle_reasons,processes"
)
ROTATE_S = 60.0
ROTATE_BYTES = 8 * 1024 * 1024
REOPEN_S = 2.0

Tell = Callable[[str], None]


# One field of a sample each: its name for people, and how it is read from a GPU, in our unit.
_FIELDS: tuple[tuple[str, Callable[[Any, Any], object]], ...] = (
    ("power", lambda nvml, gpu: nvml.nvmlDeviceGetPowerUsage(gpu) / 1e3),
    ("energy", lambda nvml, gpu: nvml.nvmlDeviceGetTotalEnergyConsumption(gpu) / 1e3),
    ("utilisation", lambda nvml, gpu: nvml.nvmlDeviceGetUtilizationRates(gpu).gpu / 100),
    ("memory", lambda nvml, gpu: nvml.nvmlDeviceGetMemoryInfo(gpu).used // 2**20),
    (
        "temperature",
        lambda nvml, gpu: nvml.nvmlDeviceGetTemperature(gpu, nvml.NVML_TEMPERATURE_GPU),
    ),
    ("clock", lambda nvml, gpu: nvml.nvmlDeviceGetClockInfo(gpu, nvml.NVML_CLOCK_SM)),
    ("throttle reasons", lambda nvml, gpu: nvml.nvmlDeviceGetCurrentClocksThrottleReasons(gpu)),
    ("processes", lambda nvml, gpu: len(nvml.nvmlDeviceGetComputeRunningProcesses(gpu))),
)


@dataclass(slots=True)
class _Device:
    index: int
    handle: Any
    name: str
    absent: set[str] = field(default_factory=set)
    """Fields this GPU does not have or we may not see."""


class Devices:
    """The GPUs of this server through pynvml; a driver that goes away is asked for again."""

    def __init__(self, tell: Tell = lambda _: None) -> None:
        import pynvml

        self._nvml: Any = pynvml
        self._tell = tell
        self._said: set[str] = set()
        self._reopen_at: float | None = None
        self._devices = self._found()

    @property
    def count(self) -> int:
        """How many GPUs there are."""
        return len(self._devices)

    def _found(self) -> list[_Device]:
        try:
            self._nvml.nvmlInit()
            count = self._nvml.nvmlDeviceGetCount()
        except self._nvml.NVMLError as error:
            raise SourceUnavailable(
                f"NVML gives no answer ({error})",
                where="NVML",
                todo="see whether `nvidia-smi` works",
            ) from error
        return [device for i in range(count) if (device := self._open(i)) is not None]

    def _open(self, index: int) -> _Device | None:
        try:
            handle = self._nvml.nvmlDeviceGetHandleByIndex(index)
            name = self._nvml.nvmlDeviceGetName(handle)
        except self._nvml.NVMLError as error:
            self._say(f"GPU {index} cannot be opened ({error})")
            return None
        return _Device(index, handle, name.decode() if isinstance(name, bytes) else str(name))

    def _say(self, text: str) -> None:
        """Tell it once: what fails would be told each second otherwise."""
        if text not in self._said:
            self._said.add(text)
            self._tell(text)

    def _field(self, device: _Device, name: str, read: Callable[[Any, Any], object]) -> str:
        if name in device.absent:
            return ""
        nvml = self._nvml
        try:
            return str(read(nvml, device.handle))
        except (nvml.NVMLError_NotSupported, nvml.NVMLError_NoPermission) as error:
            device.absent.add(name)
            self._say(f"GPU {device.index} has no {name} for us ({error})")
        except nvml.NVMLError_FunctionNotFound:
            device.absent.add(name)
            self._say(f"this driver knows no {name}")
        except nvml.NVMLError as error:
            self._say(f"GPU {device.index} gives no {name} now ({error})")
        return ""

    def rows(self, server: str, now: float) -> list[str]:
        """One CSV line for each GPU that answers."""
        if self._reopen_at is not None and now >= self._reopen_at:
            self._reopen(now)
        lines = []
        for device in self._devices:
            cells = [self._field(device, name, read) for name, read in _FIELDS]
            if any(cells):
                lines.append(
                    ",".join((f"{now:.3f}", server, str(device.index), device.name, *cells))
                )
        if len(lines) < len(self._devices) and self._reopen_at is None:
            self._reopen_at = now + REOPEN_S
        return lines

    def _reopen(self, now: float) -> None:
        """A GPU that says nothing at all was lost, or its driver was reloaded: begin anew."""
        self.close()
        try:
            self._devices = self._found()
        except SourceUnavailable as error:
            self._devices = []
            self._reopen_at = now + REOPEN_S
            self._say(str(error))
            return
        self._reopen_at = None
        self._said.clear()
        self._tell(f"NVML was opened anew: {len(self._devices)} GPUs")

    def close(self) -> None:
        """Let NVML go."""
        try:
            self._nvml.nvmlShutdown()
        except self._nvml.NVMLError as error:
            self._say(f"NVML was not shut down ({error})")


class Agent:
    """Samples to the spool, with a bound on the disk it takes."""

    def __init__(
        self,
        spool: Path,
        devices: Devices,
        *,
        server: str | None = None,
        limit_mb: int = 512,
        period_s: float = 1.0,
        rotate_s: float = ROTATE_S,
        tell: Tell = lambda _: None,
    ) -> None:
        self.server = server or socket.gethostname().split(".")[0]
        if not re.fullmatch(r"[A-Za-z0-9._-]+", self.server):
            raise SourceUnavailable(f"{self.server!r} is no name for a server", todo="use --server")
        self.folder = spool / "gpu"
        self.dropped = 0
        self._devices = devices
        self._limit = limit_mb * 1024 * 1024
        self._period_s = period_s
        self._rotate_s = rotate_s
        self._tell = tell
        self._stream: TextIO | None = None
        self._path: Path | None = None
        self._opened = 0.0
        self._waiting: list[str] = []

    def run(self, stop: Callable[[], bool], *, samples: int | None = None) -> int:
        """Sample until told to stop (or so many times); the number of rows written."""
        self._finish_old()
        written = 0
        due = time.monotonic()
        while not stop() and (samples is None or samples > 0):
            written += self.once(time.time())
            if samples is not None:
                samples -= 1
            due += self._period_s
            wait = due - time.monotonic()
            if wait > 0:
                time.sleep(wait)
            else:
                due = time.monotonic()  # the machine slept or was stopped: no bunch of samples
        self.close()
        return written

    def once(self, now: float) -> int:
        """One sample of every GPU; what the disk does not take is tried again, then dropped."""
        self._waiting += self._devices.rows(self.server, now)
        if not self._waiting:
            return 0
        try:
            stream = self._open(now)
            stream.write("\n".join(self._waiting) + "\n")
            stream.flush()
        except OSError as error:
            self._trouble(error)
            return 0
        count = len(self._waiting)
        self._waiting = []
        if now - self._opened >= self._rotate_s or stream.tell() > ROTATE_BYTES:
            self.close()
        return count

    def _trouble(self, error: OSError) -> None:
        """Cut the file back to whole lines, keep the last rows in memory, make room."""
        self._tell(f"the spool cannot be written ({error.strerror})")
        keep = 3600
        if len(self._waiting) > keep:
            self.dropped += len(self._waiting) - keep
            self._waiting = self._waiting[-keep:]
        if self._stream is not None:
            try:
                self._stream.close()
            except OSError:
                self._tell("the last lines of the file may be cut off")
            self._stream = None
            self._cut_back()
        self._make_room()

    def _cut_back(self) -> None:
        path = self._path
        if path is None or not path.exists():
            return
        try:
            data = path.read_bytes()
            os.truncate(path, data.rfind(b"\n") + 1)
        except OSError as error:
            self._tell(f"{path.name} could not be cut back ({error.strerror})")
        self._finish_old()

    def _open(self, now: float) -> TextIO:
        if self._stream is None:
            self.folder.mkdir(parents=True, exist_ok=True)
            self._make_room()
            self._path = self.folder / f"{self.server}-{self._next_number()}.csv.open"
            stream = self._path.open("w", encoding="utf-8", buffering=1 << 20)
            stream.write(AGENT_COLUMNS + "\n")
            self._stream, self._opened = stream, now
        return self._stream

    def _mine(self) -> list[tuple[int, Path]]:
        pattern = re.compile(re.escape(self.server) + r"-(\d+)\.csv(\.open)?")
        found = [
            (int(match[1]), path)
            for path in self.folder.glob(f"{self.server}-*")
            if (match := pattern.fullmatch(path.name))
        ]
        return sorted(found)

    def _next_number(self) -> int:
        """Above every number in use, and above those removed: they begin at the time."""
        last = max((number for number, _ in self._mine()), default=0)
        return max(last + 1, int(time.time()))

    def _finish_old(self) -> None:
        """Files that an earlier run left open are whole up to their last line: close them."""
        if not self.folder.is_dir():
            return
        for _, path in self._mine():
            if path.name.endswith(".open"):
                path.rename(path.with_suffix(""))

    def _make_room(self) -> None:
        mine = self._mine()
        total = sum(path.stat().st_size for _, path in mine)
        for _, path in mine:
            if total <= self._limit:
                return
            size = path.stat().st_size
            if path != self._path or self._stream is None:
                path.unlink(missing_ok=True)
                total -= size
                self._tell(f"{path.name} removed: the spool is full")

    def close(self) -> None:
        """Finish the file in use, so that it is taken in."""
        if self._stream is None or self._path is None:
            return
        try:
            self._stream.close()
            self._path.rename(self._path.with_suffix(""))
        except OSError as error:
            self._tell(f"{self._path.name} was not finished ({error.strerror})")
        self._stream = self._path = None
