"""The start: what stops it, as whom it then runs, on which addresses, and by which settings."""

from __future__ import annotations

import os
import pwd
import re
import shutil
import socket
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from certs.create import make_pair
from gateway import tokens
from tests.walk.client import Connection, text_of, trial
from tests.walk.conftest import Start
from tests.walk.running import (
    PATIENCE,
    SERVE,
    Running,
    as_root,
    environment_of,
    eventually,
    of_session,
    refused,
    status,
)

NOBODY = 65534


def hexadecimal(capabilities: str) -> int:
    return int(capabilities, 16)


# What it cannot start with: one sentence, exit code 2


@pytest.fixture
def directory(open_directory: Path, tmp_path: Path) -> Iterator[Path]:
    """A configuration directory that every account can reach."""
    path = open_directory / tmp_path.name
    path.mkdir()
    yield path
    shutil.rmtree(path, ignore_errors=True)


def refusal(directory: Path, *arguments: str, **options: Any) -> str:
    """The one sentence of a start that fails as it should."""
    done = refused("--config-dir", str(directory), "--repository", "/", *arguments, **options)
    assert (done.returncode, done.stdout) == (2, ""), done.stderr
    match = re.fullmatch(r"ssegate: (.+)\n", done.stderr)
    assert match is not None, done.stderr
    return match[1]


def write(path: Path, content: str | bytes) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(content if isinstance(content, bytes) else content.encode())


@pytest.mark.parametrize(
    ("family", "address"), [(socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")], ids=["IPv4", "IPv6"]
)
def test_a_port_in_use_stops_the_start(directory: Path, family: socket.AddressFamily, address: str) -> None:
    with socket.socket(family) as other:
        other.bind((address, 0))
        other.listen()
        port = other.getsockname()[1]
        assert refusal(directory, "--port", str(port)).startswith(f"port {port} on {address} is in use - stop what")


def certificate_alone(directory: Path) -> None:
    write(directory / "tls" / "mcpd.crt", make_pair(["localhost"])[0])


def key_alone(directory: Path) -> None:
    write(directory / "tls" / "mcpd.key", make_pair(["localhost"])[1])


def foreign_key(directory: Path) -> None:
    certificate_alone(directory)
    key_alone(directory)


def garbage_pair(directory: Path) -> None:
    write(directory / "tls" / "mcpd.crt", "a certificate")
    write(directory / "tls" / "mcpd.key", "a key")


def unknown_setting(directory: Path) -> None:
    write(directory / "gateway.yaml", "limits: {rates: 5}\n")


def broken_settings(directory: Path) -> None:
    write(directory / "gateway.yaml", "listen: {port: 1\n")


def settings_twice(directory: Path) -> None:
    write(directory / "gateway.yaml", "limits: {rate: 1}\nlimits: {rate: 2}\n")


def broken_users(directory: Path) -> None:
    write(directory / "users.yaml", "users: [alice]\n")


def signing_key_alone(directory: Path) -> None:
    write(directory / "tokens" / "signing.key", "a key")


def garbage_token_key(directory: Path) -> None:
    write(directory / "tokens" / "signing.key", "a key")
    write(directory / "tokens" / "signing.pub", "a key")


def directory_is_a_file(directory: Path) -> None:
    directory.rmdir()
    directory.write_text("")


@pytest.mark.parametrize(
    ("prepare", "sentence"),
    [
        (certificate_alone, r"\S+/tls/mcpd.crt is there but \S+/tls/mcpd.key is not - restore it, or remove both .*"),
        (key_alone, r"\S+/tls/mcpd.key is there but \S+/tls/mcpd.crt is not - restore it, or remove both .*"),
        (foreign_key, r"\S+/mcpd.crt and \S+/mcpd.key are not a pair that TLS can use \(KEY_VALUES_MISMATCH\).*"),
        (garbage_pair, r"\S+/mcpd.crt and \S+/mcpd.key are not a pair that TLS can use .*"),
        (unknown_setting, r"\S+/gateway.yaml: limits: object contains unknown field rates"),
        (broken_settings, r"\S+/gateway.yaml: line \d+: .*"),
        (settings_twice, r"\S+/gateway.yaml: line 2: .*limits.*"),
        (broken_users, r"\S+/users.yaml: users: expected object, got array"),
        (signing_key_alone, r"\S+/tokens/signing.key is there but \S+/tokens/signing.pub is not - restore it.*"),
        (garbage_token_key, r"\S+/tokens/signing.pub: the token key is not an Ed25519 public key in PEM"),
        (directory_is_a_file, r"\S+: (Not a directory|File exists)"),
    ],
)
def test_a_broken_file_stops_the_start(directory: Path, prepare: Callable[[Path], None], sentence: str) -> None:
    prepare(directory)
    said = refusal(directory, "--port", "0")
    assert re.fullmatch(sentence, said), said


@pytest.mark.parametrize(
    ("arguments", "environment", "sentence"),
    [
        (["--host", "no.such.host.invalid"], {}, "listen host 'no.such.host.invalid' is no address and no name .*"),
        (["--host", "a" * 300], {}, "listen host 'a+' is no address and no name that is known here"),
        (["--host", "192.0.2.1"], {}, "cannot listen on 192.0.2.1 port 0: Cannot assign requested address"),
        ([], {"SSEGATE_TIMEOUTS_TOOL": "soon"}, "variable SSEGATE_TIMEOUTS_TOOL: timeouts.tool: expected float, .*"),
        ([], {"SSEGATE_LIMITS_RATE": "-1"}, "variable SSEGATE_LIMITS_RATE: limits.rate: expected float >= 0.*"),
        (["--user", "no-such-account"], {}, r".*no-such-account.*"),
    ],
)
def test_a_setting_that_cannot_be_stops_the_start(
    directory: Path, arguments: list[str], environment: dict[str, str], sentence: str
) -> None:
    said = refusal(directory, "--port", "0", *arguments, environment=environment)
    assert re.fullmatch(sentence, said), said


@as_root
@pytest.mark.parametrize("name", ["tls/mcpd.key", "tls/mcpd.crt", "tokens/signing.pub", "users.yaml", "gateway.yaml"])
def test_a_file_that_cannot_be_read_stops_the_start_of_an_ordinary_user(directory: Path, name: str) -> None:
    certificate, key = make_pair(["localhost"])
    write(directory / "tls" / "mcpd.crt", certificate)
    write(directory / "tls" / "mcpd.key", key)
    tokens.ensure_keys(str(directory))
    (directory / "tokens").chmod(0o755)
    for path in ("users.yaml", "gateway.yaml"):
        write(directory / path, "")
    (directory / name).chmod(0o600)  # root's
    assert refusal(directory, "--port", "0", uid=NOBODY) == f"{directory}/{name}: Permission denied"


@as_root
def test_a_directory_that_cannot_be_written_stops_the_first_start_of_an_ordinary_user(directory: Path) -> None:
    directory.chmod(0o755)
    said = refusal(directory, "--port", "0", uid=NOBODY)
    assert re.fullmatch(rf"{directory}\S*: Permission denied", said), said


def test_root_is_no_account_for_a_gateway(directory: Path, unprivileged: int) -> None:
    asked = refusal(directory, "--port", "0", "--user", "root", uid=unprivileged)
    assert asked.startswith("--user root: only root can start the gateway as another account than ")
    if os.getuid() == 0:
        assert refusal(directory, "--port", "0", "--user", "root") == (
            "--user root is root, and the process that reads the network never is"
        )


# Started by root


@as_root
def test_a_gateway_that_root_started_is_nobody_and_has_no_right_left(start: Start) -> None:
    gateway = start(user="nobody")
    gateway.at_rest()
    account = pwd.getpwnam("nobody")
    for pid in gateway.children():
        shown = status(pid)
        assert shown["Uid"].split() == [str(account.pw_uid)] * 4
        assert shown["Gid"].split() == [str(account.pw_gid)] * 4
        for capabilities in ("CapInh", "CapPrm", "CapEff", "CapAmb"):
            assert hexadecimal(shown[capabilities]) == 0
        assert shown["NoNewPrivs"] == "1"
        assert shown["Threads"] == "1" or pid == gateway.gateway
    assert status(gateway.gateway)["Groups"] == ""
    of_account = set(map(str, os.getgrouplist("nobody", account.pw_gid)))
    for pid in gateway.workers:
        assert set(status(pid)["Groups"].split()) == of_account
    assert text_of(gateway.stream(gateway.token()).call("tools/call", trial(1, "answer")["params"])) == "done"


@as_root
def test_the_account_cannot_see_into_the_processes(gateway: Running) -> None:
    for pid in (gateway.process.pid, *gateway.children()):
        for name in ("environ", "maps", "auxv"):
            seen = subprocess.run(
                ["cat", f"/proc/{pid}/{name}"],
                user=NOBODY,
                group=NOBODY,
                extra_groups=[],
                capture_output=True,
                check=False,
                timeout=30,
            )
            assert (seen.returncode, seen.stdout) == (1, b""), name
            assert b"Permission denied" in seen.stderr


def secrets(gateway: Running) -> list[str]:
    own = str(gateway.directory)
    processes = [gateway.process.pid, *gateway.children()]
    return [
        "/proc/self/environ",
        *(f"/proc/{pid}/environ" for pid in processes),
        f"/proc/{gateway.gateway}/fd/0",
        *(f"{own}/{name}" for name in ("gateway.yaml", "users.yaml", "tls/mcpd.key", "tokens/signing.key")),
        f"/proc/{gateway.process.pid}/root{own}/users.yaml",
        f"/proc/self/root{own}/users.yaml",
        f"/proc/self/cwd{own}/users.yaml",
    ]


def assert_keeps_its_secrets(gateway: Running, token: str) -> None:
    paths = secrets(gateway)
    results = gateway.stream(token).tool("read_files_batch", paths=["/etc/passwd", *paths])["structuredContent"]
    assert results["results"].pop("/etc/passwd")["status"] == "ok"
    assert {path: entry["status"] for path, entry in results["results"].items()} == dict.fromkeys(paths, "error")


def test_no_tool_reads_the_environment_or_the_configuration_of_the_gateway(gateway: Running, alice: str) -> None:
    assert_keeps_its_secrets(gateway, alice)


# Started by an ordinary user


def test_an_ordinary_user_s_gateway_works_from_end_to_end_as_that_user(
    start: Start, unprivileged: int, open_directory: Path
) -> None:
    gateway = start(uid=unprivileged)
    uid = unprivileged or os.getuid()
    gateway.at_rest()
    for pid in (gateway.process.pid, *gateway.children()):
        assert status(pid)["Uid"].split() == [str(uid)] * 4
        assert hexadecimal(status(pid)["CapEff"]) == 0
    for pid in gateway.children():
        assert status(pid)["NoNewPrivs"] == "1"

    token = gateway.token()
    seen = open_directory / "seen"
    (seen / "b").mkdir(parents=True)
    (seen / "a").write_text("text")
    stream = gateway.stream(token)
    assert stream.tool("list_dir", path=str(seen))["structuredContent"] == {"entries": ["a", "b"]}
    assert_keeps_its_secrets(gateway, token)
    assert gateway.stop() == 0

    made = {
        str(path.relative_to(gateway.directory)): (path.stat().st_uid, stat.S_IMODE(path.stat().st_mode))
        for path in gateway.directory.rglob("*")
        if path.name not in ("gateway.yaml", ".users.lock")
    }
    assert made == {
        "tls": (uid, 0o755),
        "tls/mcpd.crt": (uid, 0o644),
        "tls/mcpd.key": (uid, 0o600),
        "tokens": (uid, 0o700),
        "tokens/signing.key": (uid, 0o600),
        "tokens/signing.pub": (uid, 0o644),
        "users.yaml": (uid, 0o600),
    }


# Where and how it serves


def test_both_loopback_addresses_serve_on_one_port(gateway: Running, alice: str) -> None:
    for address in ("127.0.0.1", "::1"):
        connection = gateway.connect(address)
        connection.send("GET", "/sse", [("Authorization", f"Bearer {alice}")])
        assert connection.read_head()[0] == 200
        assert b"event: endpoint\n" in connection.read_until(b"\n\n")


def test_a_chosen_host_is_the_only_one_that_serves(start: Start) -> None:
    gateway = start(host="::1")
    assert gateway.ready.startswith(f"ready https://[::1]:{gateway.port} cert=/")
    assert gateway.connect("::1").request("GET", "/healthz", []).status == 200
    with pytest.raises(ConnectionRefusedError):
        gateway.connect("127.0.0.1")


def test_flags_win_over_variables_which_win_over_the_file(start: Start) -> None:
    in_file, in_variable = free_ports(2)
    settings = {"listen": {"port": in_file}, "timeouts": {"tool": 0.2}}
    without_flag = start(settings, port=None, environment={"SSEGATE_TIMEOUTS_TOOL": "0.3"})
    with_flag = start(settings, port=0, environment={"SSEGATE_LISTEN_PORT": str(in_variable)})
    assert without_flag.port == in_file
    assert with_flag.port not in (in_file, in_variable)
    for gateway, seconds in ((without_flag, "0.3"), (with_flag, "0.2")):
        answer = gateway.stream(gateway.token()).call("tools/call", trial(1, "sleep", seconds=60)["params"])
        assert text_of(answer) == f"timed out after {seconds} seconds - the call was stopped"


def test_a_gateway_without_standard_streams_serves_and_ends_well(directory: Path, tmp_path: Path) -> None:
    """As some daemons are started: 0 and 1 are closed, so that sockets may get these numbers."""
    (port,) = free_ports(1)
    command = [sys.executable, SERVE, "serve", "--config-dir", str(directory), "--port", str(port)]
    with (tmp_path / "log").open("wb") as log:
        process = subprocess.Popen(
            ["sh", "-c", 'exec "$@" <&- >&-', "sh", *command], stderr=log, env=environment_of(0), start_new_session=True
        )

    def serves() -> bool:
        try:
            connection = Connection(port, str(directory / "tls" / "mcpd.crt"))
        except OSError:  # no certificate yet, or nobody there
            return False
        healthy = connection.request("GET", "/healthz", []).status == 200
        connection.close()
        return healthy

    try:
        assert eventually(serves)
    finally:
        process.terminate()
        assert process.wait(PATIENCE) == 0
    assert eventually(lambda: not of_session(process.pid))
    assert "Traceback" not in (tmp_path / "log").read_text()


def free_ports(number: int) -> list[int]:
    sockets = [socket.socket() for _ in range(number)]
    for one in sockets:
        one.bind(("127.0.0.1", 0))
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports
