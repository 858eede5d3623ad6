"""The `ssegate` command line."""

from __future__ import annotations

import os
import sys
import time
from typing import Any

import click

from gateway import config as configuration
from gateway.config import ConfigError

_config_dir = click.option(
    "--config-dir",
    metavar="DIR",
    help="Where gateway.yaml, users.yaml, tls/ and tokens/ live. "
    "Default: $SSEGATE_CONFIG_DIR, else /etc/ssegate for root and ~/.config/ssegate for others.",
)


class _Commands(click.Group):
    """Ends a person's mistake with one sentence and exit code 2, never a traceback."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except ConfigError as error:
            click.echo(f"ssegate: {error}", err=True)
            sys.exit(2)


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="ssegate", prog_name="ssegate")
def main() -> None:
    """A JSON-RPC 2.0 over SSE gateway with bearer auth: read-only sight of this host's files and git repositories."""


@main.command()
@_config_dir
@click.option("--host", metavar="H", help="Listen on this address only. Default: 127.0.0.1 and ::1.")
@click.option("--port", type=click.IntRange(0, 65535), metavar="N", help="Default: 9091; 0 takes a free one.")
@click.option(
    "--repository", metavar="PATH", help="The git store of read_tree. Default: the one around this directory."
)
@click.option(
    "--user", metavar="ACCOUNT", help="What a gateway started by root becomes. Default: ssegate, else nobody."
)
def serve(config_dir: str | None, host: str | None, port: int | None, repository: str | None, user: str | None) -> None:
    """Serve until SIGTERM or Ctrl-C. Prints one line on stdout when it can serve; logs go to stderr."""
    from gateway import log
    from gateway.serve import serve

    settings = configuration.load(
        _directory(config_dir),
        {"listen.host": host, "listen.port": port, "repository": repository, "user": user},
        os.environ,
        _working_directory(),
    )
    log.set_up(settings.log)
    sys.exit(serve(settings))


@main.group()
def token() -> None:
    """Tokens: what a client shows to be let in."""


@token.command("create")
@click.argument("name")
@click.option("--expires", default="30d", show_default=True, metavar="TIME", help="Such as 12h, 30d or 1y.")
@_config_dir
def token_create(name: str, expires: str, config_dir: str | None) -> None:
    """Make a token for NAME, who is added if new, and print it. A running gateway knows the user at once."""
    from gateway import tokens

    with _file_errors():
        click.echo(tokens.create(_directory(config_dir), name, tokens.seconds(expires)))


@token.command("list")
@_config_dir
def token_list(config_dir: str | None) -> None:
    """List the tokens that were made and have not expired; the tokens themselves are kept nowhere."""
    from gateway import tokens, users

    rows = [("USER", "ID", "ISSUED", "EXPIRES")]
    known = users.read(configuration.users_file(_directory(config_dir))).users
    rows += [
        (name, t.id, t.issued, t.expires) for name, user in known.items() for t in tokens.unexpired(user, time.time())
    ]
    widths = [max(len(row[column]) for row in rows) for column in range(4)]
    for row in rows:
        click.echo("   ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())


@main.group()
def user() -> None:
    """Users: whom tokens speak for."""


@user.command("remove")
@click.argument("name")
@_config_dir
def user_remove(name: str, config_dir: str | None) -> None:
    """Remove NAME: its tokens are refused, and its open streams end, within seconds."""
    from gateway import users

    directory = _directory(config_dir)
    with _file_errors(), users.changing(directory) as known:
        if name not in known:
            names = ", ".join(known) or "nobody"
            raise ConfigError(f"there is no user {name!r} in {configuration.users_file(directory)} (it has {names})")
        del known[name]


@main.group()
def cert() -> None:
    """The TLS certificate."""


@cert.command("show")
@_config_dir
def cert_show(config_dir: str | None) -> None:
    """Show the certificate's file, fingerprint, names and last day."""
    from certs.create import CertificateError, describe

    path = configuration.certificate_file(_directory(config_dir))
    try:
        for label, value in describe(path).items():
            click.echo(f"{label:<12} {value}")
    except CertificateError as error:
        raise ConfigError(str(error)) from None


def _directory(flag: str | None) -> str:
    return configuration.config_directory(flag, os.environ, os.getuid())


def _working_directory() -> str:
    try:
        return os.getcwd()
    except OSError as error:
        raise ConfigError(f"the working directory: {error.strerror} - change to another") from None


class _file_errors:  # noqa: N801 - used as a context manager, like open()
    """Turns an OSError of the configuration's files into a ConfigError."""

    def __enter__(self) -> None:
        pass

    def __exit__(self, _type: object, error: BaseException | None, _trace: object) -> None:
        if isinstance(error, OSError):
            raise configuration.file_error(error) from None
