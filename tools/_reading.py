"""Reading many files at once, so that one that is slow, or never answers, delays only itself.

A read from a dead network or FUSE mount cannot be broken off: its thread waits in the kernel. So files are read by
threads that can be left behind. The first reads on alone, which is fastest while the kernel has the contents at hand
(more would only wait for each other); more join as soon as it is seen to wait.
"""

from __future__ import annotations

import _thread
import os
import stat
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from tools._paths import Malformed, Reach, Refused, reopen
from tools._text import shown
from tools._tool import Context

FILE_LIMIT: Final = 10 * 1024 * 1024
"""Bytes a file may have (tool semantics, `read_files_batch`)."""

FILE_SECONDS: Final = 10.0
"""How long one file may take at most: a disk that has to spin up needs this. Where a call has little time, less:
what had to wait for that file (see `contents`) must still be read."""

_FILE_SHARE: Final = 0.4  # of the time a call has left, for one file
_READ_SHARE: Final = 0.8  # and for all; the rest is for making and sending the result
_READERS: Final = 16  # at most, not counting those left behind; each costs address space (RLIMIT_AS), little memory
_TICK: Final = 0.005  # seconds between two looks at how the reading goes
_BRISK: Final = 10  # files a reader manages in a tick when it does not have to wait for a device


@dataclass(frozen=True, slots=True)
class Failure:
    """A file that could not be read. `code` is not-found, not-a-file or fs-error (seed 002)."""

    code: str
    message: str


@dataclass(frozen=True, slots=True)
class NoRoom:
    """A file of `size` bytes, not read because the result has no room for it."""

    size: int


Outcome = str | Failure | NoRoom


def contents(paths: Sequence[str], context: Context, room: Callable[[], int]) -> Iterator[tuple[str, Outcome]]:
    """Each path with its text, in the order given, as soon as it and all before it are there.

    `room` tells how many bytes of content the result can still take, given what has been yielded; it may only
    shrink. About as much as the result can take in all is read ahead, no more.
    """
    reach = Reach(context)
    now = time.monotonic()
    left = context.deadline - now
    batch = _Batch(
        paths=paths,
        read=lambda path: _read(path, reach, room),
        patience=min(FILE_SECONDS, _FILE_SHARE * left),
        end=now + _READ_SHARE * left,
        ahead=context.limit // 2,  # content stands twice in a result
    )
    try:
        for index, path in enumerate(paths):
            yield path, batch.wait_for(index)
            context.progress(index + 1, len(paths), "files read")
    finally:
        batch.leave()


def _read(path: str, reach: Reach, room: Callable[[], int]) -> Outcome:
    try:
        located = reach.locate(path)
        try:
            return _content(path, located, room)
        finally:
            os.close(located)
    except Malformed as error:
        return Failure("not-found", str(error))
    except Refused as error:
        return Failure("fs-error", str(error))
    except FileNotFoundError:
        return Failure("not-found", f"File not found: {shown(path)}")
    except OSError as error:
        return Failure("fs-error", f"{error.strerror}: {shown(path)}")


def _content(path: str, located: int, room: Callable[[], int]) -> Outcome:
    status = os.fstat(located)
    if not stat.S_ISREG(status.st_mode):
        return Failure("not-a-file", f"Not a file but a {_kind(status.st_mode)}: {shown(path)}")
    if status.st_size > FILE_LIMIT:
        return _too_large(path, f"of {status.st_size:,} bytes")
    if status.st_size > room():
        return NoRoom(status.st_size)
    source = _open(located)
    try:
        content = _whole(source, status.st_size)
    finally:
        os.close(source)
    if len(content) > FILE_LIMIT:
        return _too_large(path, f"of more than {FILE_LIMIT:,} bytes")
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        return Failure(
            "fs-error", f"Not UTF-8 text: byte 0x{content[error.start]:02x} at offset {error.start}: {shown(path)}"
        )


def _too_large(path: str, size: str) -> Failure:
    return Failure("fs-error", f"File {size} is over the limit of {FILE_LIMIT:,} bytes for one file: {shown(path)}")


def _open(located: int) -> int:
    try:
        return reopen(located)
    except BlockingIOError:
        # Another program holds a lease on the file (Samba and NFS servers do) and has just been told to give it up:
        # fcntl(2), F_SETLEASE. A regular file, so nothing else can make this open wait.
        source = os.open(f"/proc/self/fd/{located}", os.O_RDONLY | os.O_CLOEXEC)
        os.set_blocking(source, False)
        return source


def _whole(source: int, size: int) -> bytes:
    """All bytes up to the end, or up to some beyond FILE_LIMIT. `size` is what fstat says: a file may grow, and those
    of /proc say 0."""
    parts = []
    length = 0
    while length <= FILE_LIMIT:
        # One more than there should be: the end then shows in a read of one byte. /proc wants its files read at once
        # (a second read of /proc/sys gives nothing), so there the first read must be large.
        part = os.read(source, size + 1 - length if size and length <= size else 65536)
        if not part:
            break
        parts.append(part)
        length += len(part)
    return b"".join(parts)


def _kind(mode: int) -> str:
    kinds = {
        stat.S_IFDIR: "directory",
        stat.S_IFIFO: "FIFO",
        stat.S_IFSOCK: "socket",
        stat.S_IFCHR: "character device",
        stat.S_IFBLK: "block device",
    }
    return kinds.get(stat.S_IFMT(mode), "special file")


class _Batch:
    """The readers and the one who waits for them. All that changes does so under `_changed`."""

    def __init__(
        self, paths: Sequence[str], read: Callable[[str], Outcome], patience: float, end: float, ahead: int
    ) -> None:
        self._paths = paths
        self._read = read
        self._patience = patience  # seconds for one file
        self._end = end  # when nothing is read any more
        self._ahead = ahead
        self._changed = threading.Condition(threading.Lock())
        self._taken = 0  # paths[:taken] have been begun
        self._since: dict[int, float] = {}  # those being read: index -> when it was begun
        self._outcomes: dict[int, Outcome | BaseException] = {}  # those not yet collected
        self._held = 0  # characters in _outcomes
        self._looked = time.monotonic()
        self._finished = 0  # since then
        self._readers = 0

    def wait_for(self, index: int) -> Outcome:
        """The outcome of paths[index], asked for in ascending order. A file that takes too long fails."""
        with self._changed:
            while index not in self._outcomes:
                if not self._readers and not self._start():
                    # The account may have no more threads (RLIMIT_NPROC): then one after the other, here.
                    self._taken = index + 1
                    return self._read(self._paths[index])
                self._changed.wait(_TICK)
                self._look(time.monotonic())
            outcome = self._outcomes.pop(index)
            self._held -= _length(outcome)
            self._changed.notify_all()
        if isinstance(outcome, BaseException):
            raise outcome
        return outcome

    def leave(self) -> None:
        """No more files are begun; whoever still reads one is left to it."""
        with self._changed:
            self._taken = len(self._paths)
            self._since.clear()
            self._changed.notify_all()

    def _start(self) -> bool:
        try:
            # Not threading.Thread, which waits until the thread runs: half the time of a call for one file. Nobody
            # joins these, and the process may end while some of them still wait in the kernel.
            _thread.start_new_thread(self._work, ())
        except RuntimeError:  # "can't start new thread"
            return False
        self._readers += 1
        return True

    def _look(self, now: float) -> None:
        """Once a tick: gives up on what took too long, and sends help where reading waits for a device."""
        if now < self._looked + _TICK:
            return
        self._looked = now
        for index, since in list(self._since.items()):
            if now >= min(since + self._patience, self._end):
                del self._since[index]
                self._readers -= 1
                self._outcomes[index] = _overdue(self._paths[index], now - since)
        if now >= self._end:
            for index in range(self._taken, len(self._paths)):
                self._outcomes[index] = Failure(
                    "fs-error", f"Not read, the call's time was used up: {shown(self._paths[index])}"
                )
            self._taken = len(self._paths)
        waits_for_files = self._held <= self._ahead and self._finished < _BRISK * self._readers
        if waits_for_files and self._taken < len(self._paths) and self._readers < _READERS:
            self._start()
        self._finished = 0

    def _work(self) -> None:
        """One reader: takes the next path until none is left, or until it was given up on."""
        while (index := self._take()) is not None:
            outcome: Outcome | BaseException
            try:
                outcome = self._read(self._paths[index])
            except BaseException as error:  # noqa: BLE001 - raised again in `wait_for`: the caller's thread answers for it
                outcome = error
            with self._changed:
                if self._since.pop(index, None) is None:
                    return
                self._outcomes[index] = outcome
                self._held += _length(outcome)
                self._finished += 1

    def _take(self) -> int | None:
        with self._changed:
            if self._held > self._ahead:
                self._changed.notify_all()  # once: readers that wait would else go on waking each other
            while self._held > self._ahead and self._taken < len(self._paths):
                self._changed.wait()
            if self._taken == len(self._paths):
                self._readers -= 1
                self._changed.notify_all()
                return None
            index = self._taken
            self._taken += 1
            self._since[index] = time.monotonic()
            return index


def _length(outcome: Outcome | BaseException) -> int:
    return len(outcome) if isinstance(outcome, str) else 0


def _overdue(path: str, seconds: float) -> Failure:
    return Failure("fs-error", f"No answer from the file within {seconds:.1f} s: {shown(path)}")
