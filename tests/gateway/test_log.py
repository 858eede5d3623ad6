"""One record, one line: what clients send can neither begin a line nor steer a terminal."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Callable, Iterator
from types import TracebackType

import pytest

from gateway.config import Log
from gateway.log import set_up

HEAD = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ"


@pytest.fixture
def logged(capsys: pytest.CaptureFixture[str]) -> Iterator[Callable[[], str]]:
    """What went to stderr; the loggers are as they were when the test ends."""
    root = logging.getLogger()
    names = (None, "uvicorn.error", "sse_starlette", "asyncio")
    handlers, levels = root.handlers[:], {name: logging.getLogger(name).level for name in names}
    yield lambda: capsys.readouterr().err
    root.handlers[:] = handlers
    for name, level in levels.items():
        logging.getLogger(name).setLevel(level)


def failure(text: str) -> tuple[type[ValueError], ValueError, TracebackType | None]:
    try:
        raise ValueError(text)  # noqa: TRY301 - only a raised exception has a traceback
    except ValueError as error:
        return type(error), error, error.__traceback__


@pytest.mark.parametrize(
    ("message", "shown"),
    [
        ("plain", "plain"),
        ("a\nb", r"a\nb"),
        ("a\r\nb\r", r"a\r\nb\r"),
        ("\n2026-01-01T00:00:00Z INFO forged", r"\n2026-01-01T00:00:00Z INFO forged"),
        ("\x1b[2J\x1b]0;title\x07", r"\x1b[2J\x1b]0;title\x07"),
        ("a\x00\x08\x7f\x9bb", r"a\x00\x08\x7f\x9bb"),
        ("a\u2028b\u2029c\x85d\x0be\x0cf", r"a\u2028b\u2029c\x85d\x0be\x0cf"),
        ("right \u202e left", r"right \u202e left"),
        ("half \ud800", r"half \ud800"),
        ("Grüße, 世界", "Grüße, 世界"),
    ],
)
def test_a_text_line_shows_what_is_not_printable_as_escapes(
    logged: Callable[[], str], message: str, shown: str
) -> None:
    set_up(Log())
    logging.getLogger("gateway.x").warning("%s", message)
    assert re.fullmatch(rf"{HEAD} WARNING \d+ gateway\.x: {re.escape(shown)}\n", logged())


def test_a_traceback_is_indented_and_escaped(logged: Callable[[], str]) -> None:
    set_up(Log())
    logging.getLogger("gateway.x").error(
        "it\nfailed", exc_info=failure("first\n2026-01-01T00:00:00Z INFO forged\x1b[2J")
    )
    first, *rest = logged().splitlines()
    assert re.fullmatch(rf"{HEAD} ERROR \d+ gateway\.x: it\\nfailed", first)
    assert all(line.startswith("    ") for line in rest)
    assert rest[-1] == r"    2026-01-01T00:00:00Z INFO forged\x1b[2J"


@pytest.mark.parametrize("message", ["plain", "a\nb", "\x1b[2J\x00", "\u2028 \x85", "half \ud800", 'quote " and \\'])
def test_a_json_line_is_one_ascii_line_that_parses_to_the_message(logged: Callable[[], str], message: str) -> None:
    set_up(Log(format="json"))
    logging.getLogger("gateway.x").warning("%s", message)
    line = logged()
    assert line.isascii()
    assert line.count("\n") == 1
    entry = json.loads(line)
    assert re.fullmatch(HEAD, entry.pop("time"))
    assert isinstance(entry.pop("process"), int)
    assert entry == {"level": "warning", "logger": "gateway.x", "message": message}


def test_a_json_traceback_is_a_member(logged: Callable[[], str]) -> None:
    set_up(Log(format="json"))
    logging.getLogger("gateway.x").error("failed", exc_info=failure("a\nb"))
    entry = json.loads(logged())
    assert entry["message"] == "failed"
    assert entry["traceback"].endswith("ValueError: a\nb")


@pytest.mark.parametrize(
    ("level", "seen"),
    [
        ("debug", ["d", "i", "w", "e"]),
        ("info", ["i", "w", "e"]),
        ("warning", ["w", "e"]),
        ("error", ["e"]),
    ],
)
def test_the_level_says_what_is_logged(logged: Callable[[], str], level: str, seen: list[str]) -> None:
    set_up(Log(level=level))  # type: ignore[arg-type]  # a literal each
    logger = logging.getLogger("gateway.x")
    for write, text in ((logger.debug, "d"), (logger.info, "i"), (logger.warning, "w"), (logger.error, "e")):
        write(text)
    assert [line.rpartition(": ")[2] for line in logged().splitlines()] == seen


def test_libraries_do_not_announce_their_starts_and_stops(logged: Callable[[], str]) -> None:
    set_up(Log())
    logging.getLogger("uvicorn.error").info("Started server process")
    logging.getLogger("uvicorn.error").error("trouble")
    assert [line.rpartition(": ")[2] for line in logged().splitlines()] == ["trouble"]


def test_setting_up_twice_logs_once(logged: Callable[[], str]) -> None:
    set_up(Log())
    set_up(Log())
    logging.getLogger("gateway.x").warning("once")
    assert logged().count("once") == 1
