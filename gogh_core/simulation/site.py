"""The servers of the embedded cluster: what stands in the room when nothing else is asked."""

from __future__ import annotations

from collections.abc import Sequence

from gogh_core.domain import Server

__all__ = ["BASE_W", "default_servers"]

# (GPU type, GPUs): six generations, old and new mixed as in a room that grew over ten years.
_ROOM = (
    ("k80", 8),
    ("v100", 8),
    ("t4", 4),
    ("a100", 4),
    ("p100", 4),
    ("h100", 4),
    ("v100", 4),
    ("t4", 8),
    ("a100", 8),
    ("k80", 4),
    ("p100", 8),
    ("v100", 8),
)
# Fans, processors, memory and disks of a server when on, without its GPUs.
BASE_W = {"k80": 240.0, "p100": 280.0, "v100": 320.0, "t4": 170.0, "a100": 450.0, "h100": 600.0}
_OTHER_BASE_W = 250.0
_OFF_W = 6.0  # the management controller
SWITCH_ON_S = 90
SWITCH_OFF_S = 30


def default_servers(count: int, types: Sequence[str] = ()) -> tuple[Server, ...]:
    """`count` servers; of the given types in turn, four GPUs each, where types are given."""
    room = tuple((name, 4) for name in types) or _ROOM
    servers = []
    seen: dict[str, int] = {}
    for index in range(count):
        gpu_type, gpus = room[index % len(room)]
        seen[gpu_type] = seen.get(gpu_type, 0) + 1
        base_w = BASE_W.get(gpu_type, _OTHER_BASE_W)
        servers.append(
            Server(
                id=f"{gpu_type}-{seen[gpu_type]:02d}",
                gpu_type=gpu_type,
                gpus=gpus,
                base_w=base_w,
                off_w=_OFF_W,
                switch_cost_j=base_w * SWITCH_ON_S,
            )
        )
    return tuple(servers)
