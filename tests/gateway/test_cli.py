"""The `ssegate` command: the real program for what it does and how it fails, click's runner for what it parses."""

from __future__ import annotations

import os
import pwd
import re
import socket
import stat
import subprocess
import sysconfig
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner

from certs.create import ensure_pair, make_pair
from gateway import tokens, users
from gateway.auth import Authenticator
from gateway.cli import main
from gateway.users import IssuedToken, User

PROGRAM = f"{sysconfig.get_path('scripts')}/ssegate"
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root may choose the account")
without_root = pytest.mark.skipif(os.geteuid() == 0, reason="root may read and become everything")


def ssegate(
    home: Path, *arguments: str, umask: int = 0o022, variables: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """The program with a home of its own and no other settings; it has 30 seconds."""
    return subprocess.run(
        [PROGRAM, *arguments],
        capture_output=True,
        check=False,
        text=True,
        timeout=30,
        cwd=home,
        umask=umask,
        env={"PATH": os.environ["PATH"], "HOME": str(home), **(variables or {})},
    )


def sentence_of(home: Path, code: int, stdout: str, stderr: str) -> str:
    """The sentence with which a command refused; wherever it names `home`, that is left out."""
    assert (code, stdout) == (2, "")
    assert re.fullmatch(r"ssegate: [^\n]+\n", stderr), stderr
    return stderr.removeprefix("ssegate: ").rstrip("\n").replace(f"{home}/", "")


def refusal(home: Path, *arguments: str, variables: dict[str, str] | None = None) -> str:
    """What the real program refuses with."""
    ended = ssegate(home, *arguments, variables=variables)
    return sentence_of(home, ended.returncode, ended.stdout, ended.stderr)


def refusal_here(home: Path, *arguments: str) -> str:
    """The same inside this process, which takes a twentieth of the time: for tables."""
    ended = CliRunner().invoke(main, arguments)
    return sentence_of(home, ended.exit_code, ended.stdout, ended.stderr)


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path.resolve()


@pytest.fixture
def conf(home: Path) -> Path:
    directory = home / "conf"
    directory.mkdir()
    return directory


# Tokens and users


def test_token_create_prints_the_token_alone_and_it_is_let_in(home: Path) -> None:
    made = ssegate(home, "token", "create", "alice", "--config-dir", "conf")
    assert (made.returncode, made.stderr) == (0, "")
    assert re.fullmatch(r"[\w-]+\.[\w-]+\.[\w-]+\n", made.stdout, re.ASCII)
    key = tokens.public_key((home / "conf/tokens/signing.pub").read_bytes())
    header = [(b"authorization", f"Bearer {made.stdout.strip()}".encode())]
    assert Authenticator(key, lambda: {"alice": 0.0}).authenticate(header).subject == "alice"


@pytest.mark.parametrize("umask", [0o000, 0o077])
def test_token_create_leaves_files_for_their_owner(home: Path, umask: int) -> None:
    ssegate(home, "token", "create", "alice", "--config-dir", "conf", umask=umask)
    modes = {
        name: stat.S_IMODE((home / "conf" / name).stat().st_mode)
        for name in ("tokens", "tokens/signing.key", "tokens/signing.pub", "users.yaml")
    }
    assert modes == {"tokens": 0o700, "tokens/signing.key": 0o600, "tokens/signing.pub": 0o644, "users.yaml": 0o600}


def test_the_directory_comes_from_the_variable(home: Path) -> None:
    made = ssegate(home, "token", "create", "alice", variables={"SSEGATE_CONFIG_DIR": f"{home}/there"})
    assert made.returncode == 0
    assert list(users.read(f"{home}/there/users.yaml").users) == ["alice"]


@without_root
def test_without_root_the_directory_is_in_the_home(home: Path) -> None:
    assert ssegate(home, "token", "create", "alice").returncode == 0
    assert list(users.read(f"{home}/.config/ssegate/users.yaml").users) == ["alice"]
    assert ssegate(home, "token", "create", "bob", variables={"XDG_CONFIG_HOME": f"{home}/xdg"}).returncode == 0
    assert list(users.read(f"{home}/xdg/ssegate/users.yaml").users) == ["bob"]


def test_token_list_shows_what_was_made_and_has_not_expired(home: Path, conf: Path) -> None:
    good = IssuedToken("0123456789abcdef", "2020-01-01T00:00:00Z", "2099-01-01T00:00:00Z")
    expired = IssuedToken("fedcba9876543210", "2020-01-01T00:00:00Z", "2020-02-01T00:00:00Z")
    with users.changing(str(conf)) as known:
        known["alice"] = User((expired, good))
        known["bob-with-a-long-name"] = User((good, good))
        known["carol"] = User((expired,))
    shown = ssegate(home, "token", "list", "--config-dir", "conf")
    assert (shown.returncode, shown.stderr) == (0, "")
    assert shown.stdout == (
        "USER                   ID                 ISSUED                 EXPIRES\n"
        "alice                  0123456789abcdef   2020-01-01T00:00:00Z   2099-01-01T00:00:00Z\n"
        "bob-with-a-long-name   0123456789abcdef   2020-01-01T00:00:00Z   2099-01-01T00:00:00Z\n"
        "bob-with-a-long-name   0123456789abcdef   2020-01-01T00:00:00Z   2099-01-01T00:00:00Z\n"
    )


def test_token_list_of_nobody_is_a_heading(home: Path) -> None:
    shown = ssegate(home, "token", "list", "--config-dir", "nowhere")
    assert (shown.returncode, shown.stdout, shown.stderr) == (0, "USER   ID   ISSUED   EXPIRES\n", "")


def test_user_remove_says_nothing_and_leaves_the_others(home: Path, conf: Path) -> None:
    with users.changing(str(conf)) as known:
        known["alice"] = known["bob"] = User()
    removed = ssegate(home, "user", "remove", "alice", "--config-dir", "conf")
    assert (removed.returncode, removed.stdout, removed.stderr) == (0, "", "")
    assert list(users.read(f"{conf}/users.yaml").users) == ["bob"]


def test_user_remove_of_a_stranger_names_who_there_is(home: Path, conf: Path) -> None:
    with users.changing(str(conf)) as known:
        known["alice"] = known["bob"] = User()
    assert refusal(home, "user", "remove", "carol", "--config-dir", "conf") == (
        "there is no user 'carol' in conf/users.yaml (it has alice, bob)"
    )


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["token", "create", "a b"], "user name 'a b': letters, digits and _ . @ - are allowed, 64 at most"),
        (["token", "create", "a\nb"], "user name 'a\\nb': letters, digits and _ . @ - are allowed, 64 at most"),
        (
            ["token", "create", "alice", "--expires", "soon"],
            "--expires 'soon': give a number and a unit, such as 12h, 30d or 1y",
        ),
        (["token", "create", "alice", "--expires", "999999999y"], "--expires '999999999y': 100y is the most"),
        (["user", "remove", "alice"], "there is no user 'alice' in conf/users.yaml (it has nobody)"),
        (["cert", "show"], "conf/tls/mcpd.crt: No such file or directory"),
    ],
)
def test_a_mistake_is_one_sentence_and_exit_code_2(home: Path, conf: Path, arguments: list[str], sentence: str) -> None:
    assert refusal_here(home, *arguments, "--config-dir", str(conf)) == sentence
    assert not (conf / "tokens").exists()


@pytest.mark.parametrize("command", [["token", "create", "alice"], ["token", "list"], ["user", "remove", "alice"]])
def test_a_broken_users_file_is_one_sentence_and_stays_as_it_is(home: Path, conf: Path, command: list[str]) -> None:
    (conf / "users.yaml").write_text("users: {alice: {age: 5}}\n")
    assert refusal_here(home, *command, "--config-dir", str(conf)) == (
        "conf/users.yaml: users.alice: object contains unknown field age"
    )
    assert (conf / "users.yaml").read_text() == "users: {alice: {age: 5}}\n"


def test_a_directory_that_is_a_file_is_one_sentence(home: Path) -> None:
    (home / "conf").write_text("")
    place = f"{home}/conf"
    assert refusal_here(home, "token", "create", "alice", "--config-dir", f"{place}/x") == "conf/x: Not a directory"
    assert refusal_here(home, "user", "remove", "al", "--config-dir", place) == (
        "there is no configuration in conf - name its directory with --config-dir"
    )
    assert refusal_here(home, "serve", "--config-dir", place) == "conf/gateway.yaml: Not a directory"


@without_root
def test_a_directory_that_may_not_be_written_is_one_sentence(home: Path, conf: Path) -> None:
    conf.chmod(0o500)
    place = str(conf)
    assert refusal_here(home, "token", "create", "alice", "--config-dir", place) == "conf/tokens: Permission denied"
    assert refusal(home, "serve", "--port", "0", "--config-dir", "conf") == "conf/tls: Permission denied"


# The certificate


def test_cert_show_is_what_openssl_says(home: Path, conf: Path) -> None:
    ensure_pair(f"{conf}/tls/mcpd.crt", f"{conf}/tls/mcpd.key")
    asked = subprocess.run(
        ["openssl", "x509", "-in", f"{conf}/tls/mcpd.crt", "-noout", "-fingerprint", "-sha256"],
        capture_output=True,
        check=True,
        text=True,
    )
    expected = asked.stdout.strip().partition("=")[2].replace(":", "").lower()
    shown = ssegate(home, "cert", "show", "--config-dir", "conf")
    assert (shown.returncode, shown.stderr) == (0, "")
    file, fingerprint, names, expires = shown.stdout.splitlines()
    assert file == f"file         {conf}/tls/mcpd.crt"
    assert fingerprint == f"fingerprint  sha256:{expected}"
    assert names.startswith("names        localhost, 127.0.0.1, ::1")
    assert re.fullmatch(r"expires      \d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", expires)


# What `serve` cannot start with


@pytest.mark.parametrize("host", [None, "127.0.0.1"])
def test_serve_on_a_port_in_use_says_so(home: Path, host: str | None) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        arguments = [] if host is None else ["--host", host]
        assert refusal(home, "serve", "--port", str(port), "--config-dir", "conf", *arguments) == (
            f"port {port} on 127.0.0.1 is in use - stop what uses it, or choose another with --port or "
            "SSEGATE_LISTEN_PORT"
        )


def _certificate_alone(conf: Path) -> None:
    (conf / "tls").mkdir()
    (conf / "tls/mcpd.crt").write_bytes(make_pair(["localhost"])[0])


def _key_is_a_directory(conf: Path) -> None:
    _certificate_alone(conf)
    (conf / "tls/mcpd.key").mkdir()


def _keys_of_two_pairs(conf: Path) -> None:
    _certificate_alone(conf)
    (conf / "tls/mcpd.key").write_bytes(make_pair(["localhost"])[1])


def _token_key_alone(conf: Path) -> None:
    tokens.ensure_keys(str(conf))
    (conf / "tokens/signing.pub").unlink()


def _broken_token_key(conf: Path) -> None:
    tokens.ensure_keys(str(conf))
    (conf / "tokens/signing.pub").write_text("garbage")


def _file(name: str, text: str) -> Callable[[Path], None]:
    def write(conf: Path) -> None:
        (conf / name).write_text(text)

    return write


@pytest.mark.parametrize(
    ("prepare", "sentence"),
    [
        pytest.param(
            _certificate_alone,
            "conf/tls/mcpd.crt is there but conf/tls/mcpd.key is not - restore it, or remove both to have a new pair "
            "made",
            id="certificate without key",
        ),
        pytest.param(_key_is_a_directory, "conf/tls/mcpd.key: Is a directory", id="key that cannot be read"),
        pytest.param(
            _keys_of_two_pairs,
            "conf/tls/mcpd.crt and conf/tls/mcpd.key are not a pair that TLS can use (KEY_VALUES_MISMATCH) - check "
            "that both are PEM, belong together, and that the key has no passphrase",
            id="certificate and key of two pairs",
        ),
        pytest.param(
            _token_key_alone,
            "conf/tokens/signing.key is there but conf/tokens/signing.pub is not - restore it, or remove both to have "
            "a new pair made",
            id="half a token key",
        ),
        pytest.param(
            _broken_token_key,
            "conf/tokens/signing.pub: the token key is not an Ed25519 public key in PEM",
            id="broken token key",
        ),
        pytest.param(
            _file("users.yaml", "users: {alice: {}, alice: {}}"),
            'conf/users.yaml: line 1: found duplicate key "alice" with value "{}" (original value: "{}")',
            id="broken users.yaml",
        ),
        pytest.param(
            _file("gateway.yaml", "limits:\n  rates: 5\n"),
            "conf/gateway.yaml: limits: object contains unknown field rates",
            id="unknown setting",
        ),
        pytest.param(
            _file("gateway.yaml", "listen: {port: [}"),
            "conf/gateway.yaml: line 1: expected the node content, but found '}'",
            id="broken gateway.yaml",
        ),
    ],
)
def test_serve_with_a_broken_file_names_it(
    home: Path, conf: Path, prepare: Callable[[Path], None], sentence: str
) -> None:
    prepare(conf)
    assert refusal(home, "serve", "--port", "0", "--config-dir", "conf") == sentence


@without_root
def test_serve_with_a_key_that_may_not_be_read_names_it(home: Path, conf: Path) -> None:
    ensure_pair(f"{conf}/tls/mcpd.crt", f"{conf}/tls/mcpd.key")
    (conf / "tls/mcpd.key").chmod(0)
    assert refusal(home, "serve", "--port", "0", "--config-dir", "conf") == "conf/tls/mcpd.key: Permission denied"


def test_serve_with_a_bad_variable_names_it(home: Path) -> None:
    assert refusal(home, "serve", "--config-dir", "conf", variables={"SSEGATE_LIMITS_RATE": "fast"}) == (
        "variable SSEGATE_LIMITS_RATE: limits.rate: expected float, got str"
    )


@needs_root
@pytest.mark.parametrize(
    ("user", "sentence"),
    [
        ("no-such-account", "there is no account no-such-account on this host - name one with --user"),
        ("root", "--user root is root, and the process that reads the network never is"),
    ],
)
def test_serve_as_an_account_that_cannot_be_names_it(home: Path, conf: Path, user: str, sentence: str) -> None:
    assert refusal(home, "serve", "--port", "0", "--config-dir", "conf", "--user", user) == sentence
    assert os.listdir(conf) == []


@without_root
def test_serve_as_another_account_takes_root(home: Path) -> None:
    own = pwd.getpwuid(os.getuid()).pw_name
    assert refusal(home, "serve", "--port", "0", "--config-dir", "conf", "--user", "root") == (
        f"--user root: only root can start the gateway as another account than {own}"
    )


def test_serve_from_a_directory_that_is_gone_says_so(home: Path, conf: Path) -> None:
    gone = home / "gone"
    gone.mkdir()
    ended = subprocess.run(
        ["sh", "-c", 'rmdir "$1" && exec "$2" serve --config-dir "$3"', "sh", gone, PROGRAM, conf],
        capture_output=True,
        check=False,
        text=True,
        timeout=30,
        cwd=gone,
    )
    assert (ended.returncode, ended.stdout) == (2, "")
    assert ended.stderr == "ssegate: the working directory: No such file or directory - change to another\n"


# What is parsed


@pytest.mark.parametrize(
    "arguments",
    [
        ["nonsense"],
        ["token"],
        ["token", "create"],
        ["token", "create", "a", "b"],
        ["token", "list", "extra"],
        ["user", "remove"],
        ["serve", "--port", "65536"],
        ["serve", "--port", "-1"],
        ["serve", "--port", "x"],
        ["serve", "--unknown"],
        ["serve", "extra"],
        ["cert"],
    ],
)
def test_a_wrong_command_line_ends_with_exit_code_2(arguments: list[str]) -> None:
    result = CliRunner().invoke(main, arguments)
    assert result.exit_code == 2
    assert result.stdout == ""
    assert result.stderr.startswith("Usage: ")


@pytest.mark.parametrize(
    "command", [[], ["serve"], ["token"], ["token", "create"], ["user", "remove"], ["cert", "show"]]
)
@pytest.mark.parametrize("option", ["-h", "--help"])
def test_every_command_has_help(command: list[str], option: str) -> None:
    result = CliRunner().invoke(main, [*command, option])
    assert result.exit_code == 0
    assert result.stdout.startswith("Usage: ")


def test_the_version_is_printed() -> None:
    result = CliRunner().invoke(main, ["--version"])
    assert result.exit_code == 0
    assert re.fullmatch(r"ssegate, version \d+\.\d+\.\d+\n", result.stdout)
