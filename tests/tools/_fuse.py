"""A FUSE file system whose files answer as their names say, in a process of its own: the one way to have a regular
file that never answers. Protocol: the kernel's include/uapi/linux/fuse.h.

    text      "told by FUSE\\n"
    broken    every read fails with EIO
    hang-*    no read is ever answered
    deaf-*    not even the look-up is answered
    late      a read is answered once the process got a line on its standard input
    types/    a directory that does not tell the types of its entries: `inner` (a directory) and `plain`

Run as a program with the mount point; it says `ready`, and ends (and unmounts) when its standard input does.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import select
import stat
import struct
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

TEXT = b"told by FUSE\n"

_LOOKUP, _FORGET, _GETATTR, _OPEN, _READ, _RELEASE = 1, 2, 3, 14, 15, 18
_FLUSH, _INIT, _OPENDIR, _READDIR, _RELEASEDIR, _INTERRUPT, _BATCH_FORGET = 25, 26, 27, 28, 29, 36, 42
_ROOT, _TEXT, _BROKEN, _HANG, _LATE, _TYPES, _INNER = 1, 2, 3, 4, 5, 6, 7
_NODES = {b"text": _TEXT, b"broken": _BROKEN, b"late": _LATE, b"types": _TYPES, b"inner": _INNER, b"plain": _TEXT}
_MNT_DETACH = 2
_LIBC = ctypes.CDLL(None, use_errno=True)


@contextlib.contextmanager
def mounted(place: Path) -> Iterator[subprocess.Popen[bytes] | None]:
    """The file system at `place`; None where this process may not mount one."""
    with subprocess.Popen(
        [sys.executable, "-I", __file__, os.fspath(place)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as server:
        assert server.stdin is not None
        assert server.stdout is not None
        try:
            yield server if server.stdout.readline() == b"ready\n" else None
        finally:
            server.stdin.close()
            try:
                server.wait(10)
            finally:
                server.kill()
                _LIBC.umount2(os.fsencode(place), _MNT_DETACH)  # EINVAL when it is unmounted, as it should be


def _attributes(node: int) -> bytes:
    directory = node in (_ROOT, _TYPES, _INNER)
    mode = stat.S_IFDIR | 0o755 if directory else stat.S_IFREG | 0o644
    return struct.pack("<6Q10I", node, len(TEXT), 1, 0, 0, 0, 0, 0, 0, mode, 1, 0, 0, 0, 4096, 0)


def _entries(names: list[tuple[int, bytes]]) -> bytes:
    listing = b""
    for node, name in names:
        record = struct.pack("<2Q2I", node, len(listing) + 1, len(name), 0) + name  # type 0: DT_UNKNOWN
        listing += record + bytes(-len(record) % 8)
    return listing


def _answer(operation: int, node: int, body: bytes) -> bytes | int | None:
    """The reply, an errno, or None: no reply."""
    if operation == _INIT:
        parallel_directory_operations = 1 << 18  # else one look-up without an answer stops those beside it
        return struct.pack("<4I2H2I2H2I24x", 7, 31, 0, parallel_directory_operations, 64, 48, 131072, 1, 0, 0, 0, 0)
    if operation == _LOOKUP:
        name = body.rstrip(b"\0")
        if name.startswith(b"deaf-"):
            return None
        found = _HANG if name.startswith(b"hang-") else _NODES.get(name)
        return errno.ENOENT if found is None else struct.pack("<4Q2I", found, 0, 0, 0, 0, 0) + _attributes(found)
    if operation == _GETATTR:
        return struct.pack("<Q2I", 0, 0, 0) + _attributes(node)
    if operation in (_OPEN, _OPENDIR):
        return struct.pack("<Q2I", 0, 1, 0)  # 1: FOPEN_DIRECT_IO, every read comes here
    if operation == _READ:
        offset = struct.unpack_from("<Q", body, 8)[0]
        if node == _HANG:
            return None
        return errno.EIO if node == _BROKEN else TEXT[offset:]
    if operation == _READDIR:
        offset = struct.unpack_from("<Q", body, 8)[0]
        return b"" if offset or node != _TYPES else _entries([(_TEXT, b"plain"), (_INNER, b"inner")])
    if operation in (_FLUSH, _RELEASE, _RELEASEDIR):
        return b""
    return None if operation in (_FORGET, _INTERRUPT, _BATCH_FORGET) else errno.ENOSYS


def _serve(place: str) -> None:
    device = os.open("/dev/fuse", os.O_RDWR | os.O_CLOEXEC)
    options = f"fd={device},rootmode=40000,user_id={os.getuid()},group_id={os.getgid()},allow_other"
    if _LIBC.mount(b"test", os.fsencode(place), b"fuse", 0, options.encode()) != 0:
        raise OSError(ctypes.get_errno(), "mount")
    try:
        print("ready", flush=True)
        waiting: list[bytes] = []
        gate_open = False
        while True:
            readable, _, _ = select.select([device, 0], [], [])
            if 0 in readable:
                if not os.read(0, 100):
                    return
                gate_open = True
                while waiting:
                    os.write(device, waiting.pop())
            if device in readable:
                request = os.read(device, 1 << 20)
                _, operation, unique, node = struct.unpack_from("<2I2Q", request)
                answer = _answer(operation, node, request[40:])
                if answer is None:
                    continue
                code, payload = (-answer, b"") if isinstance(answer, int) else (0, answer)
                reply = struct.pack("<IiQ", 16 + len(payload), code, unique) + payload
                if operation == _READ and node == _LATE and not gate_open:
                    waiting.append(reply)
                else:
                    os.write(device, reply)
    finally:
        _LIBC.umount2(os.fsencode(place), _MNT_DETACH)


if __name__ == "__main__":
    _serve(sys.argv[1])
