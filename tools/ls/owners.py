"""The names of users and groups, through the system's own lookup (NSS)."""

from __future__ import annotations

import grp
import os
import pwd
import time
from functools import lru_cache
from typing import Final

_FRESH: Final = 30.0  # seconds a name, or the lack of one, is kept: a new account shows within a minute
_KEPT: Final = 4096  # names


def user(uid: int) -> bytes | None:
    """The user's name, None when the system knows none."""
    return _user(uid, time.monotonic() // _FRESH)


def group(gid: int) -> bytes | None:
    """The group's name, None when the system knows none."""
    return _group(gid, time.monotonic() // _FRESH)


@lru_cache(maxsize=_KEPT)
def _user(uid: int, _period: float) -> bytes | None:
    try:
        return os.fsencode(pwd.getpwuid(uid).pw_name) or None
    except KeyError:
        return None


@lru_cache(maxsize=_KEPT)
def _group(gid: int, _period: float) -> bytes | None:
    try:
        return os.fsencode(grp.getgrgid(gid).gr_name) or None
    except KeyError:
        return None
