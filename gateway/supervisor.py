"""The process tree: one gateway and the workers it asks for, restarted, killed and reaped.

The supervisor parses nothing that came over the network, holds no secret and has no threads. It forks: an exec after
the drop could not even find the interpreter below a private home, and a fork of imports already made takes 1-2 ms.
"""

from __future__ import annotations

import contextlib
import gc
import logging
import os
import selectors
import signal
import socket
import time
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, Final

from gateway import confine, control, users
from gateway.config import Config, ConfigError
from tools import Context, Tool
from tools import worker as tool_worker

logger = logging.getLogger(__name__)

# How often `users.yaml` is looked at, in seconds.
WATCH: Final = 1.0
# A `users.yaml` that was changed in place is read when nobody has written to it for this many seconds.
SETTLED: Final = 0.5
# Workers compute with what the gateway leaves them: a large listing must not delay the streams of others.
NICENESS: Final = 5
# A gateway that dies this often within a minute will not get better by another start.
DEATHS: Final = 5
# After SIGTERM the gateway has its drain time and this many seconds before it is killed.
PATIENCE: Final = 5.0

GatewayMain = Callable[[socket.socket, dict[str, float]], int]


class Supervisor:
    """Runs until SIGTERM or SIGINT; `run` returns the exit code.

    `gateway_main(control end, user names)` is what the forked gateway does. `account` is what the workers run as.
    `on_ready` is called once, when the first gateway serves.
    """

    def __init__(
        self,
        config: Config,
        account: confine.Account,
        tools: Mapping[str, Tool],
        gateway_main: GatewayMain,
        on_ready: Callable[[], None],
    ) -> None:
        self._config = config
        self._account = account
        self._tools = tools
        self._gateway_main = gateway_main
        self._on_ready = on_ready
        self._pid = os.getpid()
        self._selector = selectors.DefaultSelector()
        self._gateway: int | None = None
        self._end: socket.socket | None = None
        self._workers: dict[int, int] = {}  # number -> pid
        self._count = 0
        self._deaths: deque[float] = deque()
        self._stopping: float | None = None
        self._users: dict[str, float] = {}
        self._users_seen: tuple[int, ...] = ()
        self._announced = False
        self._serving = False

    def run(self) -> int:
        self._users = users.admitted(self._config.users)
        with self._signals() as signals:
            self._selector.register(signals, selectors.EVENT_READ, self._on_signal)
            # What is in memory now is shared with every child until one of them writes to it.
            gc.collect()
            gc.freeze()
            self._start_gateway()
            while self._gateway is not None:
                for key, _ in self._selector.select(timeout=WATCH):
                    key.data(key.fileobj)
                if self._stopping is None:
                    self._watch_users()
                elif time.monotonic() > self._stopping and self._gateway is not None:
                    logger.warning("the gateway did not end in time and is killed")
                    os.kill(self._gateway, signal.SIGKILL)
                    self._stopping = float("inf")
            self._kill_workers()
        return 0 if self._stopping is not None else 1

    @contextlib.contextmanager
    def _signals(self) -> Any:
        """Signals arrive as bytes on a socket, so that they wake the loop and nothing runs inside a handler."""
        reader, writer = socket.socketpair()
        writer.setblocking(False)
        reader.setblocking(False)
        handled = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGCHLD)
        before = {number: signal.signal(number, lambda *_: None) for number in handled}
        wakeup = signal.set_wakeup_fd(writer.fileno())
        try:
            yield reader
        finally:
            signal.set_wakeup_fd(wakeup)
            for number, handler in before.items():
                signal.signal(number, handler)
            reader.close()
            writer.close()

    def _on_signal(self, signals: socket.socket) -> None:
        numbers = b""
        with contextlib.suppress(BlockingIOError):
            numbers = signals.recv(4096)
        for number in set(numbers):
            match number:
                case signal.SIGCHLD:
                    self._reap()
                case signal.SIGHUP:
                    self._watch_users()
                case signal.SIGTERM | signal.SIGINT:
                    self._stop()

    def _stop(self) -> None:
        if self._stopping is None and self._gateway is not None:
            self._stopping = time.monotonic() + self._config.timeouts.drain + PATIENCE
            # One that does not serve yet would miss a SIGTERM, and has nothing to end well.
            os.kill(self._gateway, signal.SIGTERM if self._serving else signal.SIGKILL)

    # Children

    def _start_gateway(self) -> None:
        ours, theirs = control.pair()
        with theirs:
            try:
                pid = os.fork()
            except OSError:
                ours.close()
                raise
            if pid == 0:
                self._child(lambda: self._gateway_main(theirs, self._users))
        self._gateway, self._end, self._serving = pid, ours, False
        self._selector.register(ours, selectors.EVENT_READ, self._on_operation)

    def _start_worker(self, account: str) -> None:
        if account != self._account.name or self._end is None:
            raise PermissionError(f"no worker may run as {account}")
        ours, theirs = socket.socketpair()
        with ours, theirs:
            pid = os.fork()
            if pid == 0:
                self._child(lambda: self._worker_main(theirs))
            self._count += 1
            self._workers[self._count] = pid
            control.send(self._end, {"op": "worker", "account": account, "number": self._count}, ours.fileno())

    def _child(self, main: Callable[[], int]) -> None:
        """Runs `main` in a forked child and never returns."""
        code = 70  # EX_SOFTWARE
        try:
            signal.set_wakeup_fd(-1)
            # Ctrl-C reaches the whole process group, but only the supervisor decides what ends when.
            for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
                signal.signal(number, signal.SIG_IGN)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            code = main()
        except BaseException:
            logger.exception("a child process failed")
        finally:
            logging.shutdown()
            os._exit(code)

    def _worker_main(self, connection: socket.socket) -> int:
        confine.close_all_but([connection.fileno()])
        confine.become(self._account, with_groups=True)
        confine.settle(self._pid)
        os.nice(NICENESS)
        context = Context(
            roots=self._config.roots, hidden=(self._config.directory,), repository=self._config.repository
        )
        tool_worker.serve(connection, self._tools, context)
        return 0

    def _reap(self) -> None:
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            if pid == self._gateway:
                self._gateway_ended(os.waitstatus_to_exitcode(status))
            else:
                self._workers = {number: p for number, p in self._workers.items() if p != pid}

    def _gateway_ended(self, code: int) -> None:
        self._gateway = None
        if self._end is not None:
            self._selector.unregister(self._end)
            self._end.close()
            self._end = None
        self._kill_workers()  # they belonged to it
        if self._stopping is not None:
            return
        now = time.monotonic()
        self._deaths.append(now)
        while self._deaths[0] < now - 60:
            self._deaths.popleft()
        if not self._announced:
            logger.error("the gateway could not start (exit code %d)", code)
        elif len(self._deaths) >= DEATHS:
            logger.error("the gateway ended %d times within a minute (exit code %d): giving up", DEATHS, code)
        else:
            logger.error("the gateway ended (exit code %d) and is started again", code)
            self._restart()

    def _restart(self) -> None:
        for _ in range(DEATHS):
            try:
                self._start_gateway()
            except OSError as error:  # no process or no memory is to be had just now
                logger.error("the gateway could not be started again: %s", error)  # noqa: TRY400 - it says it all
                time.sleep(WATCH)
            else:
                return

    def _kill_workers(self) -> None:
        for pid in self._workers.values():
            os.kill(pid, signal.SIGKILL)
        self._workers.clear()

    # The gateway's wishes

    def _on_operation(self, end: socket.socket) -> None:
        if end is not self._end:  # it ended in the same turn of the loop
            return
        received = control.receive(end)
        if received is None:  # its end is closed: it is dying, SIGCHLD follows
            self._selector.unregister(end)
            end.close()
            self._end = None
            return
        operation, descriptor = received
        match operation, descriptor:
            case {"op": "ready"}, None:
                self._serving = True
                if not self._announced:
                    self._announced = True
                    self._on_ready()
            case {"op": "spawn", "account": str(account)}, None:
                try:
                    self._start_worker(account)
                except OSError as error:
                    self._tell({"op": "no_worker", "account": account, "why": str(error)})
            case {"op": "kill", "number": int(number)}, None:
                # A number that is gone is a worker that ended by itself: its pid may be another process by now.
                if number in self._workers:
                    os.kill(self._workers[number], signal.SIGKILL)
            case {"op": "users"}, None:  # somebody came with the token of a user who is not known yet
                self._watch_users(at_once=True)
                self._tell_users()
            case _:
                logger.critical("the gateway sent an unknown operation: it is not to be trusted any more")
                os._exit(1)

    def _tell(self, operation: dict[str, Any], descriptor: int | None = None) -> None:
        if self._end is not None:
            with contextlib.suppress(OSError):  # it is dying, SIGCHLD follows
                control.send(self._end, operation, descriptor)

    # Users

    def _watch_users(self, *, at_once: bool = False) -> None:
        seen: tuple[int, ...] = ()
        with contextlib.suppress(OSError):  # no file: no users; one that cannot be reached is reported by `read`
            status = os.stat(self._config.users)
            seen = (status.st_ino, status.st_size, status.st_mtime_ns)
        if seen == self._users_seen:
            return
        # An editor that writes in place empties the file first: read just then, it would remove everybody.
        if seen[:1] == self._users_seen[:1] and not at_once and abs(time.time() - status.st_mtime) < SETTLED:
            return
        self._users_seen = seen
        try:
            now = users.admitted(self._config.users)
        except ConfigError as error:
            logger.error("%s - the users known before stay in force", error)  # noqa: TRY400 - a person's mistake
            return
        if now != self._users:
            logger.info(
                "users.yaml: %d added, %d removed", len(now.keys() - self._users), len(self._users.keys() - now)
            )
            self._users = now
            self._tell_users()

    def _tell_users(self) -> None:
        descriptor = control.users_to_file(self._users)
        self._tell({"op": "users"}, descriptor)
        os.close(descriptor)
