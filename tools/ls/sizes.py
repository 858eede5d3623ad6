"""Sizes as `ls` writes them: exact bytes, or `-h`, which always rounds up."""

from __future__ import annotations

from typing import Final

_UNITS: Final = "KMGTPEZY"


def human(size: int) -> str:
    """Bytes as `ls -h`: 1023, 1.0K, 9.9K, 10K, 1023K, 1.0M. One decimal below ten, and up, never down, to the next
    figure that can be shown (coreutils: human_ceiling, human_autoscale, base 1024)."""
    if size < 1024:
        return str(size)
    power = (size.bit_length() - 1) // 10
    unit = 1 << (10 * power)
    tenths = -(-size * 10 // unit)
    if tenths < 100:
        return f"{tenths // 10}.{tenths % 10}{_UNITS[power - 1]}"
    whole = -(-size // unit)
    if whole == 1024:
        return f"1.0{_UNITS[power]}"
    return f"{whole}{_UNITS[power - 1]}"


def total(blocks: int, *, human_readable: bool) -> str:
    """The figure behind `total` for so many blocks of 512 bytes: in blocks of 1024, rounded up, or as `human`."""
    return human(blocks * 512) if human_readable else str((blocks + 1) // 2)
