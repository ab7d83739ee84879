"""A real Slurm on one machine: munged, slurmctld and six slurmd as three GPU types.

Everything lives in one folder with ports of its own; each daemon is started and ended by its
process id. GPUs are character devices that nothing opens. `Lab.start` returns when a probe job has
run on every node; `Lab.stop` ends what was started.
"""

from __future__ import annotations

import os
import secrets
import shutil
import signal
import socket
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

NODES = ("v100-1", "v100-2", "a100-1", "a100-2", "t4-1", "t4-2")
GPUS = 4

PATIENCE_S = 120.0

# Slurm starts them without an environment, with closed standard streams and blocked signals.
_PROGRAM = """#!{python}
import os, signal, subprocess, sys, time
null = os.open(os.devnull, os.O_RDWR)
for number in (0, 1, 2):
    os.dup2(null, number)
    os.set_inheritable(number, True)
signal.pthread_sigmask(signal.SIG_SETMASK, ())
os.environ.update(SLURM_CONF="{conf}", PATH="{path}")
time.sleep({pause_s})
ask = ["scontrol", "show", "hostnames", sys.argv[1]]
for node in subprocess.run(ask, capture_output=True, text=True).stdout.split():
    {body}
"""
# No machine starts within a second: one that seems to is taken for one that never went off.
_RESUME = (
    'subprocess.run(["slurmd", "-b", "-N", node, "-f", "{conf}", "-L", "{logs}/" + node + ".log"])'
)
_SUSPEND = 'os.kill(int(open("{run}/slurmd." + node + ".pid").read()), signal.SIGTERM)'


def _free_ports(count: int) -> list[int]:
    sockets = [socket.socket() for _ in range(count)]
    try:
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]
    finally:
        for one in sockets:
            one.close()


def alive(pid: int) -> bool:
    """Whether the process runs (a zombie does not)."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return text.rpartition(")")[2].split()[0] != "Z"


class Lab:
    """One Slurm cluster in one folder."""

    def __init__(self, root: Path, gpus: int = GPUS) -> None:
        self.root = root
        self.gpus = gpus
        self.conf = root / "slurm.conf"
        self.logs = root / "logs"
        self.run = root / "run"
        self.work = root / "work"
        self.environment = {**os.environ, "SLURM_CONF": str(self.conf)}
        self._munged: subprocess.Popen[bytes] | None = None
        self._controller: subprocess.Popen[bytes] | None = None

    # Starting and ending

    def start(self) -> None:
        """Write the files, start every daemon, wait until each node has run a job."""
        for folder in (self.logs, self.run, self.work, self.root / "state", self.root / "spool"):
            folder.mkdir(parents=True)
        self.root.chmod(0o755)
        self.work.chmod(0o777)
        self._write_files()
        self._start_munge()
        self.start_controller()
        for node in NODES:
            self.start_node(node)
        for node in NODES:
            self.wait(lambda node=node: "IDLE" in self.node_state(node), f"{node} idle")  # type: ignore[misc]

    def stop(self) -> None:
        """End everything that was started, the jobs first."""
        if self._controller is not None and self._controller.poll() is None:
            self.slurm("scancel", "--user", "root", check=False)
            deadline = time.monotonic() + 20
            while time.monotonic() < deadline and self.slurm("squeue", "-h", check=False).strip():
                time.sleep(0.2)
        for node in NODES:
            self.stop_node(node)
        self.kill_controller(signal.SIGTERM)
        if self._munged is not None:
            self._munged.terminate()
            self._munged.wait(30)

    def _start_munge(self) -> None:
        key = self.root / "munge.key"
        key.write_bytes(secrets.token_bytes(128))
        key.chmod(0o600)
        arguments = [
            "munged",
            "--foreground",
            "--force",
            f"--socket={self.run}/munge.socket",
            f"--key-file={key}",
            f"--pid-file={self.run}/munged.pid",
            f"--log-file={self.logs}/munged.log",
            f"--seed-file={self.run}/munged.seed",
        ]
        with (self.logs / "munged.out").open("wb") as out:
            self._munged = subprocess.Popen(arguments, stdout=out, stderr=out)
        self.wait((self.run / "munge.socket").exists, "munged's socket")

    def start_controller(self) -> None:
        """Start slurmctld and wait until it answers."""
        with (self.logs / "slurmctld.out").open("ab") as out:
            self._controller = subprocess.Popen(
                ["slurmctld", "-D", "-f", str(self.conf), "-L", str(self.logs / "slurmctld.log")],
                stdout=out,
                stderr=out,
                env=self.environment,
            )
        self.wait(self.answers, "slurmctld's answer")

    def kill_controller(self, how: signal.Signals = signal.SIGKILL) -> None:
        """End slurmctld; SIGTERM lets it save its state first."""
        if self._controller is not None and self._controller.poll() is None:
            self._controller.send_signal(how)
            self._controller.wait(60)
        self._controller = None

    def start_node(self, node: str) -> None:
        """Start one slurmd; it goes into the background and writes its process id."""
        log = self.logs / f"{node}.log"
        subprocess.run(
            ["slurmd", "-N", node, "-f", str(self.conf), "-L", str(log)],
            check=True,
            env=self.environment,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )

    def node_pid(self, node: str) -> int | None:
        """The slurmd of that node, while it runs."""
        try:
            pid = int((self.run / f"slurmd.{node}.pid").read_text())
        except (OSError, ValueError):
            return None
        return pid if alive(pid) else None

    def stop_node(self, node: str, how: signal.Signals = signal.SIGTERM) -> None:
        """End one slurmd."""
        pid = self.node_pid(node)
        if pid is None:
            return
        os.kill(pid, how)
        deadline = time.monotonic() + 30
        while alive(pid) and time.monotonic() < deadline:
            time.sleep(0.05)

    # Files

    def _write_files(self) -> None:
        devices = self.root / "dev"
        devices.mkdir()
        for index in range(self.gpus):
            os.mknod(devices / f"nvidia{index}", 0o666 | stat.S_IFCHR, os.makedev(195, index))
        ports = _free_ports(1 + len(NODES))
        host = socket.gethostname().split(".")[0]
        names = {"conf": self.conf, "logs": self.logs, "run": self.run}
        names |= {"python": sys.executable, "path": os.environ["PATH"]}
        for name, body, pause_s in (("resume", _RESUME, 3), ("suspend", _SUSPEND, 0)):
            path = self.root / name
            text = _PROGRAM.format(**names, body=body.format(**names), pause_s=pause_s)
            path.write_text(text)
            path.chmod(0o755)
        lines = [
            "ClusterName=lab",
            f"SlurmctldHost={host}(127.0.0.1)",
            f"SlurmctldPort={ports[0]}",
            f"AuthInfo=socket={self.run}/munge.socket",
            "AuthType=auth/munge",
            "CredType=cred/munge",
            "SlurmUser=root",
            "SlurmdUser=root",
            f"StateSaveLocation={self.root}/state",
            f"SlurmdSpoolDir={self.root}/spool/%n",
            f"SlurmctldPidFile={self.run}/slurmctld.pid",
            f"SlurmdPidFile={self.run}/slurmd.%n.pid",
            "ProctrackType=proctrack/linuxproc",
            "TaskPlugin=task/none",
            "JobAcctGatherType=jobacct_gather/none",
            "AccountingStorageType=accounting_storage/none",
            "SelectType=select/cons_tres",
            "SelectTypeParameters=CR_CPU",
            "SlurmdParameters=config_overrides",
            "GresTypes=gpu,shard",
            "ReturnToService=2",
            "MpiDefault=none",
            "SwitchType=switch/none",
            "SchedulerType=sched/backfill",
            "SchedulerParameters=bf_interval=2,sched_interval=2,batch_sched_delay=0",
            "KillWait=5",
            "MessageTimeout=10",
            "SlurmdTimeout=20",
            "SlurmctldTimeout=30",
            "InactiveLimit=0",
            "MinJobAge=300",
            "JobRequeue=1",
            f"SuspendProgram={self.root}/suspend",
            f"ResumeProgram={self.root}/resume",
            "SuspendTime=86400",
            "SuspendTimeout=5",
            "ResumeTimeout=120",
        ]
        for node, port in zip(NODES, ports[1:], strict=True):
            kind = node.split("-")[0]
            lines.append(
                f"NodeName={node} NodeAddr=127.0.0.1 NodeHostname={host} Port={port} CPUs=64 "
                f"RealMemory=1000 Gres=gpu:{kind}:{self.gpus},shard:{2 * self.gpus} State=UNKNOWN"
            )
        nodes = ",".join(NODES)
        lines.append(f"PartitionName=gogh Nodes={nodes} Default=YES MaxTime=INFINITE State=UP")
        lines.append(f"PartitionName=other Nodes={nodes} MaxTime=INFINITE State=UP")
        self.conf.write_text("\n".join(lines) + "\n")
        gres = ["AutoDetect=off"]
        for node in NODES:
            kind = node.split("-")[0]
            gres.append(
                f"NodeName={node} Name=gpu Type={kind} File={devices}/nvidia[0-{self.gpus - 1}]"
            )
            gres.append(f"NodeName={node} Name=shard Count={2 * self.gpus}")
        (self.root / "gres.conf").write_text("\n".join(gres) + "\n")

    # Talking to it

    def slurm(self, *arguments: str, check: bool = True, timeout_s: float = 30) -> str:
        """What one Slurm command prints."""
        done = subprocess.run(
            arguments,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
            cwd=self.work,
        )
        if check and done.returncode:
            said = f"{' '.join(arguments)[:200]}: {done.stderr.strip()[:500]}"
            raise RuntimeError(f"{said}\n{self.tail()}")
        return done.stdout

    def answers(self) -> bool:
        """Whether slurmctld answers."""
        try:
            return "UP" in self.slurm("scontrol", "ping", check=False, timeout_s=5)
        except subprocess.TimeoutExpired:
            return False

    def node_state(self, node: str) -> str:
        """Such as `IDLE` or `MIXED+POWERING_DOWN`."""
        for word in self.slurm("scontrol", "show", "node", node).split():
            if word.startswith("State="):
                return word.removeprefix("State=")
        return ""

    def job(self, job: str) -> dict[str, str]:
        """What `scontrol show job -d` says of one job, by its words."""
        text = self.slurm("scontrol", "-d", "show", "job", job)
        return dict(word.split("=", 1) for word in text.split() if "=" in word)

    def submit(self, script: Path, *options: str) -> str:
        """Submit a script, held; the job's number."""
        return self.slurm(
            "sbatch", "--parsable", "--hold", "--requeue", *options, str(script)
        ).strip()

    def wait(self, holds: Callable[[], object], what: str, patience_s: float = PATIENCE_S) -> None:
        """Wait until it holds."""
        deadline = time.monotonic() + patience_s
        while not holds():
            if time.monotonic() > deadline:
                raise AssertionError(f"waited {patience_s:g} s for {what}\n{self.tail()}")
            time.sleep(0.1)

    def tail(self) -> str:
        """The last lines of the controller's log, for whoever has to find out."""
        try:
            lines = (self.logs / "slurmctld.log").read_text(errors="replace").splitlines()
        except OSError:
            return "(no log)"
        return "\n".join(lines[-30:])


def missing() -> Sequence[str]:
    """Programs of Slurm that this machine lacks."""
    names = ("munged", "slurmctld", "slurmd", "sbatch", "scontrol", "squeue", "sinfo")
    return [name for name in names if shutil.which(name) is None]
