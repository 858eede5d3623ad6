"""One call of a tool in a process of its own, without root's rights: `answer` gives the decoded result.

Run as a program it reads {"tool", "arguments", "threads"} and writes the finished result. Everything is imported
before the drop: afterwards the interpreter's own files may be out of reach.
"""

from __future__ import annotations

import contextlib
import json
import os
import resource
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

NOBODY = 65534


@contextlib.contextmanager
def public_directory(inside: str | None = None) -> Iterator[Path]:
    """A new directory that everybody may enter (pytest's own are the owner's alone), of any depth in the end."""
    path = Path(tempfile.mkdtemp(prefix="ssegate-test-", dir=inside))
    path.chmod(0o755)
    try:
        yield path.resolve()
    finally:
        # Not shutil.rmtree: that goes by paths, and trees deeper than PATH_MAX are made here.
        subprocess.run(["chmod", "-R", "u+rwx", path], check=False, stderr=subprocess.DEVNULL)
        subprocess.run(["rm", "-rf", path], check=True)


def answer(tool: str, arguments: dict[str, Any], *, threads: bool = True) -> Any:
    """`threads=False`: the account may start none (RLIMIT_NPROC)."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.tools._unprivileged"],
        input=json.dumps({"tool": tool, "arguments": arguments, "threads": threads}).encode(),
        stdout=subprocess.PIPE,
        cwd=Path(__file__).parents[2],
        timeout=30,
        check=True,
    )
    return json.loads(done.stdout)


def _main() -> None:
    from tools import Context, load
    from tools._tool import bounded, call

    request = json.load(sys.stdin)
    tool = load()[request["tool"]]
    if os.getuid() == 0:
        os.setgroups([])
        os.setresgid(NOBODY, NOBODY, NOBODY)
        os.setresuid(NOBODY, NOBODY, NOBODY)
    if not request["threads"]:
        resource.setrlimit(resource.RLIMIT_NPROC, (0, 0))
    context = Context()
    sys.stdout.buffer.write(bounded(tool, call(tool, request["arguments"], None, context), context))


if __name__ == "__main__":
    _main()
