"""Logging set up once, at start: lines for people or JSON for machines, on stderr."""

from __future__ import annotations

import json
import logging
import sys
import time
from typing import Any, Final

from gateway.config import Log, one_line

_LEVELS: Final = {"debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}


def set_up(log: Log) -> None:
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_Json() if log.format == "json" else _Text())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(_LEVELS[log.level])
    # Their "info" is one line for each start and stop, which we say in our own words.
    for name in ("uvicorn.error", "sse_starlette", "asyncio"):
        logging.getLogger(name).setLevel(max(logging.WARNING, _LEVELS[log.level]))


class _Text(logging.Formatter):
    converter = staticmethod(time.gmtime)

    def __init__(self) -> None:
        super().__init__("%(asctime)sZ %(levelname)s %(process)d %(name)s: %(message)s", "%Y-%m-%dT%H:%M:%S")

    # What a client sent may stand in a message or an exception; it must not begin a line of its own.

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - logging's name
        return one_line(super().formatMessage(record))

    def formatException(self, ei: Any) -> str:  # noqa: N802 - logging's name
        return _indented(super().formatException(ei))

    def format(self, record: logging.LogRecord) -> str:
        text = super().format(record)
        trace = getattr(record, "traceback", None)  # of another process
        return f"{text}\n{_indented(trace)}" if trace else text


def _indented(trace: str) -> str:
    return "\n".join("    " + one_line(line) for line in trace.rstrip("\n").split("\n"))


class _Json(logging.Formatter):
    converter = staticmethod(time.gmtime)

    def format(self, record: logging.LogRecord) -> str:
        entry: dict[str, Any] = {
            "time": self.formatTime(record, "%Y-%m-%dT%H:%M:%SZ"),
            "level": record.levelname.lower(),
            "process": record.process,
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            entry["traceback"] = self.formatException(record.exc_info)
        elif trace := getattr(record, "traceback", None):
            entry["traceback"] = trace
        return json.dumps(entry)
