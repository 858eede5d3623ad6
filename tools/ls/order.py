"""The order of a listing: `ls`, `-S`, `-t`, `-r` and `--group-directories-first`."""

from __future__ import annotations

from typing import Literal

from tools.ls.entry import Entry

Sort = Literal["name", "size", "time"]


def ordered(by_name: list[Entry], sort: Sort, *, reverse: bool, dirs_first: bool) -> list[Entry]:
    """By name as they come (byte order), or largest first, or newest first to the nanosecond, equals by name.

    `reverse` turns the whole order round, the equals too; directories (and links to them) stand first all the same."""
    entries = by_name.copy()
    if sort == "size":
        entries.sort(key=lambda entry: -entry.size)
    elif sort == "time":
        entries.sort(key=lambda entry: -entry.modified)
    if reverse:
        entries.reverse()
    if dirs_first:
        entries.sort(key=lambda entry: entry.letter != "d" and not entry.leads_to_directory)
    return entries
