"""A real gateway for a test: started, watched through /proc, and ended."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from gateway import tokens
from tests.walk.client import Connection, Stream

SERVE = str(Path(__file__).with_name("serve.py"))
PATIENCE = 30.0

# A process of ours shows its descriptors to root alone (PR_SET_DUMPABLE).
as_root = pytest.mark.skipif(os.getuid() != 0, reason="only root can start it as another account, and see inside")


def eventually(what: Callable[[], bool], seconds: float = PATIENCE) -> bool:
    """Whether `what` became true within the time."""
    deadline = time.monotonic() + seconds
    while not what():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True


def environment_of(uid: int, extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """The environment of an `ssegate` that runs as `uid` (0: as whoever runs the tests)."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith("SSEGATE_")}
    if uid:
        environment["SSEGATE_TEST_UID"] = str(uid)
    return environment | dict(extra or {})


class Running:
    """`ssegate serve` on a free port, with `settings` as its gateway.yaml. `port` None: as the settings say."""

    def __init__(
        self,
        directory: Path,
        settings: dict[str, Any] | None = None,
        uid: int = 0,
        environment: Mapping[str, str] | None = None,
        port: int | None = 0,
        **options: str,
    ) -> None:
        self.directory = directory
        directory.mkdir(parents=True, exist_ok=True)
        if uid:
            os.chown(directory, uid, uid)
        (directory / "gateway.yaml").write_text(json.dumps(settings or {}))
        self.environment = environment_of(uid, environment)
        command = [sys.executable, SERVE, "serve", "--config-dir", str(directory)]
        if port is not None:
            command += ["--port", str(port)]
        for name, value in options.items():
            command += [f"--{name}", value]
        self.log_path = directory.parent / f"{directory.name}.log"
        with self.log_path.open("wb") as log:
            self.process = subprocess.Popen(
                command, stdout=subprocess.PIPE, stderr=log, env=self.environment, text=True, start_new_session=True
            )
        assert self.process.stdout is not None
        self.ready = self.process.stdout.readline()
        if not self.ready:
            self.process.stdout.close()
            self.process.wait(PATIENCE)
        assert self.ready.startswith("ready https://"), self.ready + self.log
        self.port = int(self.ready.split(" ")[1].rpartition(":")[2])
        self.certificate = str(directory / "tls" / "mcpd.crt")
        self._open: list[Stream | Connection] = []

    @property
    def log(self) -> str:
        return self.log_path.read_text()

    def command(self, *arguments: str) -> str:
        """The output of an `ssegate` command line on this gateway's configuration."""
        return subprocess.run(
            [sys.executable, SERVE, *arguments, "--config-dir", str(self.directory)],
            capture_output=True,
            text=True,
            env=self.environment,
            check=True,
            timeout=PATIENCE,
        ).stdout.strip()

    def token(self, name: str = "alice", expires: str = "1h") -> str:
        if "SSEGATE_TEST_UID" in self.environment:
            return self.command("token", "create", name, "--expires", expires)
        # The same without the second that a new interpreter takes: most tests begin with it.
        return tokens.create(str(self.directory), name, tokens.seconds(expires))

    def connect(self, address: str = "127.0.0.1") -> Connection:
        connection = Connection(self.port, self.certificate, address)
        self._open.append(connection)
        return connection

    def stream(self, token: str, receive_buffer: int | None = None) -> Stream:
        stream = Stream(self.port, self.certificate, token, receive_buffer)
        self._open.append(stream)
        return stream

    def children(self) -> list[int]:
        return children(self.process.pid)

    @property
    def gateway(self) -> int:
        """The pid of the process that holds the listening sockets. Whoever cannot see that takes the eldest child:
        the gateway asks for the workers."""
        if os.getuid() != 0:
            return self.children()[0]
        (pid,) = [pid for pid in self.children() if len(sockets_listening(pid)) > 0]
        return pid

    @property
    def workers(self) -> list[int]:
        gateway = self.gateway
        return [pid for pid in self.children() if pid != gateway]

    def at_rest(self) -> list[int]:
        """The workers, once there are as many as an idle gateway keeps: one for each processor and two more."""
        usual = (os.cpu_count() or 1) + 2
        assert eventually(lambda: len(self.workers) == usual), self.workers
        return self.workers

    def wait(self) -> int:
        """The exit code of one that ends by itself, or was told to. Afterwards no child of it may be left."""
        family = [self.process.pid, *self.children()]
        try:
            code = self.process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            raise
        assert eventually(lambda: not any(alive(pid) for pid in family), 5), "a process is left"
        return code

    def tell(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def disconnect(self) -> None:
        """Closes what tests left open: a gateway that ends waits a second for peers that do not leave."""
        for one in self._open:
            one.close()
        self._open.clear()

    def stop(self, number: signal.Signals = signal.SIGTERM) -> int:
        """Ends the gateway; its exit code. Afterwards no child of it may be left."""
        if self.process.poll() is None:
            self.process.send_signal(number)
        code = self.wait()
        self.disconnect()
        assert self.process.stdout is not None
        self.process.stdout.close()
        return code


def refused(
    *arguments: str, uid: int = 0, environment: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """`ssegate serve` with arguments that it cannot start with, run to its end. No process of it may be left."""
    process = subprocess.Popen(
        [sys.executable, SERVE, "serve", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment_of(uid, environment),
        text=True,
        start_new_session=True,
    )
    try:
        out, err = process.communicate(timeout=PATIENCE)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
        raise
    assert eventually(lambda: not of_session(process.pid), 5), "a process is left"
    return subprocess.CompletedProcess(arguments, process.returncode, out, err)


def children(pid: int) -> list[int]:
    """The children that live, the eldest first."""
    try:
        text = Path(f"/proc/{pid}/task/{pid}/children").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return []
    return [child for child in map(int, text.split()) if alive(child)]


def of_session(session: int) -> list[int]:
    """The processes of a session (setsid(2)) that live, whoever their parents are by now."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal() and alive(int(entry.name)):
            try:
                if os.getsid(int(entry.name)) == session:
                    found.append(int(entry.name))
            except ProcessLookupError:
                continue
    return found


def alive(pid: int) -> bool:
    """Whether the process runs; a zombie does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def status(pid: int) -> dict[str, str]:
    """/proc/PID/status"""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return {key: value.strip() for key, _, value in (line.partition(":") for line in lines)}


def descriptors(pid: int) -> dict[int, str]:
    """What a process has open (as root; others see only their own); nothing when it is gone."""
    found = {}
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        for number in os.listdir(f"/proc/{pid}/fd"):
            with contextlib.suppress(FileNotFoundError):  # closed meanwhile
                found[int(number)] = os.readlink(f"/proc/{pid}/fd/{number}")
    return found


def sockets_listening(pid: int) -> list[str]:
    """The descriptors of a process that are listening TCP sockets (as root; others see only their own)."""
    listening = set()
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        for line in Path(table).read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == "0A":
                listening.add(f"socket:[{fields[9]}]")
    try:
        links = descriptors(pid).values()
    except (PermissionError, FileNotFoundError):
        return []
    return [link for link in links if link in listening]
