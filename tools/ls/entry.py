"""Reading a directory: each entry lstated beside its open directory, nothing followed, nothing opened."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from functools import partial
from typing import Final

import msgspec

from tools.ls import dirent
from tools.ls.marks import Marks

_LETTERS: Final = {
    stat.S_IFREG: "-",
    stat.S_IFDIR: "d",
    stat.S_IFLNK: "l",
    stat.S_IFCHR: "c",
    stat.S_IFBLK: "b",
    stat.S_IFIFO: "p",
    stat.S_IFSOCK: "s",
}
_BETWEEN_PROGRESS: Final = 2048  # entries, some 10 ms


class Entry(msgspec.Struct, frozen=True, gc=False):
    """One name of the directory.

    name       the bytes of the name
    letter     one of `-dlcbps`, `?` where nothing says
    known      whether lstat answered; the numbers are 0 where it was not asked or failed (the entry has vanished, or
               the directory may not be searched)
    mode       st_mode; links, uid, gid, size, device: st_nlink, st_uid, st_gid, st_size, st_rdev
    modified   nanoseconds since 1970, UTC
    blocks     st_blocks, of 512 bytes
    mark       `+`, `.` or nothing (see `marks`)
    target     where a link points, as it stands in the link; None for all else, or when it cannot be read
    leads_to_directory   a link whose target is a directory; only when `read` was asked to look
    """

    name: bytes
    letter: str
    known: bool = False
    mode: int = 0
    links: int = 0
    uid: int = 0
    gid: int = 0
    size: int = 0
    device: int = 0
    modified: int = 0
    blocks: int = 0
    mark: str = ""
    target: bytes | None = None
    leads_to_directory: bool = False

    @property
    def is_device(self) -> bool:
        """Whether `device` says something."""
        return self.letter in "cb" and self.known


class Wanted(msgspec.Struct, frozen=True):
    """How much of each entry a listing needs; `ls` reads no more than this either.

    dotfiles      names that begin with a dot, `.` and `..` among them
    status        lstat
    details       marks and link targets, with `status`
    directories   whether links lead to directories: the one time a link is looked through, and only for its order
                  (`ls --group-directories-first` counts such a link as a directory)
    """

    dotfiles: bool
    status: bool
    details: bool
    directories: bool


def read(descriptor: int, wanted: Wanted, progress: Callable[[int, int | None, str], None]) -> list[Entry]:
    """The entries of a directory opened for reading, by name in byte order. Raises OSError when its names cannot be
    read; an entry that cannot be lstated is one that is not `known`."""
    letters = dirent.letters(descriptor, dotfiles=wanted.dotfiles)
    names = sorted(letters)
    marks = Marks(descriptor) if wanted.details else None
    entries: list[Entry] = []
    for start in range(0, len(names), _BETWEEN_PROGRESS):
        chunk = names[start : start + _BETWEEN_PROGRESS]
        if wanted.status or wanted.directories:
            entries += _looked_at(descriptor, chunk, letters, wanted, marks)
        else:
            entries += [Entry(name, letters[name]) for name in chunk]
        progress(len(entries), len(names), "entries read")
    return entries


def _looked_at(
    descriptor: int, names: list[bytes], letters: dict[bytes, str], wanted: Wanted, marks: Marks | None
) -> list[Entry]:
    lstat = partial(os.stat, dir_fd=descriptor, follow_symlinks=False)
    entries: list[Entry] = []
    for name in names:
        letter = letters[name]
        if not wanted.status and letter not in "l?":  # only links are in question: the rest is known by its letter
            entries.append(Entry(name, letter))
            continue
        try:
            status = lstat(name)
        except OSError:
            entries.append(Entry(name, letter))
            continue
        mode, _inode, file_system, links, uid, gid, size = status[:7]
        letter = _LETTERS.get(stat.S_IFMT(mode), "?")
        target = _target(descriptor, name) if letter == "l" and (wanted.details or wanted.directories) else None
        entries.append(
            Entry(
                name,
                letter,
                True,
                mode,
                links,
                uid,
                gid,
                size,
                status.st_rdev,
                status.st_mtime_ns,
                status.st_blocks,
                "" if marks is None else marks.of(name, mode, file_system),
                target,
                target is not None and wanted.directories and _is_directory(descriptor, target),
            )
        )
    return entries


def _target(descriptor: int, name: bytes) -> bytes | None:
    try:
        return os.readlink(name, dir_fd=descriptor)
    except OSError:
        return None


def _is_directory(descriptor: int, target: bytes) -> bool:
    try:
        return stat.S_ISDIR(os.stat(target, dir_fd=descriptor).st_mode)
    except OSError:
        return False
