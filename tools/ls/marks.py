"""The mark behind the ten letters of a mode: `+` for an ACL, `.` for an SELinux label alone.

`ls` asks the kernel two or three times for each entry. A file without attributes has neither, and one question tells
that where the file system is known to list every attribute it has.
"""

from __future__ import annotations

import ctypes
import errno
import os
import stat
from typing import Final

_libc: Final = ctypes.CDLL(None)

_LABEL: Final = "security.selinux"
_ACL: Final = "system.posix_acl_access"
_DEFAULT_ACL: Final = "system.posix_acl_default"

_UNSUPPORTED: Final = frozenset({errno.ENOTSUP, errno.ENOSYS, errno.EINVAL, errno.EBUSY})  # gnulib's acl_errno_valid

# f_type of statfs(2) of the file systems whose listxattr(2) names ACLs and labels that are stored: ext2 to ext4, XFS,
# Btrfs, tmpfs, F2FS, overlayfs. The rest (NFS, SMB, FUSE, ...) may answer getxattr(2) for what they do not list.
_LISTS_ALL: Final = frozenset({0xEF53, 0x58465342, 0x9123683E, 0x01021994, 0xF2F52010, 0x794C7630})

_LISTXATTRAT: Final = 465  # Linux 6.13; the same number on every architecture Python has wheels for
_NOFOLLOW: Final = 0x100  # AT_SYMLINK_NOFOLLOW
_NOTHING: Final = ctypes.c_size_t(0)


class Marks:
    """The marks of the entries of one directory.

    A file system that says once that it has no labels or no ACLs is not asked again (`ls` does the same, by st_dev).
    """

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._place = b"/proc/self/fd/%d/" % descriptor
        self._without_labels: set[int] = set()
        self._without_acls: set[int] = set()
        self._listing_device = os.fstat(descriptor).st_dev if self._lists_all() else None
        self._has_listxattrat = _libc.syscall(_LISTXATTRAT, descriptor, b".", _NOFOLLOW, None, _NOTHING) >= 0

    def of(self, name: bytes, mode: int, device: int) -> str:
        """`+`, `.` or nothing for an entry with these st_mode and st_dev."""
        if device == self._listing_device and self._has_no_attributes(name):
            return ""
        place = self._place + name
        try:
            labelled = self._labelled(place, device)
        except OSError:  # neither "no label" nor "no labels here": `ls` complains and shows no mark
            return ""
        if not stat.S_ISLNK(mode) and self._has_acl(place, stat.S_ISDIR(mode), device):
            return "+"
        return "." if labelled else ""

    def _lists_all(self) -> bool:
        """Whether an empty attribute list means: no mark. Not where SELinux is at work: then each file has a label,
        stored or not, and so has this directory."""
        if _attribute(self._place, _LABEL) is not None:
            return False
        status = (ctypes.c_long * 32)()  # struct statfs is 15 longs; f_type is the first
        return bool(_libc.fstatfs(self._descriptor, status) == 0 and status[0] in _LISTS_ALL)

    def _has_no_attributes(self, name: bytes) -> bool:
        if self._has_listxattrat:
            size = _libc.syscall(_LISTXATTRAT, self._descriptor, name, _NOFOLLOW, None, _NOTHING)
            return bool(size == 0)
        try:
            return not os.listxattr(self._place + name, follow_symlinks=False)
        except OSError:
            return False

    def _labelled(self, place: bytes, device: int) -> bool:
        if device in self._without_labels:
            return False
        try:
            label = os.getxattr(place, _LABEL, follow_symlinks=False)
        except OSError as error:
            if error.errno == errno.ENOTSUP:
                self._without_labels.add(device)
            elif error.errno != errno.ENODATA:
                raise
            return False
        return label.rstrip(b"\0") not in (b"", b"unlabeled")

    def _has_acl(self, place: bytes, is_directory: bool, device: int) -> bool:
        if device in self._without_acls:
            return False
        for name in (_ACL, _DEFAULT_ACL) if is_directory else (_ACL,):
            try:
                if os.getxattr(place, name, follow_symlinks=False):
                    return True
            except OSError as error:
                if error.errno in _UNSUPPORTED:
                    self._without_acls.add(device)
                if error.errno != errno.ENODATA:
                    return False
        return False


def _attribute(place: bytes, name: str) -> bytes | None:
    try:
        return os.getxattr(place, name)
    except OSError:
        return None
