"""How a process gives up rights, and checks that it did. Called in a child right after fork(2).

Only prctl(2) has no function in the standard library; it is called through ctypes.
"""

from __future__ import annotations

import ctypes
import os
import pwd
import resource
import signal
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

PR_SET_PDEATHSIG: Final = 1
PR_SET_DUMPABLE: Final = 4
PR_SET_NO_NEW_PRIVS: Final = 38


class NotConfined(Exception):
    """A right that should be gone is still there: the process must not go on."""


@dataclass(frozen=True, slots=True)
class Account:
    """An OS account, looked up once (passwd(5))."""

    name: str
    uid: int
    gid: int

    @classmethod
    def named(cls, name: str) -> Account:
        """Raises KeyError."""
        entry = pwd.getpwnam(name)
        return cls(entry.pw_name, entry.pw_uid, entry.pw_gid)

    @classmethod
    def current(cls) -> Account:
        """The account this process runs as; one that has no name goes by its number."""
        uid = os.getuid()
        try:
            name = pwd.getpwuid(uid).pw_name
        except KeyError:
            name = str(uid)
        return cls(name, uid, os.getgid())


def become(account: Account, *, with_groups: bool) -> None:
    """Takes on the account's ids for good, with its supplementary groups (initgroups(3)) or none. A process that is
    not root already has the ids it may have, and keeps them. Raises NotConfined."""
    if os.geteuid() != 0:
        if os.geteuid() != account.uid:
            raise NotConfined(f"cannot become {account.name}: not started by root")
        return
    os.setgroups(os.getgrouplist(account.name, account.gid) if with_groups else [])
    os.setresgid(account.gid, account.gid, account.gid)
    os.setresuid(account.uid, account.uid, account.uid)
    if os.getresuid() != (account.uid,) * 3 or os.getresgid() != (account.gid,) * 3:
        raise NotConfined(f"still has other ids than those of {account.name}")
    # As OpenSSH's uidswap.c: the proof that the way back is closed is that it fails.
    if account.uid != 0:
        for regain in (os.setuid, os.setgid):
            try:
                regain(0)
            except PermissionError:
                continue
            raise NotConfined(f"root's ids could be taken again after becoming {account.name}")


def settle(parent: int) -> None:
    """The last step in every child: no new rights by exec, no core dumps, `/` as working directory, closed to the
    eyes of others of the same account, and SIGKILL when `parent` (the supervisor's pid) dies. Comes after the ids:
    changing them clears the death signal (prctl(2))."""
    _prctl(PR_SET_NO_NEW_PRIVS, 1)
    conceal()
    _prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it died before the line above
        os._exit(1)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    os.chdir("/")
    os.umask(0o077)


def conceal() -> None:
    """Gives /proc/PID/environ, fd, mem and the like of this process to root: a tool that runs as the same user must
    not read the gateway's key, nor the environment it was started with."""
    _prctl(PR_SET_DUMPABLE, 0)


def close_all_but(kept: Iterable[int]) -> None:
    """Closes every descriptor from 3 up that is not in `kept`."""
    low = 3
    # closerange(3, 0) closes everything: it is close_range(2) with -1 as last, where a gateway that was started without
    # standard input has 0 as one of its sockets.
    for descriptor in sorted(d for d in kept if d >= low):
        os.closerange(low, descriptor)
        low = descriptor + 1
    os.closerange(low, resource.getrlimit(resource.RLIMIT_NOFILE)[1])


def _prctl(option: int, value: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(option, value, 0, 0, 0) != 0:
        raise NotConfined(f"prctl({option}): {os.strerror(ctypes.get_errno())}")
