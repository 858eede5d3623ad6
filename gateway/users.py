"""`users.yaml`: who may use tokens. The supervisor reads it, the command line changes it.

    users:
      alice:
        since: 2026-01-31T12:00:00Z
        tokens:
          - {id: 6f1c0a…, issued: 2026-01-31T12:00:00Z, expires: 2026-03-02T12:00:00Z}

The tokens themselves are nowhere: an entry only says that one was made.
"""

from __future__ import annotations

import contextlib
import fcntl
import io
import os
import re
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any, Final

import msgspec
from ruamel.yaml import YAML

from gateway.config import ConfigError, misfit, read_yaml, users_file

# An OS account's name may be all of these (useradd(8)); it also keeps names out of trouble in logs and YAML.
NAME: Final = r"\A[A-Za-z0-9_][A-Za-z0-9_.@-]{0,63}\Z"


class IssuedToken(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A token that was made: `id` is its `jti` claim (RFC 7519 section 4.1.7), the times are RFC 3339 in UTC."""

    id: str
    issued: str
    expires: str


class User(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """`since`: when the user was added (RFC 3339); tokens from before do not count. None: all do."""

    tokens: tuple[IssuedToken, ...] = ()
    since: str | None = None


class Users(msgspec.Struct, frozen=True):
    users: dict[str, User] = {}


class _File(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`users.yaml` with its entries unread: each is read under its own name, so that a refusal can tell whose it is."""

    users: dict[str, Any] = {}


def read(path: str) -> Users:
    """Raises ConfigError with file and key."""
    # YAML's own timestamps come as datetime; ours are written as text, but a person may have edited them.
    settings = msgspec.to_builtins(read_yaml(path))
    users: dict[str, User] = {}
    within = ""
    try:
        for name, entry in msgspec.convert(settings, _File).users.items():
            within = f"users.{name}"
            users[check_name(name)] = msgspec.convert(entry, User)
    except msgspec.ValidationError as error:
        raise ConfigError(f"{path}: {misfit(str(error), within)}") from None
    except ValueError as error:  # a lone surrogate in a key
        raise ConfigError(f"{path}: {error}") from None
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from None
    return Users(users)


def admitted(path: str) -> dict[str, float]:
    """{name: Unix time from which on the user's tokens count}. Raises ConfigError with file and key."""
    return {name: _unix_time(path, name, user.since) for name, user in read(path).users.items()}


def _unix_time(path: str, name: str, since: str | None) -> float:
    if since is None:
        return 0.0
    try:
        moment = datetime.fromisoformat(since)
    except ValueError:
        raise ConfigError(f"{path}: users.{name}.since: {since!r} is no time such as 2026-01-31T12:00:00Z") from None
    return moment.replace(tzinfo=moment.tzinfo or UTC).timestamp()


@contextlib.contextmanager
def changing(directory: str) -> Iterator[dict[str, User]]:
    """The users, for the body to change in place; written back whole (rename(2)) when it ends well. Two command
    lines at once take turns."""
    path = users_file(directory)
    if not os.path.isdir(directory):
        raise ConfigError(f"there is no configuration in {directory} - name its directory with --config-dir")
    lock = os.open(f"{directory}/.users.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        users = dict(read(path).users)
        yield users
        _write(path, Users(users))
    finally:
        os.close(lock)


def _write(path: str, users: Users) -> None:
    text = io.StringIO()
    yaml = YAML(typ="safe", pure=True)
    yaml.default_flow_style = False
    yaml.sort_base_mapping_type_on_output = False  # type: ignore[assignment]  # annotated as bool by the library
    yaml.dump(msgspec.to_builtins(users), text)
    draft = f"{path}.new"
    with open(
        os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600), "w", encoding="utf-8"
    ) as file:
        os.fchmod(file.fileno(), 0o600)  # a draft that a crash left behind keeps its mode
        file.write(text.getvalue())
        file.flush()
        os.fsync(file.fileno())
    os.replace(draft, path)


def check_name(name: str) -> str:
    """Raises ConfigError where `name` cannot be a user's."""
    if not re.match(NAME, name):
        raise ConfigError(f"user name {name!r}: letters, digits and _ . @ - are allowed, 64 at most")
    return name
