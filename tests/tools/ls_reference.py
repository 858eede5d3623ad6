"""The machine's own `ls`, and a tool call to hold against it."""

from __future__ import annotations

import os
import struct
import subprocess
from pathlib import Path
from typing import Any

from tools import Context, Result, load
from tools._tool import call

FILES_LIST = load()["files/list"]
FLAGS = {
    "all": "-a",
    "human_readable": "-h",
    "reverse": "-r",
    "dirs_first": "--group-directories-first",
    "numeric_ids": "-n",
}
SORTS = {"size": "-S", "time": "-t"}


def ls(path: Path | str | bytes, *flags: str, uid: int | None = None) -> str:
    """What `ls FLAGS PATH/` writes to a pipe, in the zone of this process; its complaints go nowhere."""
    environment = {"PATH": os.environ["PATH"], "LC_ALL": "C.UTF-8"}
    if "TZ" in os.environ:
        environment["TZ"] = os.environ["TZ"]
    done = subprocess.run(
        [b"ls", *[flag.encode() for flag in flags], b"--", os.fsencode(path) + b"/"],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env=environment,
        user=uid,
        group=uid,
        extra_groups=None if uid is None else [],
        check=False,  # 1 where an entry could not be lstated
    )
    return done.stdout.decode("utf-8", "replace")


def flags_of(arguments: dict[str, Any]) -> list[str]:
    """The flags of `ls` that mean the same as these arguments of the tool (tool-semantics, files/list)."""
    flags = ["-l" if arguments.get("long", True) else "-1"]
    flags += [flag for name, flag in FLAGS.items() if arguments.get(name)]
    if "numeric_ids" in arguments and arguments["numeric_ids"] and not arguments.get("long", True):
        flags.remove("-n")  # -n means -l too
    return [*flags, *[flag for sort, flag in SORTS.items() if arguments.get("sort") == sort]]


def result(path: Path | str, context: Context | None = None, **arguments: Any) -> Result:
    return call(
        FILES_LIST, {"path": path if not isinstance(path, Path) else str(path), **arguments}, None, context or Context()
    )


def text(path: Path | str, **arguments: Any) -> str:
    answer = result(path, **arguments)
    assert answer.is_error is None, answer.text
    assert answer.structured is None
    return answer.text


def entries(path: Path | str, **arguments: Any) -> list[dict[str, Any]]:
    answer = result(path, **{"output_format": "json", **arguments})
    assert answer.is_error is None, answer.text
    assert answer.structured is not None
    assert list(answer.structured) == ["entries"]
    found: list[dict[str, Any]] = answer.structured["entries"]
    return found


def acl(*named: tuple[int, int]) -> bytes:
    """A POSIX ACL as the kernel keeps it (linux/posix_acl_xattr.h): owner rw, [(uid, rights)], group r, mask r."""
    nobody = 0xFFFFFFFF
    rows = [(0x01, 6, nobody), *[(0x02, rights, uid) for uid, rights in named], (0x04, 4, nobody)]
    rows += [(0x10, 4, nobody), (0x20, 0, nobody)] if named else [(0x20, 0, nobody)]
    return struct.pack("<I", 2) + b"".join(struct.pack("<HHI", *row) for row in rows)
