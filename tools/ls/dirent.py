"""The names of a directory with the type the directory itself gives for each, as readdir(3) does.

`os.listdir` drops the type, `os.scandir` keeps it to itself and both leave out `.` and `..`. `ls` shows the type of an
entry that cannot be lstated, in a directory that may be read but not searched, so it is needed as it stands.
"""

from __future__ import annotations

import ctypes
import errno
import os
import struct
from typing import Final

_libc: Final = ctypes.CDLL(None, use_errno=True)
# glibc since 2.30. musl has the 64-bit call under the old name.
_getdents: Final = _libc.getdents64 if hasattr(_libc, "getdents64") else _libc.getdents
_getdents.restype = ctypes.c_ssize_t
_getdents.argtypes = [ctypes.c_int, ctypes.c_void_p, ctypes.c_size_t]

# struct linux_dirent64, getdents(2): d_ino 8 bytes, d_off 8, d_reclen 2, d_type 1, then d_name up to its NUL.
_LENGTH_AT: Final = 16
_NAME_AT: Final = 19
_LENGTH_AND_TYPE: Final = struct.Struct("=HB")
_BLOCK: Final = 32 * 1024  # what readdir(3) of glibc asks for

_DOT: Final = ord(".")

# DT_* of dirent.h -> the letter `ls -l` begins the mode with.
_LETTERS: Final = {1: "p", 2: "c", 4: "d", 6: "b", 8: "-", 10: "l", 12: "s", 14: "w"}


def letters(descriptor: int, *, dotfiles: bool) -> dict[bytes, str]:
    """{name: letter} of a directory opened for reading and not yet read, in the file system's own order. The letter is
    one of `-dlcbpsw`, or `?` where the file system does not say.

    dotfiles   with the names that begin with a dot, `.` and `..` among them where the file system has them

    Raises OSError when the directory cannot be read to its end."""
    found: dict[bytes, str] = {}
    buffer = ctypes.create_string_buffer(_BLOCK)
    head = _LENGTH_AND_TYPE.unpack_from
    while size := _next_block(descriptor, buffer):
        block = ctypes.string_at(buffer, size)
        at = 0
        while at < size:
            length, kind = head(block, at + _LENGTH_AT)
            begin = at + _NAME_AT
            if dotfiles or block[begin] != _DOT:
                found[block[begin : block.index(0, begin)]] = _LETTERS.get(kind, "?")
            at += length
    return found


def _next_block(descriptor: int, buffer: ctypes.Array[ctypes.c_char]) -> int:
    """Bytes filled; 0 at the end."""
    while (size := int(_getdents(descriptor, buffer, _BLOCK))) < 0:
        error = ctypes.get_errno()
        if error == errno.ENOENT:  # removed while it was read: the end, as for readdir(3)
            return 0
        if error != errno.EINTR:
            raise OSError(error, os.strerror(error))
    return size
