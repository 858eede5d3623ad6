"""The socket between supervisor and gateway: a few typed operations, one JSON object a packet (SOCK_SEQPACKET).

Gateway to supervisor            supervisor to gateway
    {"op": "ready"}                  {"op": "worker", "account", "number"} + descriptor: a new worker's socket
    {"op": "spawn", "account"}       {"op": "no_worker", "account", "why"}
    {"op": "kill", "number"}         {"op": "users"} + descriptor: a memfd, JSON {name: since}
    {"op": "users"}
Nothing else exists; a packet that does not fit ends the process that gets it (security design, section 4.1).
"""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Mapping
from typing import Any, Final

# Every packet is far smaller; the users travel in a memfd because they may not be.
MAX_PACKET: Final = 4096


def pair() -> tuple[socket.socket, socket.socket]:
    """(supervisor's end, gateway's end)"""
    return socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)


def pack(operation: dict[str, Any]) -> bytes:
    return json.dumps(operation).encode("ascii")


def send(end: socket.socket, operation: dict[str, Any], descriptor: int | None = None) -> None:
    """Raises OSError when the other side is gone or does not read."""
    if descriptor is None:
        end.sendmsg([pack(operation)])
    else:
        socket.send_fds(end, [pack(operation)], [descriptor])


def receive(end: socket.socket) -> tuple[dict[str, Any], int | None] | None:
    """The next operation and the descriptor that came with it; None when the other side is gone."""
    try:
        packet, descriptors, _, _ = socket.recv_fds(end, MAX_PACKET, 1)
    except ConnectionResetError:  # the other side died with something unread (unix(7))
        return None
    if not packet:
        return None
    for descriptor in descriptors:
        os.set_inheritable(descriptor, False)
    return json.loads(packet), descriptors[0] if descriptors else None


def users_to_file(users: Mapping[str, float]) -> int:
    """A descriptor to a file without a name that holds the users: name to Unix time from which on tokens count."""
    descriptor = os.memfd_create("users", os.MFD_CLOEXEC)
    with open(os.dup(descriptor), "wb") as file:
        file.write(json.dumps(users).encode("ascii"))
    return descriptor


def users_from_file(descriptor: int) -> dict[str, float]:
    """What `users_to_file` was given; closes the descriptor."""
    with open(descriptor, "rb") as file:
        file.seek(0)
        users: dict[str, float] = json.load(file)
        return users
