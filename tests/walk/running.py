"""A real gateway for a test: started, watched through /proc, and ended."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.walk.client import Connection, Stream

SERVE = str(Path(__file__).with_name("serve.py"))
PATIENCE = 30.0


def eventually(what: Callable[[], bool], seconds: float = PATIENCE) -> bool:
    """Whether `what` became true within the time."""
    deadline = time.monotonic() + seconds
    while not what():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True


class Running:
    """`ssegate serve` on a free port, with `settings` as its gateway.yaml."""

    def __init__(self, directory: Path, settings: dict[str, Any] | None = None, uid: int = 0, **options: str) -> None:
        self.directory = directory
        directory.mkdir(parents=True, exist_ok=True)
        if uid:
            os.chown(directory, uid, uid)
        (directory / "gateway.yaml").write_text(json.dumps(settings or {}))
        self.environment = {k: v for k, v in os.environ.items() if not k.startswith("SSEGATE_")}
        if uid:
            self.environment["SSEGATE_TEST_UID"] = str(uid)
        command = [sys.executable, SERVE, "serve", "--config-dir", str(directory), "--port", "0"]
        for name, value in options.items():
            command += [f"--{name}", value]
        self.log_path = directory.parent / f"{directory.name}.log"
        with self.log_path.open("wb") as log:
            self.process = subprocess.Popen(
                command, stdout=subprocess.PIPE, stderr=log, env=self.environment, text=True, start_new_session=True
            )
        assert self.process.stdout is not None
        self.ready = self.process.stdout.readline()
        assert self.ready.startswith("ready https://127.0.0.1:"), self.ready + self.log
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
        return self.command("token", "create", name, "--expires", expires)

    def connect(self) -> Connection:
        connection = Connection(self.port, self.certificate)
        self._open.append(connection)
        return connection

    def stream(self, token: str) -> Stream:
        stream = Stream(self.port, self.certificate, token)
        self._open.append(stream)
        return stream

    def children(self) -> list[int]:
        return children(self.process.pid)

    @property
    def gateway(self) -> int:
        """The pid of the process that holds the listening sockets."""
        (pid,) = [pid for pid in self.children() if len(sockets_listening(pid)) > 0]
        return pid

    @property
    def workers(self) -> list[int]:
        gateway = self.gateway
        return [pid for pid in self.children() if pid != gateway]

    def stop(self, number: signal.Signals = signal.SIGTERM) -> int:
        """Ends the gateway; its exit code. Afterwards no child of it may be left."""
        family = [self.process.pid, *self.children()]
        if self.process.poll() is None:
            self.process.send_signal(number)
        code = self.process.wait(PATIENCE)
        for one in self._open:
            one.close()
        assert self.process.stdout is not None
        self.process.stdout.close()
        assert eventually(lambda: not any(alive(pid) for pid in family)), "a process is left"
        return code


def children(pid: int) -> list[int]:
    text = Path(f"/proc/{pid}/task/{pid}/children").read_text() if alive(pid) else ""
    return [int(child) for child in text.split()]


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


def sockets_listening(pid: int) -> list[str]:
    """The descriptors of a process that are listening TCP sockets (as root; others see only their own)."""
    listening = set()
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        for line in Path(table).read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == "0A":
                listening.add(f"socket:[{fields[9]}]")
    try:
        links = [os.readlink(entry) for entry in Path(f"/proc/{pid}/fd").iterdir()]
    except (PermissionError, FileNotFoundError):
        return []
    return [link for link in links if link in listening]
