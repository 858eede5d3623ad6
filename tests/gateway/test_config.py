"""`gateway.yaml`, `SSEGATE_*` and flags: their order, their checks, and one sentence for each mistake."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from gateway import config
from gateway.config import Config, ConfigError, config_directory, containing_repository, load, one_line


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    place = tmp_path / "config"
    place.mkdir()
    return place


@pytest.fixture
def elsewhere(tmp_path: Path) -> str:
    """A working directory in no repository."""
    place = tmp_path / "elsewhere"
    place.mkdir()
    return str(place)


def write(directory: Path, text: str | bytes) -> None:
    (directory / "gateway.yaml").write_bytes(text.encode() if isinstance(text, str) else text)


def setting(settings: Config, key: str) -> Any:
    value: Any = settings
    for part in key.split("."):
        value = getattr(value, part)
    return value


def test_without_any_setting_the_defaults_hold(directory: Path, elsewhere: str) -> None:
    assert load(str(directory), {}, {}, elsewhere) == Config(
        directory=str(directory),
        user=None,
        listen=config.Listen(host=None, port=9091),
        repository=None,
        roots=("/",),
        tool_names="auto",
        timeouts=config.Timeouts(tool=30, send=20, ping=15, drain=5),
        limits=config.Limits(
            rate=50,
            burst=100,
            in_flight=64,
            sessions_per_identity=100,
            sessions=10_000,
            body=4_194_304,
            result=67_108_864,
            outbox=8_388_608,
        ),
        log=config.Log(level="info", format="text"),
    )


def test_the_files_have_their_places(directory: Path, elsewhere: str) -> None:
    settings = load(str(directory), {}, {}, elsewhere)
    assert settings.certificate == f"{directory}/tls/mcpd.crt"
    assert settings.certificate_key == f"{directory}/tls/mcpd.key"
    assert settings.users == f"{directory}/users.yaml"
    assert config.signing_key(str(directory)) == f"{directory}/tokens/signing.key"
    assert config.verifying_key(str(directory)) == f"{directory}/tokens/signing.pub"


# Every key, by file and by variable, and who wins

KEYS: list[tuple[str, str, Any, str, Any]] = [
    # key, text in the file, its value, text of the variable, its value
    ("listen.host", "localhost", "localhost", "0.0.0.0", "0.0.0.0"),  # noqa: S104 - nothing is bound here
    ("listen.port", "0", 0, "65535", 65535),
    ("repository", "/srv/a", "/srv/a", "/srv/b", "/srv/b"),
    ("roots", "[/srv, /var]", ("/srv", "/var"), "/a:/b c", ("/a", "/b c")),
    ("tool_names", "documented", "documented", "model-safe", "model-safe"),
    ("timeouts.tool", "1.5", 1.5, "7", 7),
    ("timeouts.send", "1", 1, "0.25", 0.25),
    ("timeouts.ping", "1", 1, "86400", 86400),
    ("timeouts.drain", "0", 0, "2", 2),
    ("limits.rate", "0", 0, "0.5", 0.5),
    ("limits.burst", "1", 1, "2", 2),
    ("limits.in_flight", "1", 1, "2", 2),
    ("limits.sessions_per_identity", "1", 1, "2", 2),
    ("limits.sessions", "1", 1, "1000000", 1_000_000),
    ("limits.body", "1024", 1024, "2048", 2048),
    ("limits.result", "1024", 1024, "1073741824", 1_073_741_824),
    ("limits.outbox", "1024", 1024, "2048", 2048),
    ("log.level", "debug", "debug", "error", "error"),
    ("log.format", "json", "json", "text", "text"),
]


@pytest.mark.parametrize(("key", "text", "value", "variable", "wins"), KEYS, ids=[row[0] for row in KEYS])
def test_each_key_is_read_from_the_file_and_its_variable_wins(
    directory: Path, elsewhere: str, key: str, text: str, value: Any, variable: str, wins: Any
) -> None:
    section, _, name = key.rpartition(".")
    write(directory, f"{section}:\n  {name}: {text}\n" if section else f"{name}: {text}\n")
    assert setting(load(str(directory), {}, {}, elsewhere), key) == value
    environment = {"SSEGATE_" + key.upper().replace(".", "_"): variable}
    assert setting(load(str(directory), {}, environment, elsewhere), key) == wins
    (directory / "gateway.yaml").unlink()
    assert setting(load(str(directory), {}, environment, elsewhere), key) == wins


def test_every_key_of_the_file_is_in_the_table_above() -> None:
    sections = {"timeouts": config.Timeouts, "limits": config.Limits, "log": config.Log, "listen": config.Listen}
    keys = {f"{name}.{key}" for name, section in sections.items() for key in section.__struct_fields__}
    assert {row[0] for row in KEYS} == keys | {"repository", "roots", "tool_names"}


@pytest.mark.parametrize(
    ("key", "flag", "variable", "text"),
    [
        ("listen.host", "::1", "127.0.0.1", "listen: {host: localhost}"),
        ("listen.port", 1, "2", "listen: {port: 3}"),
        ("repository", "/a", "/b", "repository: /c"),
    ],
)
def test_flags_win_over_variables_which_win_over_the_file(
    directory: Path, elsewhere: str, key: str, flag: Any, variable: str, text: str
) -> None:
    write(directory, text)
    environment = {"SSEGATE_" + key.upper().replace(".", "_"): variable}
    assert setting(load(str(directory), {key: flag}, environment, elsewhere), key) == flag
    without = setting(load(str(directory), {key: None}, environment, elsewhere), key)
    assert str(without) == variable


def test_a_flag_of_zero_counts_as_given(directory: Path, elsewhere: str) -> None:
    write(directory, "listen: {port: 3}")
    assert load(str(directory), {"listen.port": 0}, {}, elsewhere).listen.port == 0


def test_sections_are_laid_over_key_by_key(directory: Path, elsewhere: str) -> None:
    write(directory, "limits: {rate: 1, burst: 2}\n")
    limits = load(str(directory), {}, {"SSEGATE_LIMITS_BURST": "3"}, elsewhere).limits
    assert (limits.rate, limits.burst, limits.in_flight) == (1, 3, 64)


def test_an_empty_variable_is_one_that_is_not_set(directory: Path, elsewhere: str) -> None:
    write(directory, "listen: {port: 3}\nrepository: here\n")
    environment = {"SSEGATE_LISTEN_PORT": "", "SSEGATE_REPOSITORY": "", "SSEGATE_USER": "", "SSEGATE_ROOTS": ""}
    settings = load(str(directory), {}, environment, elsewhere)
    assert (settings.listen.port, settings.repository, settings.user) == (3, f"{directory}/here", None)


def test_the_account_comes_from_the_flag_or_its_variable(directory: Path, elsewhere: str) -> None:
    assert load(str(directory), {"user": "a"}, {"SSEGATE_USER": "b"}, elsewhere).user == "a"
    assert load(str(directory), {"user": None}, {"SSEGATE_USER": "b"}, elsewhere).user == "b"


def test_other_variables_are_left_alone(directory: Path, elsewhere: str) -> None:
    environment = {"SSEGATE_CONFIG_DIR": "/x", "SSEGATE_TOKEN": "y", "LISTEN_PORT": "1"}
    assert load(str(directory), {}, environment, elsewhere).listen.port == 9091


@pytest.mark.parametrize(
    ("given", "roots"),
    [
        (["/"], ("/",)),
        (["//"], ("/",)),
        (["//srv"], ("/srv",)),
        (["/srv/"], ("/srv",)),
        (["/srv/./a/../b//c"], ("/srv/b/c",)),
        (["/.."], ("/",)),
        (["/a b", "/é"], ("/a b", "/é")),
    ],
)
def test_roots_are_cleaned(directory: Path, elsewhere: str, given: list[str], roots: tuple[str, ...]) -> None:
    write(directory, "roots:\n" + "".join(f'  - "{root}"\n' for root in given))
    assert load(str(directory), {}, {}, elsewhere).roots == roots


# The repository


def test_a_relative_repository_is_below_the_place_that_named_it(directory: Path, elsewhere: str) -> None:
    write(directory, "repository: ../store\n")
    assert load(str(directory), {}, {}, elsewhere).repository == f"{directory.parent}/store"
    assert load(str(directory), {}, {"SSEGATE_REPOSITORY": "s"}, elsewhere).repository == f"{elsewhere}/s"
    assert load(str(directory), {"repository": "./t/"}, {}, elsewhere).repository == f"{elsewhere}/t"


def test_without_a_repository_the_one_around_the_working_directory_is_taken(directory: Path, tmp_path: Path) -> None:
    store = tmp_path / "store"
    inner = store / "a" / "b"
    inner.mkdir(parents=True)
    (store / ".git").mkdir()
    assert load(str(directory), {}, {}, str(inner)).repository == str(store)
    assert load(str(directory), {"repository": "/x"}, {}, str(inner)).repository == "/x"


@pytest.mark.parametrize(
    ("made", "start", "found"),
    [
        ([".git/"], "", ""),
        ([".git/"], "a/b", ""),
        ([".git"], "a", ""),  # a worktree's file
        (["a/.git/", ".git/"], "a/b", "a"),
        (["s.git/HEAD", "s.git/objects/", "s.git/refs/"], "s.git", "s.git"),
        (["s.git/HEAD", "s.git/objects/", "s.git/refs/"], "s.git/refs", "s.git"),
        (["s.git/HEAD", "s.git/objects/"], "s.git", None),
        (["HEAD"], "a", None),
    ],
)
def test_a_store_is_known_by_its_looks(tmp_path: Path, made: list[str], start: str, found: str | None) -> None:
    for name in made:
        place = tmp_path / name
        place.parent.mkdir(parents=True, exist_ok=True)
        place.mkdir() if name.endswith("/") else place.touch()
    (tmp_path / start).mkdir(parents=True, exist_ok=True)
    expected = None if found is None else os.path.normpath(tmp_path / found)
    assert containing_repository(str(tmp_path / start)) == expected


@pytest.mark.skipif(os.geteuid() == 0, reason="root may look everywhere")
def test_a_directory_that_may_not_be_searched_holds_no_store(tmp_path: Path) -> None:
    closed = tmp_path / "closed"
    (closed / "inner").mkdir(parents=True)
    closed.chmod(0)
    try:
        assert containing_repository(str(closed / "inner")) is None
    finally:
        closed.chmod(0o700)


# The directory


@pytest.mark.parametrize(
    ("flag", "environment", "uid", "directory"),
    [
        ("/a/b/", {"SSEGATE_CONFIG_DIR": "/c"}, 0, "/a/b"),
        ("/a", {}, 1000, "/a"),
        (None, {"SSEGATE_CONFIG_DIR": "/c", "XDG_CONFIG_HOME": "/x", "HOME": "/h"}, 1000, "/c"),
        (None, {"SSEGATE_CONFIG_DIR": "/c"}, 0, "/c"),
        (None, {"SSEGATE_CONFIG_DIR": "", "XDG_CONFIG_HOME": "/x", "HOME": "/h"}, 0, "/etc/ssegate"),
        (None, {"XDG_CONFIG_HOME": "/x", "HOME": "/h"}, 1000, "/x/ssegate"),
        (None, {"XDG_CONFIG_HOME": "", "HOME": "/h"}, 1000, "/h/.config/ssegate"),
        (None, {"HOME": "/h"}, 1000, "/h/.config/ssegate"),
    ],
)
def test_the_directory_is_the_flags_the_variables_or_the_default(
    flag: str | None, environment: dict[str, str], uid: int, directory: str
) -> None:
    assert config_directory(flag, environment, uid) == directory


def test_a_relative_directory_is_below_the_working_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert config_directory("conf", {}, 1000) == f"{tmp_path}/conf"
    assert config_directory(None, {"SSEGATE_CONFIG_DIR": "../conf"}, 1000) == f"{tmp_path.parent}/conf"


# What is refused, and in which words


def refusal(directory: Path, elsewhere: str, environment: dict[str, str] | None = None) -> str:
    with pytest.raises(ConfigError) as caught:
        load(str(directory), {}, environment or {}, elsewhere)
    sentence = str(caught.value)
    assert sentence.isprintable(), "every message is one line"
    return sentence.replace(f"{directory}/", "")


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("port: 1", "gateway.yaml: object contains unknown field port"),
        ("listen: {ports: 1}", "gateway.yaml: listen: object contains unknown field ports"),
        ("limits: {rate: 1, x: 2}", "gateway.yaml: limits: object contains unknown field x"),
        ("timeouts: {Tool: 1}", "gateway.yaml: timeouts: object contains unknown field Tool"),
        ("user: nobody", "gateway.yaml: object contains unknown field user"),
        ('"a\\nb\\e[2J": 1', "gateway.yaml: object contains unknown field a\\nb\\x1b[2J"),
        ("1: 2", "gateway.yaml: a key: expected str"),
        ("listen:", "gateway.yaml: listen: expected object, got null"),
        ("listen: [1]", "gateway.yaml: listen: expected object, got array"),
        ("listen: {port: '1'}", "gateway.yaml: listen.port: expected int, got str"),
        ("listen: {port: true}", "gateway.yaml: listen.port: expected int, got bool"),
        ("listen: {port: 1.5}", "gateway.yaml: listen.port: expected int, got float"),
        ("listen: {port: -1}", "gateway.yaml: listen.port: expected int >= 0"),
        ("listen: {port: 65536}", "gateway.yaml: listen.port: expected int <= 65535"),
        ("listen: {host: 1}", "gateway.yaml: listen.host: expected str | null, got int"),
        ("repository: 2026-01-31", "gateway.yaml: repository: expected str | null, got date"),
        ("repository: [a]", "gateway.yaml: repository: expected str | null, got array"),
        ("roots: /srv", "gateway.yaml: roots: expected array, got str"),
        ("roots: []", "gateway.yaml: roots: expected array of length >= 1"),
        ("roots: [/a, 1]", "gateway.yaml: roots[1]: expected str, got int"),
        ("roots: [/a, srv]", "gateway.yaml: roots: 'srv' is relative - give absolute directories"),
        ('roots: [""]', "gateway.yaml: roots: '' is relative - give absolute directories"),
        ("tool_names: both", "gateway.yaml: tool_names: invalid enum value 'both'"),
        ("timeouts: {tool: 0}", "gateway.yaml: timeouts.tool: expected float > 0.0"),
        ("timeouts: {tool: .nan}", "gateway.yaml: timeouts.tool: expected float > 0.0"),
        ("timeouts: {ping: .inf}", "gateway.yaml: timeouts.ping: expected float <= 86400.0"),
        ("timeouts: {drain: -1}", "gateway.yaml: timeouts.drain: expected float >= 0.0"),
        ("timeouts: {send: 30s}", "gateway.yaml: timeouts.send: expected float, got str"),
        ("limits: {rate: no}", "gateway.yaml: limits.rate: expected float, got str"),
        ("limits: {rate: .nan}", "gateway.yaml: limits.rate: expected float >= 0.0"),
        ("limits: {burst: 0}", "gateway.yaml: limits.burst: expected int >= 1"),
        ("limits: {body: 1000}", "gateway.yaml: limits.body: expected int >= 1024"),
        ("limits: {result: 4 MiB}", "gateway.yaml: limits.result: expected int, got str"),
        ("log: {level: loud}", "gateway.yaml: log.level: invalid enum value 'loud'"),
        ("log: {format: xml}", "gateway.yaml: log.format: invalid enum value 'xml'"),
    ],
)
def test_a_setting_that_does_not_fit_is_named_with_its_file_and_key(
    directory: Path, elsewhere: str, text: str, sentence: str
) -> None:
    write(directory, text)
    assert refusal(directory, elsewhere) == sentence


@pytest.mark.parametrize(
    ("name", "value", "sentence"),
    [
        ("LISTEN_PORT", "x", "listen.port: expected int, got str"),
        ("LISTEN_PORT", "70000", "listen.port: expected int <= 65535"),
        ("TIMEOUTS_TOOL", "nan", "timeouts.tool: expected float > 0.0"),
        ("TIMEOUTS_TOOL", "inf", "timeouts.tool: expected float <= 86400.0"),
        ("LIMITS_BODY", "1" * 5000, "limits.body: expected int, got float"),
        ("LOG_LEVEL", "loud\n", "log.level: invalid enum value 'loud\\n'"),
        ("ROOTS", "/a:b", "roots: 'b' is relative - give absolute directories"),
        ("ROOTS", "/a:", "roots: '' is relative - give absolute directories"),
    ],
)
def test_a_variable_that_does_not_fit_is_named_with_its_key(
    directory: Path, elsewhere: str, name: str, value: str, sentence: str
) -> None:
    write(directory, "roots: [/]\n")
    assert refusal(directory, elsewhere, {f"SSEGATE_{name}": value}) == f"variable SSEGATE_{name}: {sentence}"


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("- a\n- b", "must hold keys and values, not list"),
        ("text", "must hold keys and values, not str"),
        ("listen: {port: 1}\nlisten: {port: 2}", "line 2: found duplicate key"),
        ("limits:\n  rate: 1\n  burst: 2\n  rate: 3", "line 4: found duplicate key"),
        ("roots: &all [/]\n", "line 1: anchors and aliases (& and *) are not allowed"),
        ("listen: {port: 1}\nrepository: *x", "line 2: anchors and aliases (& and *) are not allowed"),
        ("roots:\n- &a /x\n- *a\n", "line 2: anchors and aliases (& and *) are not allowed"),
        ("? &k listen\n: {}", "line 1: anchors and aliases (& and *) are not allowed"),
        ("listen: !!map {}", "line 1: the tag tag:yaml.org,2002:map is not allowed"),
        ("\nrepository: !!str 5", "line 2: the tag tag:yaml.org,2002:str is not allowed"),
        ("x: !!python/object/apply:os.system [id]", "line 1: the tag tag:yaml.org,2002:python/object/apply:os.system"),
        ("x: !!bool foo", "line 1: the tag tag:yaml.org,2002:bool is not allowed"),
        ("x: !mine 1", "line 1: the tag !mine is not allowed"),
        ("x: ! 1", "line 1: the tag ! is not allowed"),
        ("%YAML 1.1\n---\nlisten: {}", "line 2: directives (%) are not allowed"),
        ("%TAG ! tag:x,2026:\n---\nlisten: {}", "line 2: directives (%) are not allowed"),
        ("listen: {}\n---\nlisten: {}", "line 2: but found another document"),
        ("listen: {", "line 1: "),
        ("listen: 'x", "line 1: "),
        ("\tlisten: {}", "line 1: "),
        ("listen:\n port: 1\n  host: x", "line 3: "),
        ("x: \x00", "unacceptable character #x0000"),
        (b"x: \xff", "not UTF-8 at byte 3"),
        (b"\xff\xfex\x00", "not UTF-8 at byte 0"),
        ("x: " + "1" * 5000, "Exceeds the limit (4300 digits)"),
        ("x: 2026-13-45", "month must be in 1..12"),
        ("[" * 100 + "]" * 100, "must hold keys and values, not list"),
        ("[" * 600 + "]" * 600, "maximum recursion depth exceeded"),
        ("#" * (1024 * 1024 + 1), "larger than 1048576 bytes, which is no configuration"),
    ],
)
def test_what_is_no_plain_yaml_mapping_is_refused_with_its_line(
    directory: Path, elsewhere: str, text: str | bytes, sentence: str
) -> None:
    write(directory, text)
    assert refusal(directory, elsewhere).startswith(f"gateway.yaml: {sentence}")


def test_an_alias_bomb_is_refused_before_it_unfolds(directory: Path, elsewhere: str) -> None:
    levels = ["a0: &a0 [x]"] + [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 30)]
    write(directory, "\n".join(levels))
    assert "anchors and aliases" in refusal(directory, elsewhere)


@pytest.mark.parametrize("text", ["", "\n", "# nothing\n", "---\n", "{}", "--- {}\n...\n", "null"])
def test_a_file_without_settings_is_fine(directory: Path, elsewhere: str, text: str) -> None:
    write(directory, text)
    assert load(str(directory), {}, {}, elsewhere).listen.port == 9091


def test_yaml_1_2_words_stay_words(directory: Path, elsewhere: str) -> None:
    write(directory, "repository: no\nlisten: {host: on}\n")
    settings = load(str(directory), {}, {}, elsewhere)
    assert settings.repository == f"{directory}/no"
    assert settings.listen.host == "on"


def test_a_file_that_is_a_directory_is_refused(directory: Path, elsewhere: str) -> None:
    (directory / "gateway.yaml").mkdir()
    assert refusal(directory, elsewhere) == "gateway.yaml: Is a directory"


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read every file")
def test_a_file_that_may_not_be_read_is_refused(directory: Path, elsewhere: str) -> None:
    write(directory, "")
    (directory / "gateway.yaml").chmod(0)
    assert refusal(directory, elsewhere) == "gateway.yaml: Permission denied"


def test_a_flag_that_does_not_fit_is_named(directory: Path, elsewhere: str) -> None:
    with pytest.raises(ConfigError, match=r"^--port: listen\.port: expected int <= 65535$"):
        load(str(directory), {"listen.port": 70000}, {}, elsewhere)


@pytest.mark.parametrize(
    ("text", "line"),
    [("plain é", "plain é"), ("a\nb\x1b[0m", "a\\nb\\x1b[0m"), ("\u2028\u202e\ud800", "\\u2028\\u202e\\ud800")],
)
def test_one_line_escapes_what_ends_a_line_or_steers_a_terminal(text: str, line: str) -> None:
    assert one_line(text) == line
