"""`ssegate serve`: makes what is missing, binds, and starts the process tree; then what the forked gateway does."""

from __future__ import annotations

import errno
import logging
import os
import resource
import socket
from collections.abc import Callable
from typing import Final

import tools
from gateway import confine
from gateway.config import Config, ConfigError, file_error, verifying_key
from gateway.supervisor import Supervisor

logger = logging.getLogger(__name__)

# The account of a gateway that root started, in the order of preference.
ACCOUNTS: Final = ("ssegate", "nobody")
BACKLOG: Final = 2048
SEND_BUFFER: Final = 128 * 1024
# Tries to find one free port on both loopback addresses.
PORT_TRIES: Final = 20


def serve(config: Config) -> int:
    """Runs until SIGTERM or SIGINT; returns the exit code. Raises ConfigError for what it cannot start with."""
    confine.conceal()
    account = account_for(config.user)
    fingerprint = _in_child(lambda: _prepare(config))
    listeners = listen(config)
    supervisor_pid = os.getpid()
    loaded = tools.load()

    def announce() -> None:
        host, port = listeners[0].getsockname()[:2]
        shown = f"[{host}]" if ":" in host else host
        print(  # noqa: T201 - the one line that whoever started it waits for
            f"ready https://{shown}:{port} cert={config.certificate} fingerprint={fingerprint}", flush=True
        )
        if config.repository is None:
            logger.warning("read_tree has no git repository: start inside one, or name one with --repository")

    return Supervisor(
        config,
        account,
        loaded,
        lambda end, users: gateway(config, account, loaded, listeners, supervisor_pid, end, users),
        announce,
    ).run()


def account_for(user: str | None) -> confine.Account:
    """The account of gateway and workers: `user`, which only root may choose. Raises ConfigError."""
    current = confine.Account.current()
    if current.uid != 0:
        if user is not None and user != current.name:
            raise ConfigError(f"--user {user}: only root can start the gateway as another account than {current.name}")
        return current
    for name in (user,) if user else ACCOUNTS:
        try:
            account = confine.Account.named(name)
        except KeyError:
            continue
        if account.uid == 0:
            raise ConfigError(f"--user {name} is root, and the process that reads the network never is")
        return account
    raise ConfigError(f"there is no account {user or ' or '.join(ACCOUNTS)} on this host - name one with --user")


def listen(config: Config) -> list[socket.socket]:
    """The bound sockets: one for each address of the host, both loopbacks by default. Raises ConfigError."""
    host, port = config.listen.host, config.listen.port
    for _ in range(PORT_TRIES):
        try:
            return _bind(host, port, config.timeouts.send)
        except _PortTaken as error:
            if port != 0:  # a chosen port that is free on one address only is still taken
                raise ConfigError(
                    f"port {port} on {error} is in use - stop what uses it, or choose another with --port or "
                    "SSEGATE_LISTEN_PORT"
                ) from None
    raise ConfigError("no port is free on all addresses")


class _PortTaken(Exception):
    """`str()` is the address."""


def _bind(host: str | None, port: int, send_timeout: float) -> list[socket.socket]:
    addresses: list[tuple[socket.AddressFamily, tuple[str, int]]]
    if host is None:
        addresses = [(socket.AF_INET, ("127.0.0.1", port)), (socket.AF_INET6, ("::1", port))]
    else:
        try:
            found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        except (socket.gaierror, UnicodeError):
            raise ConfigError(f"listen host {host!r} is no address and no name that is known here") from None
        addresses = list(dict.fromkeys((family, (str(address[0]), port)) for family, _, _, _, address in found))
    listeners: list[socket.socket] = []
    try:
        for family, (address, wanted) in addresses:
            listener = socket.socket(family, socket.SOCK_STREAM)
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            # Inherited by each connection, as the next: what a slow reader has taken shows each time a third of this is
            # free again, and with the kernel's own megabytes one that reads steadily would look stalled.
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER)
            # A peer that vanished without a word is noticed by the pings (RFC 5482).
            listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, int(send_timeout * 1000))
            try:
                listener.bind((address, wanted or (listeners[0].getsockname()[1] if listeners else 0)))
                listener.listen(BACKLOG)
            except OSError as error:
                listener.close()
                if error.errno == errno.EADDRINUSE:
                    raise _PortTaken(address) from None
                if host is None and listeners and error.errno in (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT):
                    continue  # a host without IPv6
                raise ConfigError(f"cannot listen on {address} port {wanted}: {error.strerror}") from None
            listeners.append(listener)
    except BaseException:
        for listener in listeners:
            listener.close()
        raise
    return listeners


def _prepare(config: Config) -> str:
    """Makes directory, TLS pair and token key where they are missing; returns the certificate's fingerprint."""
    from certs.create import CertificateError, ensure_pair, fingerprint
    from gateway.tokens import ensure_keys, public_key

    try:
        os.makedirs(config.directory, mode=0o755, exist_ok=True)
        ensure_pair(config.certificate, config.certificate_key, [config.listen.host] if config.listen.host else [])
        ensure_keys(config.directory)
        path = verifying_key(config.directory)
        with open(path, "rb") as file:
            try:
                public_key(file.read())
            except ConfigError as error:
                raise ConfigError(f"{path}: {error}") from None
        return fingerprint(config.certificate)
    except CertificateError as error:
        raise ConfigError(str(error)) from None
    except OSError as error:
        raise file_error(error) from None


def _in_child(work: Callable[[], str]) -> str:
    """`work`'s result, from a child: what makes keys has held them, and everything is forked from this process."""
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        code = 70  # EX_SOFTWARE
        try:
            os.umask(0o022)
            try:
                answer, code = work(), 0
            except ConfigError as error:
                answer, code = str(error), 2
            except BaseException:
                logger.exception("the files of the configuration could not be prepared")
                raise
            os.write(writer, answer.encode("utf-8", "surrogateescape"))
        finally:
            os._exit(code)
    os.close(writer)
    with open(reader, "rb") as pipe:
        answer = pipe.read().decode("utf-8", "surrogateescape")
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    if code == 0:
        return answer
    raise ConfigError(answer or "the files of the configuration could not be prepared")


def gateway(
    config: Config,
    account: confine.Account,
    loaded: dict[str, tools.Tool],
    listeners: list[socket.socket],
    supervisor: int,
    end: socket.socket,
    users: dict[str, float],
) -> int:
    """The gateway process, from its fork on. Everything is imported and the key is read before rights are given up:
    after that, neither the interpreter's files nor the key's may be within reach."""
    from certs.context import server_context
    from gateway.app import create_app
    from gateway.server import Server
    from gateway.tokens import public_key
    from gateway.workers import Workers

    with open(config.certificate, "rb") as certificate, open(config.certificate_key, "rb") as key:
        context = server_context(certificate.read(), key.read())
    with open(verifying_key(config.directory), "rb") as file:
        verifying = public_key(file.read())
    confine.close_all_but([end.fileno(), *(listener.fileno() for listener in listeners)])
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    workers = Workers(end, users, lambda _identity: account.name)
    application = create_app(config, loaded, verifying, workers, account.name)
    server = Server(application, context, workers.ready)
    confine.become(account, with_groups=False)
    confine.settle(supervisor)
    server.run_on(listeners)
    return 0
