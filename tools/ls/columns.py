"""The text of `ls`: one name a line, or the aligned columns of `ls -l`.

A column is the list of its cells, one for each entry, padded to one width. Every rule here is GNU coreutils' (src/ls.c,
print_long_format), names raw as it writes them to a pipe. An entry that is not `known` shows `?` in each cell.
"""

from __future__ import annotations

import os
import unicodedata
from collections.abc import Callable
from stat import filemode

from wcwidth import wcwidth

from tools._text import name_text
from tools.ls import owners
from tools.ls.entry import Entry
from tools.ls.sizes import human, total
from tools.ls.times import UNKNOWN, Dates


def short(entries: list[Entry]) -> str:
    """`ls -1`"""
    return "".join([f"{name_text(entry.name)}\n" for entry in entries])


def long(entries: list[Entry], *, human_readable: bool, numeric_ids: bool) -> str:
    """`ls -l`, with `-h` and `-n`"""
    columns = (
        _modes(entries),
        _right([entry.links if entry.known else "?" for entry in entries], str),
        _accounts([entry.uid if entry.known else None for entry in entries], _no_name if numeric_ids else owners.user),
        _accounts([entry.gid if entry.known else None for entry in entries], _no_name if numeric_ids else owners.group),
        _sizes(entries, human if human_readable else str),
        _dates(entries),
        _names(entries),
    )
    blocks = sum([entry.blocks for entry in entries])
    lines = [f"total {total(blocks, human_readable=human_readable)}", *map(" ".join, zip(*columns, strict=True)), ""]
    return "\n".join(lines)


# The entries of a directory share most of their values, so each of the functions below writes a value once.


def _modes(entries: list[Entry]) -> list[str]:
    """Ten letters, and a place for the mark when any entry of the directory has one."""
    texts = {mode: filemode(mode) for mode in {entry.mode for entry in entries}}
    if not any(entry.mark for entry in entries):
        return [texts[entry.mode] if entry.known else f"{entry.letter}?????????" for entry in entries]
    return [
        texts[entry.mode] + (entry.mark or " ") if entry.known else f"{entry.letter}??????????" for entry in entries
    ]


def _right(values: list[int | str], written: Callable[[int], str]) -> list[str]:
    """Numbers as `written`, texts as they are, all to the right."""
    texts = {value: value if isinstance(value, str) else written(value) for value in set(values)}
    width = max(map(len, texts.values()), default=0)
    cells = {value: text.rjust(width) for value, text in texts.items()}
    return [cells[value] for value in values]


def _accounts(ids: list[int | None], name_of: Callable[[int], bytes | None]) -> list[str]:
    """Names to the left, as wide as they show; ids without a name to the right; `?` for None."""
    names = {number: name_of(number) for number in set(ids) if number is not None}
    widths = {number: len(str(number)) if name is None else shown_width(name) for number, name in names.items()}
    width = max(widths.values(), default=1)
    cells: dict[int | None, str] = {None: "?".ljust(width)}
    for number, name in names.items():
        padding = " " * (width - widths[number])
        cells[number] = f"{padding}{number}" if name is None else f"{name_text(name)}{padding}"
    return [cells[number] for number in ids]


def _no_name(_number: int) -> None:
    """`ls -n`"""


def _sizes(entries: list[Entry], written: Callable[[int], str]) -> list[str]:
    """Bytes; devices show `major, minor` instead, the minor numbers in a column of their own."""
    minors = [len(str(os.minor(entry.device))) for entry in entries if entry.is_device]
    if not minors:
        return _right([entry.size if entry.known else "?" for entry in entries], written)
    width = max(minors)
    return _right(
        [
            f"{os.major(entry.device)}, {os.minor(entry.device):>{width}}"
            if entry.is_device
            else entry.size
            if entry.known
            else "?"
            for entry in entries
        ],
        written,
    )


def _dates(entries: list[Entry]) -> list[str]:
    date = Dates().of
    return [date(entry.modified) if entry.known else UNKNOWN for entry in entries]


def _names(entries: list[Entry]) -> list[str]:
    return [
        name_text(entry.name) if entry.target is None else f"{name_text(entry.name)} -> {name_text(entry.target)}"
        for entry in entries
    ]


def shown_width(name: bytes) -> int:
    """Columns of a terminal that the name takes: 2 for wide characters, 0 for combining ones and controls, 1 for what
    cannot be shown or is no UTF-8 (gnulib mbswidth)."""
    text = name.decode("utf-8", "surrogateescape")
    if text.isascii() and text.isprintable():
        return len(text)
    return sum([_columns(character) for character in text])


def _columns(character: str) -> int:
    width = wcwidth(character)
    if width >= 0:
        return width
    return 0 if unicodedata.category(character) == "Cc" else 1
