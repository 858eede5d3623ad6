"""One tool that does what a test asks for: sleep, hang, die, fail, report, or answer with many bytes."""

from __future__ import annotations

import os
import signal
import threading
import time
from pathlib import Path
from typing import Literal

import msgspec

from tools._tool import Context, Result, tool


class Trial(msgspec.Struct, frozen=True):
    do: Literal["answer", "sleep", "fifo", "linger", "die", "die_once", "bug", "report", "grow"]
    seconds: float = 0
    path: str = ""
    size: int = 0


@tool("trial/run", title="Trial", group="trial", verb="run", description="For tests.", smaller="ask for less")
def trial(arguments: Trial, context: Context) -> Result:
    match arguments.do:
        case "sleep":
            time.sleep(arguments.seconds)
        case "fifo":  # blocks in the kernel until somebody writes
            with open(arguments.path, "rb") as fifo:
                fifo.read()
        case "linger":  # answers, and leaves a thread that blocks
            threading.Thread(target=Path(arguments.path).read_bytes, daemon=True).start()
        case "die":
            os.kill(os.getpid(), signal.SIGKILL)
        case "die_once":  # the first of two workers dies
            try:
                os.rmdir(arguments.path)
            except FileNotFoundError:
                pass
            else:
                os.kill(os.getpid(), signal.SIGKILL)
        case "bug":
            raise AssertionError("a bug of the tool, with \N{SNOWMAN}")
        case "report":
            end = time.monotonic() + arguments.seconds
            done = 0
            while time.monotonic() < end:
                done += 1
                context.progress(done, None, "steps")
                time.sleep(0.005)
        case _:
            pass
    return Result("x" * arguments.size or arguments.path or "done")
