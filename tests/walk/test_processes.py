"""The process tree: whoever is killed, leaves or is removed, the rest goes on, or goes too (architecture.md)."""

from __future__ import annotations

import errno
import functools
import os
import re
import signal
import socket
from pathlib import Path

import pytest

from tests.walk.client import Stream, text_of, trial
from tests.walk.conftest import Start
from tests.walk.running import Running, alive, as_root, descriptors, eventually


def call(stream: Stream) -> str:
    return text_of(stream.call("tools/call", trial(1, "answer")["params"]))


def another(gateway: Running, old: int) -> int:
    """The pid of the gateway that took the place of the one that was `old`, once it serves."""

    def serves() -> bool:
        try:
            return gateway.gateway != old and gateway.connect().request("GET", "/readyz", []).status == 200
        except (ValueError, IndexError, OSError, EOFError):  # none there, or none that answers
            return False

    assert eventually(serves), gateway.log
    return gateway.gateway


# Who does what


@as_root
def test_the_gateway_alone_holds_the_connections_of_clients(gateway: Running, alice: str) -> None:
    stream = gateway.stream(alice)
    ours = stream.connection.socket.getsockname()[1]
    (inode,) = [
        fields[9]
        for fields in (line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:])
        if fields[1].endswith(f":{gateway.port:04X}") and fields[2].endswith(f":{ours:04X}")
    ]
    family = [gateway.process.pid, *gateway.children()]
    assert [pid for pid in family if f"socket:[{inode}]" in descriptors(pid).values()] == [gateway.gateway]


@as_root
def test_a_worker_has_one_socket_and_nothing_else_open(gateway: Running) -> None:
    for pid in gateway.at_rest():
        opened = descriptors(pid)
        assert set(opened) - {0, 1, 2} == {max(opened)}, opened
        assert opened[max(opened)].startswith("socket:")


@as_root
def test_the_gateway_has_no_file_of_the_configuration_open(gateway: Running, alice: str) -> None:
    gateway.stream(alice)
    # Beyond 0, 1 and 2 (the last is the log).
    files = [path for number, path in descriptors(gateway.gateway).items() if number > 2 and path.startswith("/")]
    assert all(path.startswith("/dev/") for path in files), files


def test_each_process_stands_in_the_root_directory(gateway: Running) -> None:
    if os.getuid() == 0:
        assert {str(Path(f"/proc/{pid}/cwd").readlink()) for pid in gateway.children()} == {"/"}


# Clients that leave


@pytest.mark.parametrize("how", ["FIN", "RST"])
def test_a_client_killed_in_the_middle_of_its_calls_leaves_nothing_behind(
    start: Start, open_directory: Path, how: str
) -> None:
    gateway = start({"timeouts": {"tool": 60}})
    token = gateway.token()
    fifo = open_directory / f"fifo-{how}"
    os.mkfifo(fifo)
    fifo.chmod(0o644)
    stream = gateway.stream(token)
    assert call(stream) == "done"
    stream.close()
    assert eventually(lambda: "ended, 0 open" in gateway.log)
    workers = set(gateway.at_rest())
    opened = len(descriptors(gateway.gateway)) if os.getuid() == 0 else 0

    stream = gateway.stream(token)
    for number in range(3):
        assert stream.post(trial(number, "fifo", path=str(fifo))).status == 202
    for number in range(30):
        assert stream.post(trial(f"queued {number}", "sleep", seconds=0.5)).status == 202
    if how == "FIN":
        stream.close()
    else:
        stream.reset()
    assert eventually(lambda: gateway.log.count("ended, 0 open") == 2), gateway.log
    # The three that were stuck are gone, as is the one that slept, if it was among those of before.
    assert eventually(lambda: len(workers - set(gateway.workers)) >= 3)
    gateway.at_rest()
    if os.getuid() == 0:
        assert eventually(lambda: len(descriptors(gateway.gateway)) == opened), descriptors(gateway.gateway)
    assert call(gateway.stream(token)) == "done"
    assert "Traceback" not in gateway.log
    assert "ERROR" not in gateway.log
    fifo.unlink()


def test_a_client_that_leaves_in_the_middle_of_a_body_leaves_nothing_behind(start: Start) -> None:
    gateway = start()
    token = gateway.token()
    stream = gateway.stream(token)
    for ends in ("close", "reset"):
        posting = gateway.connect()
        posting.send("POST", stream.endpoint, [("Authorization", f"Bearer {token}"), ("Content-Length", "1000")])
        posting.socket.sendall(b'{"jsonrpc"')
        getattr(posting, ends)()
    assert call(stream) == "done"
    stream.close()
    assert eventually(lambda: "ended, 0 open" in gateway.log)
    assert gateway.stop() == 0
    assert "Traceback" not in gateway.log
    assert "ERROR" not in gateway.log


# Killed processes


def test_a_gateway_that_is_killed_is_replaced_on_the_same_port(start: Start) -> None:
    gateway = start()
    token = gateway.token()
    stream = gateway.stream(token)
    old, workers = gateway.gateway, gateway.at_rest()
    os.kill(old, signal.SIGKILL)
    assert stream.rest() == []
    assert not stream.ended  # cut off: nobody was there to end it well
    new = another(gateway, old)
    assert eventually(lambda: not any(alive(pid) for pid in [old, *workers]))
    assert gateway.gateway == new
    assert call(gateway.stream(token)) == "done"
    assert len(gateway.at_rest()) == len(workers)
    assert "the gateway ended (exit code -9) and is started again" in gateway.log
    assert gateway.stop() == 0


def test_a_user_who_was_added_before_the_gateway_was_killed_is_known_after(start: Start) -> None:
    gateway = start()
    token = gateway.token("late")
    old = gateway.gateway
    os.kill(old, signal.SIGKILL)
    another(gateway, old)
    assert call(gateway.stream(token)) == "done"


def test_a_gateway_that_dies_five_times_within_a_minute_is_given_up(start: Start) -> None:
    gateway = start()
    family = {gateway.process.pid, *gateway.children()}
    for deaths in range(1, 6):
        current = gateway.gateway
        os.kill(current, signal.SIGKILL)
        if deaths < 5:
            another(gateway, current)
            family |= set(gateway.children())
    assert gateway.wait() == 1
    assert eventually(lambda: not any(alive(pid) for pid in family))
    assert "the gateway ended 5 times within a minute (exit code -9): giving up" in gateway.log
    assert gateway.log.count("is started again") == 4


def can_listen(family: socket.AddressFamily, address: str, port: int) -> bool:
    with socket.socket(family) as taken:
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            taken.bind((address, port))
            taken.listen()
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise
            return False
    return True


def test_a_supervisor_that_is_killed_takes_every_child_along_and_frees_the_port(start: Start) -> None:
    gateway = start()
    stream = gateway.stream(gateway.token())
    children = [gateway.gateway, *gateway.at_rest()]
    stream.post(trial(1, "sleep", seconds=60))
    gateway.process.kill()
    assert stream.rest() == []
    assert gateway.wait() == -signal.SIGKILL
    assert eventually(lambda: not any(alive(pid) for pid in children))
    for family, address in ((socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")):
        # The kernel closes the listeners of a killed process a moment after its connections.
        assert eventually(functools.partial(can_listen, family, address, gateway.port))


# Signals that do not end it


def test_a_hangup_of_the_terminal_ends_nothing(gateway: Running, alice: str) -> None:
    stream = gateway.stream(alice)
    before = [gateway.process.pid, gateway.gateway, *gateway.at_rest()]
    os.killpg(gateway.process.pid, signal.SIGHUP)
    assert call(stream) == "done"
    assert call(gateway.stream(alice)) == "done"
    assert [gateway.process.pid, gateway.gateway, *gateway.at_rest()] == before


# Users


def test_a_new_user_s_token_works_at_once(gateway: Running, alice: str) -> None:
    before = gateway.stream(alice)
    for number in range(3):
        assert call(gateway.stream(gateway.token(f"new{number}"))) == "done"
    assert call(before) == "done"


def test_a_removed_user_s_streams_end_within_5_seconds_and_the_token_is_refused(gateway: Running, alice: str) -> None:
    token = gateway.token("leaver")
    leaving, staying = [gateway.stream(token) for _ in range(3)], gateway.stream(alice)
    leaving[0].post(trial(1, "sleep", seconds=60))
    gateway.command("user", "remove", "leaver")
    for stream in leaving:
        assert stream.rest(timeout=5) == [b": the user was removed\n\n"]
        assert stream.ended
    response = gateway.connect().request("GET", "/sse", [("Authorization", f"Bearer {token}")])
    assert (response.status, response.body) == (401, b"Unauthorized\n")
    assert "the token's user is not known here" in (response.header("WWW-Authenticate") or "")
    assert call(staying) == "done"
    gateway.at_rest()  # the call that slept was stopped


def test_a_broken_users_file_leaves_the_users_known_before_in_force(start: Start) -> None:
    gateway = start()
    token = gateway.token()
    stream = gateway.stream(token)
    users = gateway.directory / "users.yaml"
    good = users.read_text()
    users.write_text("users: {alice: {tokens: 5}}\n")
    assert eventually(lambda: "the users known before stay in force" in gateway.log)
    assert re.search(r"ERROR .*users\.yaml: users\.alice\.tokens: expected array, got int - the users", gateway.log)
    assert call(stream) == "done"
    assert call(gateway.stream(token)) == "done"
    users.write_text(good)
    assert call(gateway.stream(gateway.token("bob"))) == "done"
    assert call(stream) == "done"
    assert gateway.log.count("the users known before stay in force") == 1
    assert "Traceback" not in gateway.log


def test_a_users_file_that_is_being_written_in_place_removes_nobody(start: Start) -> None:
    gateway = start()
    stream = gateway.stream(gateway.token())
    users = gateway.directory / "users.yaml"
    good = users.read_text()
    for _ in range(200):
        users.write_text("")  # as far as an editor comes at first
        gateway.tell(signal.SIGHUP)  # has the file looked at
        users.write_text(good)
    gateway.token("bob")
    assert eventually(lambda: "1 added, 0 removed" in gateway.log)
    assert call(stream) == "done"
    assert "1 removed" not in gateway.log


def test_a_users_file_out_of_reach_leaves_the_users_known_before_in_force(start: Start, unprivileged: int) -> None:
    gateway = start(uid=unprivileged)
    token = gateway.token()
    stream = gateway.stream(token)
    gateway.directory.chmod(0)
    try:
        assert eventually(lambda: "the users known before stay in force" in gateway.log)
        assert call(stream) == "done"
        assert call(gateway.stream(token)) == "done"
    finally:
        gateway.directory.chmod(0o755)
    assert call(gateway.stream(gateway.token("bob"))) == "done"
    assert gateway.stop() == 0
    assert "Traceback" not in gateway.log


def test_a_stream_ends_when_its_token_expires_unless_its_identity_came_with_a_fresh_one(gateway: Running) -> None:
    fresh = gateway.token("brief", "1h")
    brief = gateway.token("brief", "4s")
    expiring, renewed = gateway.stream(brief), gateway.stream(brief)
    ping = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
    assert expiring.post(ping).status == 202
    assert renewed.post(ping, token=fresh).status == 202
    assert expiring.message()["result"] == renewed.message()["result"] == {}
    assert expiring.rest(timeout=4 + 5) == [b": the token has expired\n\n"]
    assert expiring.ended
    assert renewed.post(ping, token=fresh).status == 202
    assert renewed.message()["result"] == {}
    response = renewed.post(ping)
    assert response.status == 401
    assert 'error_description="the token has expired"' in (response.header("WWW-Authenticate") or "")
