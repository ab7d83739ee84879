"""Messages between ingest and the process that reads files: JSON with a length, and one open file.

Tables go through memory that is sealed before it is handed over, so they are mapped, not copied,
and what was sent cannot change or shrink afterwards. Nothing that arrives here is executed.
"""

from __future__ import annotations

import fcntl
import json
import os
import socket
import struct
from typing import Any

import pyarrow as pa

from gogh_core.errors import BatchRefused

__all__ = ["Hung", "receive", "send", "send_table"]

_HEADER = struct.Struct("!IB")
_MOST_BYTES = 256 * 2**20
_SEALS = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_WRITE | fcntl.F_SEAL_SEAL


class Hung(Exception):
    """The other side is gone, or says nothing that can be understood."""


def send(connection: socket.socket, message: dict[str, Any], handle: int | None = None) -> None:
    """One message, with an open file where there is one."""
    data = json.dumps(message).encode()
    header = _HEADER.pack(len(data), handle is not None)
    if handle is None:
        connection.sendall(header + data)
        return
    socket.send_fds(connection, [header], [handle])
    connection.sendall(data)


def send_table(connection: socket.socket, message: dict[str, Any], rows: pa.Table) -> None:
    """One message and the table that belongs to it."""
    handle = os.memfd_create("gogh-rows", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    try:
        with (
            os.fdopen(os.dup(handle), "wb") as stream,
            pa.ipc.new_stream(stream, rows.schema) as writer,
        ):
            writer.write_table(rows)
        fcntl.fcntl(handle, fcntl.F_ADD_SEALS, _SEALS)
        send(connection, message, handle)
    except OSError as error:
        if error.errno == 27:  # EFBIG, by the limit of the process
            raise BatchRefused("unpacks to more than one batch may hold", where="rows") from error
        raise
    finally:
        os.close(handle)


def receive(connection: socket.socket) -> tuple[dict[str, Any], pa.Table | None]:
    """The next message and its table; Hung where the other side is gone."""
    header, handles, _, _ = socket.recv_fds(connection, _HEADER.size, 1)
    try:
        while len(header) < _HEADER.size:
            header += _some(connection, _HEADER.size - len(header))
        size, _ = _HEADER.unpack(header)
        if size > _MOST_BYTES:
            raise Hung(f"a message of {size} bytes")
        data = bytearray()
        while len(data) < size:
            data += _some(connection, min(size - len(data), 1 << 20))
        table = _table(handles[0]) if handles else None
    finally:
        for handle in handles:
            os.close(handle)
    message = json.loads(bytes(data))
    if not isinstance(message, dict):
        raise Hung("no message")
    return message, table


def _some(connection: socket.socket, count: int) -> bytes:
    data = connection.recv(count)
    if not data:
        raise Hung("end of messages")
    return data


def _table(handle: int) -> pa.Table:
    if fcntl.fcntl(handle, fcntl.F_GET_SEALS) != _SEALS:
        raise Hung("a table that can still change")
    with pa.memory_map(f"/proc/self/fd/{handle}") as mapped, pa.ipc.open_stream(mapped) as reader:
        table = reader.read_all()
    table.validate()
    return table
