"""Who wrote a file of the spool: GOGH's own user and its agents, or the owner of a job.

GOGH's user, root and the users of `telemetry.agents` are believed in every folder. Any other user
is believed in `progress/` alone, and there only of jobs of their own: the contract of
`job_progress` compares `written_by` with the owner that the cluster manager tells.
"""

from __future__ import annotations

import os
import pwd
from collections.abc import Sequence
from dataclasses import replace

import pyarrow as pa
import pyarrow.compute as pc

from gogh_core.settings import Settings
from gogh_core.telemetry.spool import Found

__all__ = ["Writers", "prepare_spool"]

_SHARED = 0o1733  # anybody may leave a file; nobody sees or removes those of others


class Writers:
    """Whose files are believed."""

    def __init__(self, settings: Settings) -> None:
        self._own = {os.geteuid(), 0}
        for name in settings.telemetry.agents:
            try:
                self._own.add(pwd.getpwnam(name).pw_uid)
            except KeyError:
                if name.isascii() and name.isdigit():
                    self._own.add(int(name))

    def judged(self, found: Found) -> Found:
        """The file, refused where its writer has no business in that folder."""
        if found.refused is not None or found.uid < 0:
            return found
        why = None
        if found.writable:
            why = "can be written by anybody; take that right away (chmod o-w)"
        elif found.uid not in self._own and found.folder != "progress":
            why = (
                f"is written by {_name(found.uid)}; {found.folder}/ takes files of GOGH's own "
                "user, root and telemetry.agents"
            )
        return found if why is None else replace(found, refused=why)

    def written_by(self, found: Found) -> str | None:
        """The user, where it is none of GOGH's own."""
        return None if found.uid < 0 or found.uid in self._own else _name(found.uid)

    def marked(self, rows: pa.Table, files: Sequence[Found]) -> pa.Table:
        """Reports with `written_by`; `files` is the file of each part."""
        if "written_by" not in rows.column_names or not len(rows):
            return rows
        names = pa.array([self.written_by(found) for found in files], pa.string())
        index = rows.column_names.index("written_by")
        return rows.set_column(index, "written_by", pc.take(names, rows["part"]))


def _name(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def prepare_spool(settings: Settings) -> None:
    """Make `progress/` a place for every job's owner, where the spool is outside of `home`."""
    spool = settings.spool
    if not spool.is_dir() or spool.is_symlink():
        return
    if spool.resolve().is_relative_to(settings.home.resolve()):
        return  # nobody else gets there
    folder = spool / "progress"
    folder.mkdir(exist_ok=True)
    facts = folder.lstat()
    if facts.st_uid == os.geteuid() and facts.st_mode & 0o7777 != _SHARED:
        handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            os.fchmod(handle, _SHARED)
        finally:
            os.close(handle)
