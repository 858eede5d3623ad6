"""Dates in the server's zone: as `ls -l` shows them, and as RFC 3339."""

from __future__ import annotations

import time
from typing import Final

_SECOND: Final = 1_000_000_000  # ns
_MINUTE: Final = 60 * _SECOND
_HALF_A_YEAR: Final = 15_778_476 * _SECOND  # half a Gregorian year, 365.2425 days (coreutils, src/ls.c)
_MONTHS: Final = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
_WIDTH: Final = len("Jan  1  1970")

# Liberia was the last to leave an offset that is no whole minute, on 1972-01-07. From then on the seconds of the clock
# on the wall are those of UTC, and what is known of one second holds for its whole minute.
_WHOLE_MINUTES: Final = 63_593_100 * _SECOND  # the first minute that begins after

UNKNOWN: Final = "?".rjust(_WIDTH)


class Dates:
    """The dates of one listing as `ls -l` writes them. A file is recent when it was modified in the half year before
    now; the clock is read again when a file seems to come from the future, in case it was written meanwhile."""

    def __init__(self) -> None:
        self._read_clock()
        self._recent: dict[int, str] = {}
        self._older: dict[int, str] = {}

    def _read_clock(self) -> None:
        self._now = time.time_ns()
        self._half_a_year_ago = self._now - _HALF_A_YEAR

    def of(self, modified: int) -> str:
        """`Sep 23 21:03` when recent, else `Sep 23  2024`; the bare seconds since 1970 where no calendar reaches."""
        if modified > self._now:
            self._read_clock()
        recent = self._half_a_year_ago < modified < self._now
        kept = self._recent if recent else self._older
        date = kept.get(modified // _MINUTE)
        if date is None:
            date, local = _date(modified // _SECOND, recent=recent)
            if local is not None and _in_step(local, modified):
                kept[modified // _MINUTE] = date
        return date


def _date(second: int, *, recent: bool) -> tuple[str, time.struct_time | None]:
    try:
        local = time.localtime(second)
    except (OverflowError, OSError):  # the year does not fit an int
        return str(second).rjust(_WIDTH), None
    day = f"{_MONTHS[local.tm_mon - 1]} {local.tm_mday:>2}"
    return (f"{day} {local.tm_hour:02}:{local.tm_min:02}" if recent else f"{day}  {local.tm_year:04}"), local


class Stamps:
    """The dates of one listing as RFC 3339, in the server's zone."""

    def __init__(self) -> None:
        self._minutes: dict[int, tuple[str, str]] = {}

    def of(self, modified: int) -> str | None:
        """`2024-09-23T21:03:00+02:00`, whole seconds; None outside the years 1 to 9999, which RFC 3339 cannot write.

        An offset that is no whole minute is cut to one and the time moved with it: the same instant."""
        minute, second = divmod(modified // _SECOND, 60)
        if around := self._minutes.get(minute):
            return f"{around[0]}{second:02}{around[1]}"
        try:
            local = time.localtime(modified // _SECOND)
            offset = local.tm_gmtoff // 60
            shown = time.gmtime(modified // _SECOND + offset * 60)
        except (OverflowError, OSError):
            return None
        if not 1 <= shown.tm_year <= 9999:
            return None
        before = f"{shown.tm_year:04}-{shown.tm_mon:02}-{shown.tm_mday:02}T{shown.tm_hour:02}:{shown.tm_min:02}:"
        after = f"{'-' if offset < 0 else '+'}{abs(offset) // 60:02}:{abs(offset) % 60:02}"
        if _in_step(local, modified):
            self._minutes[minute] = (before, after)
        return f"{before}{shown.tm_sec:02}{after}"


def _in_step(local: time.struct_time, modified: int) -> bool:
    """Whether what holds for this second of the server's clock holds for its whole minute of UTC. A zone that counts
    leap seconds ("right/...") is never in step."""
    return modified >= _WHOLE_MINUTES and local.tm_sec == modified // _SECOND % 60
