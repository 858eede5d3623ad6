"""The structured formats: entries as JSON values, and those as JSON, YAML or a table."""

from __future__ import annotations

import os
import re
from stat import S_IMODE, filemode
from typing import Any, Final

from wcwidth import wcswidth

from tools._text import name_hex, name_text, readable_json
from tools.ls import owners
from tools.ls.entry import Entry
from tools.ls.sizes import human
from tools.ls.times import Stamps

Record = dict[str, Any]

_TYPES: Final = {
    "-": "file",
    "d": "dir",
    "l": "symlink",
    "c": "char",
    "b": "block",
    "p": "fifo",
    "s": "socket",
}
_TABLE: Final = ("modified", "name", "size", "is_dir")
_WIDE: Final = (
    *("name", "type", "mode", "mode_octal", "links", "owner", "group", "uid", "gid", "size"),
    *("device", "modified", "is_dir", "target"),
)
_UNKNOWN: Final = ("mode_octal", "links", "owner", "group", "uid", "gid", "size", "modified")
_GAP: Final = "   "


def records(entries: list[Entry]) -> list[Record]:
    """Each entry as a JSON object, members in the order the documentation names them.

    `device` is there for devices only and `target` for links only (null when it may not be read); `name_hex` and
    `target_hex` hold the exact bytes of what is not UTF-8. What lstat did not tell is null."""
    modes = {mode: (filemode(mode), f"{S_IMODE(mode):04o}") for mode in {entry.mode for entry in entries}}
    users = {uid: _account(owners.user(uid), uid) for uid in {entry.uid for entry in entries if entry.known}}
    groups = {gid: _account(owners.group(gid), gid) for gid in {entry.gid for entry in entries if entry.known}}
    stamp = Stamps().of
    listing: list[Record] = []
    for entry in entries:
        record: Record = {"name": name_text(entry.name)}
        if not entry.name.isascii() and (exact := name_hex(entry.name)):
            record["name_hex"] = exact
        record["type"] = _TYPES.get(entry.letter)
        if not entry.known:
            record["mode"] = f"{entry.letter}?????????"
            record |= dict.fromkeys(_UNKNOWN)
            record["is_dir"] = entry.letter == "d"
            listing.append(record)
            continue
        letters, octal = modes[entry.mode]
        record["mode"] = letters + entry.mark
        record["mode_octal"] = octal
        record["links"] = entry.links
        record["owner"] = users[entry.uid]
        record["group"] = groups[entry.gid]
        record["uid"] = entry.uid
        record["gid"] = entry.gid
        record["size"] = entry.size
        if entry.is_device:
            record["device"] = f"{os.major(entry.device)}, {os.minor(entry.device)}"
        record["modified"] = stamp(entry.modified)
        record["is_dir"] = entry.letter == "d"
        if entry.letter == "l":
            record["target"] = None if entry.target is None else name_text(entry.target)
            if entry.target is not None and (exact := name_hex(entry.target)):
                record["target_hex"] = exact
        listing.append(record)
    return listing


def _account(name: bytes | None, number: int) -> str:
    return str(number) if name is None else name_text(name)


def as_json(listing: list[Record]) -> str:
    """A JSON array on one line."""
    return readable_json(listing)


def as_yaml(listing: list[Record]) -> str:
    """A block sequence of mappings that YAML 1.1 and 1.2 read alike: every string is in double quotes, so none turns
    into a number, a date or a boolean."""
    if not listing:
        return "[]\n"
    return "".join(
        [
            "- " + "\n  ".join([f"{member}: {_yaml(value)}" for member, value in record.items()]) + "\n"
            for record in listing
        ]
    )


# What JSON leaves as it stands and YAML 1.1 takes for a line break or for not printable.
_YAML_ESCAPED: Final = re.compile("[\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff]")


def _yaml(value: str | int | bool | None) -> str:
    if isinstance(value, str):
        return _YAML_ESCAPED.sub(lambda match: f"\\u{ord(match[0]):04x}", readable_json(value))
    if value is None or isinstance(value, bool):
        return _YAML_WORDS[value]
    return str(value)


_YAML_WORDS: Final = {None: "null", True: "true", False: "false"}


def as_table(listing: list[Record], *, wide: bool, human_readable: bool, numeric_ids: bool) -> str:
    """MODIFIED NAME SIZE IS_DIR, or with `wide` every member, below upper-case heads; `-` where there is nothing."""
    members = _WIDE if wide else _TABLE
    rows = [[member.upper() for member in members]]
    for record in listing:
        shown = dict(record)
        if human_readable and record["size"] is not None:
            shown["size"] = human(record["size"])
        if numeric_ids:
            shown["owner"], shown["group"] = record["uid"], record["gid"]
        rows.append([_cell(shown.get(member)) for member in members])
    widths = [max([_width(cell) for cell in column]) for column in zip(*rows, strict=True)]
    return "".join([_line(row, widths) for row in rows])


def _line(row: list[str], widths: list[int]) -> str:
    cells = [cell + " " * (width - _width(cell)) for cell, width in zip(row, widths, strict=True)]
    return _GAP.join(cells).rstrip(" ") + "\n"


def _cell(value: str | int | bool | None) -> str:
    """On one line, without controls: a name cannot end its row or begin another."""
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "true" if value else "false"
    text = str(value)
    if text.isprintable():
        return text
    return "".join([c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text])


def _width(cell: str) -> int:
    width = len(cell) if cell.isascii() else wcswidth(cell)
    return width if width >= 0 else len(cell)
