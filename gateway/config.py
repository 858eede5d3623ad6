"""The one place that reads `gateway.yaml` and the environment -> one frozen Config.

Flags win over `SSEGATE_*` variables, which win over the file (wire contract; README "Settings and limits").
"""

from __future__ import annotations

import encodings.unicode_escape  # noqa: F401 - else imported at first use, when it may be out of reach
import os
import stat
from collections.abc import Mapping
from pathlib import PurePath
from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import Meta
from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError, YAMLError
from ruamel.yaml.events import AliasEvent, CollectionStartEvent, DocumentStartEvent, Event, NodeEvent, ScalarEvent

DEFAULT_PORT: Final = 9091
# A configuration file is written by hand; one of this size is a mistake (security design, "Strict sudo file").
MAX_FILE: Final = 1024 * 1024

Seconds = Annotated[float, Meta(gt=0, le=86400)]
Count = Annotated[int, Meta(ge=1, le=1_000_000)]
Bytes = Annotated[int, Meta(ge=1024, le=1024**3)]


def one_line(text: str) -> str:
    """`text` with everything escaped that could end a line or steer a terminal: what others wrote may stand in it."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


class ConfigError(Exception):
    """A setting, file or argument that the gateway cannot start with; `str()` is one sentence for a person."""

    def __init__(self, sentence: str) -> None:
        super().__init__(one_line(sentence))


def file_error(error: OSError) -> ConfigError:
    """An OSError of the configuration's files as the sentence it is."""
    # A write that fails (a full disk) does not say whose it was.
    where = f"{os.fsdecode(error.filename)}: " if isinstance(error.filename, str | bytes) else ""
    return ConfigError(f"{where}{error.strerror}")


class Listen(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`host` None: 127.0.0.1 and ::1. `port` 0: a free one."""

    host: str | None = None
    port: Annotated[int, Meta(ge=0, le=65535)] = DEFAULT_PORT


class Timeouts(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Seconds. tool: one call. send: a stream whose peer takes no bytes. ping: between comments. drain: running
    calls after SIGTERM."""

    tool: Seconds = 30
    send: Seconds = 20
    ping: Seconds = 15
    drain: Annotated[float, Meta(ge=0, le=86400)] = 5


class Limits(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """rate: messages a second an identity (0: no limit), burst: at once. The sizes are in bytes."""

    rate: Annotated[float, Meta(ge=0, le=1_000_000)] = 50
    burst: Count = 100
    in_flight: Count = 64
    sessions_per_identity: Count = 100
    sessions: Count = 10_000
    body: Bytes = 4 * 1024 * 1024
    result: Bytes = 64 * 1024 * 1024
    outbox: Bytes = 8 * 1024 * 1024


class Log(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    level: Literal["debug", "info", "warning", "error"] = "info"
    format: Literal["text", "json"] = "text"


class _File(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`gateway.yaml`; every key may be left out."""

    listen: Listen = Listen()
    repository: str | None = None
    roots: Annotated[tuple[str, ...], Meta(min_length=1)] = ("/",)
    tool_names: Literal["auto", "documented", "model-safe"] = "auto"
    timeouts: Timeouts = Timeouts()
    limits: Limits = Limits()
    log: Log = Log()


class Config(msgspec.Struct, frozen=True):
    """Everything the gateway was told, checked. Paths are absolute. `user` is the account that a gateway started by
    root becomes, None where no name was given."""

    directory: str
    user: str | None
    listen: Listen
    repository: str | None
    roots: tuple[str, ...]
    tool_names: Literal["auto", "documented", "model-safe"]
    timeouts: Timeouts
    limits: Limits
    log: Log

    @property
    def certificate(self) -> str:
        return certificate_file(self.directory)

    @property
    def certificate_key(self) -> str:
        return f"{self.directory}/tls/mcpd.key"

    @property
    def users(self) -> str:
        return users_file(self.directory)


def certificate_file(directory: str) -> str:
    return f"{directory}/tls/mcpd.crt"


def users_file(directory: str) -> str:
    return f"{directory}/users.yaml"


def signing_key(directory: str) -> str:
    return f"{directory}/tokens/signing.key"


def verifying_key(directory: str) -> str:
    return f"{directory}/tokens/signing.pub"


def config_directory(flag: str | None, environment: Mapping[str, str], uid: int) -> str:
    """--config-dir, else $SSEGATE_CONFIG_DIR, else /etc/ssegate for root and the XDG place for others."""
    if chosen := flag or environment.get("SSEGATE_CONFIG_DIR"):
        return os.path.abspath(chosen)
    if uid == 0:
        return "/etc/ssegate"
    home = environment.get("HOME") or os.path.expanduser("~")
    return os.path.abspath(f"{environment.get('XDG_CONFIG_HOME') or f'{home}/.config'}/ssegate")


def load(directory: str, flags: Mapping[str, Any], environment: Mapping[str, str], working_directory: str) -> Config:
    """Reads `gateway.yaml` below `directory`, lays variables and flags over it and checks the whole.

    `flags` has the dotted keys of the file (`listen.port`) and `user`; a value of None is a flag not given, an empty
    variable one that is not set.
    Raises ConfigError with the file or variable, the key and what is allowed.
    """
    path = f"{directory}/gateway.yaml"
    settings = read_yaml(path)
    from_file = _convert(settings, f"{path}: ")
    for key in _KEYS:
        name = "SSEGATE_" + key.upper().replace(".", "_")
        if environment.get(name):
            _lay(settings, key, _from_text(key, environment[name]))
            from_file = _convert(settings, f"variable {name}: ")
    for key, value in flags.items():
        if key != "user" and value is not None:
            _lay(settings, key, value)
            from_file = _convert(settings, f"--{key.rpartition('.')[2]}: ")
    repository = from_file.repository
    if repository is not None:
        # Below the file when the file says it, as everything in a file; below the caller's place otherwise.
        said_by_file = flags.get("repository") is None and not environment.get("SSEGATE_REPOSITORY")
        repository = os.path.abspath(os.path.join(directory if said_by_file else working_directory, repository))
    else:
        repository = containing_repository(working_directory)
    return Config(
        directory=directory,
        user=flags.get("user") or environment.get("SSEGATE_USER") or None,
        listen=from_file.listen,
        repository=repository,
        roots=tuple(_normal(root) for root in from_file.roots),
        tool_names=from_file.tool_names,
        timeouts=from_file.timeouts,
        limits=from_file.limits,
        log=from_file.log,
    )


def containing_repository(directory: str) -> str | None:
    """The git store that contains `directory`, by its looks alone (gitrepository-layout(5)): nothing is opened here,
    the tool does that in its worker."""
    place = PurePath(directory)
    for candidate in map(str, (place, *place.parents)):
        # os.path.exists: what may not be looked at is no store for us either.
        if os.path.exists(f"{candidate}/.git"):
            return candidate
        if all(os.path.exists(f"{candidate}/{part}") for part in ("HEAD", "objects", "refs")):
            return candidate
    return None


def read_yaml(path: str) -> dict[str, Any]:
    """A YAML mapping as plain values; {} when the file is missing or empty. Raises ConfigError with file and line for
    what is no YAML 1.2, has a key twice, an anchor, a tag or a directive, or is larger than MAX_FILE."""
    try:
        # Neither waits for the other end of a FIFO nor reads a device.
        with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise ConfigError(f"{path}: not a regular file")
            content = file.read(MAX_FILE + 1)
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}") from None
    if len(content) > MAX_FILE:
        raise ConfigError(f"{path}: larger than {MAX_FILE} bytes, which is no configuration")
    try:
        text = content.decode("utf-8")
        for event in YAML(typ="safe", pure=True).parse(text):
            if wrong := _beyond_plain(event):
                raise ConfigError(f"{path}: line {event.start_mark.line + 1}: {wrong}")
        value = YAML(typ="safe", pure=True).load(text)
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: not UTF-8 at byte {error.start}") from None
    except MarkedYAMLError as error:
        line = f"line {error.problem_mark.line + 1}: " if error.problem_mark else ""
        raise ConfigError(f"{path}: {line}{str(error.problem).splitlines()[0]}") from None
    except (YAMLError, ValueError, RecursionError) as error:
        raise ConfigError(f"{path}: {str(error).splitlines()[0]}") from None
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise ConfigError(f"{path}: must hold keys and values, not {type(value).__name__}")
    return value


def _beyond_plain(event: Event) -> str | None:
    """What makes a YAML event more than a plain value, or None. A few aliases can unfold to gigabytes, a tag can mean
    a type of any kind, and a directive can change what `no` means."""
    if isinstance(event, AliasEvent) or (isinstance(event, NodeEvent) and event.anchor is not None):
        return "anchors and aliases (& and *) are not allowed - write the value out"
    if isinstance(event, (ScalarEvent, CollectionStartEvent)) and event.tag is not None:
        return f"the tag {event.tag} is not allowed - write a plain value"
    if isinstance(event, DocumentStartEvent) and (event.version or event.tags):
        return "directives (%) are not allowed - remove the line"
    return None


# What a variable or flag may set, and how its text is read.
_SECTIONS: Final = {"listen": Listen, "timeouts": Timeouts, "limits": Limits, "log": Log}
_KEYS: Final = tuple(
    f"{key}.{name}" if key in _SECTIONS else key
    for key in _File.__struct_fields__
    for name in (_SECTIONS[key].__struct_fields__ if key in _SECTIONS else (key,))
)


def _from_text(key: str, text: str) -> Any:
    if key == "roots":
        return text.split(":")
    if key == "listen.port" or key.startswith(("timeouts.", "limits.")):
        for number in (int, float):
            try:
                return number(text)
            except ValueError:
                continue
    return text


def _lay(settings: dict[str, Any], key: str, value: Any) -> None:
    section, _, name = key.rpartition(".")
    target = settings.setdefault(section, {}) if section else settings
    target[name] = value


def _convert(settings: dict[str, Any], where: str) -> _File:
    try:
        converted = msgspec.convert(settings, _File)
    except msgspec.ValidationError as error:
        raise ConfigError(where + misfit(str(error))) from None
    for root in converted.roots:
        if not root.startswith("/"):
            raise ConfigError(f"{where}roots: {root!r} is relative - give absolute directories")
    return converted


def _normal(path: str) -> str:
    # normpath leaves two slashes at the start, which POSIX lets mean something else; Linux does not.
    return "/" + os.path.normpath(path).lstrip("/")


def misfit(message: str, within: str = "") -> str:
    """msgspec's words for a misfit, the key first: `limits.rate: expected int, got str`. `within` is the key of what
    was converted, where that was not the whole file."""
    what, _, at = message.partition(" - at `")
    if at.startswith("key` in `"):
        what, at = f"a key: {what.lower()}", at.removeprefix("key` in `")
    key = (within + at.rstrip("`").removeprefix("$")).lstrip(".")
    what = what.replace("`", "")
    return f"{key}: {what[0].lower()}{what[1:]}" if key else f"{what[0].lower()}{what[1:]}"
