"""The gateway's own Ed25519 key pair, and the tokens signed with it (RFC 7519, RFC 8037).

The gateway process only ever holds the public half; the private one is read by `ssegate token create` alone.
"""

from __future__ import annotations

import os
import re
import secrets
import time
from datetime import UTC, datetime
from typing import Final

import jwt
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from certs.create import create_file
from gateway.auth import ALGORITHMS, AUDIENCE, ISSUER
from gateway.config import ConfigError, signing_key, verifying_key
from gateway.users import IssuedToken, User, changing, check_name

# RFC 3339 years have four digits; no token should come near that.
MAX_LIFETIME: Final = 100 * 365 * 86400

_UNITS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 7 * 86400, "y": 365 * 86400}


def seconds(text: str) -> int:
    """`30d`, `12h`, `90m`, `45s`, `2w`, `1y` as seconds, 100 years at most. Raises ConfigError."""
    match = re.fullmatch(r"([0-9]{1,9})([smhdwy])", text)
    if match is None or int(match[1]) == 0:
        raise ConfigError(f"--expires {text!r}: give a number and a unit, such as 12h, 30d or 1y")
    lifetime = int(match[1]) * _UNITS[match[2]]
    if lifetime > MAX_LIFETIME:
        raise ConfigError(f"--expires {text!r}: 100y is the most")
    return lifetime


def ensure_keys(directory: str) -> None:
    """Makes the key pair where there is none. Raises ConfigError when one half is missing."""
    private, public = signing_key(directory), verifying_key(directory)
    if os.path.exists(private) != os.path.exists(public):
        there, missing = (private, public) if os.path.exists(private) else (public, private)
        raise ConfigError(f"{there} is there but {missing} is not - restore it, or remove both to have a new pair made")
    if os.path.exists(private):
        return
    os.makedirs(os.path.dirname(private), mode=0o700, exist_ok=True)
    key = Ed25519PrivateKey.generate()
    create_file(
        private,
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()),
        0o600,
    )
    create_file(
        public,
        key.public_key().public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo),
        0o644,
    )


def public_key(pem: bytes) -> Ed25519PublicKey:
    """Raises ConfigError."""
    try:
        key = serialization.load_pem_public_key(pem)
    except (ValueError, UnsupportedAlgorithm):
        key = None
    if not isinstance(key, Ed25519PublicKey):
        raise ConfigError("the token key is not an Ed25519 public key in PEM")
    return key


def create(directory: str, name: str, lifetime: int) -> str:
    """A new token for `name`, who becomes a user if there is none; `lifetime` in seconds. Raises ConfigError."""
    check_name(name)
    os.makedirs(directory, mode=0o755, exist_ok=True)
    ensure_keys(directory)
    path = signing_key(directory)
    try:
        with open(path, "rb") as file:
            key = serialization.load_pem_private_key(file.read(), password=None)
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}") from None
    except (ValueError, TypeError, UnsupportedAlgorithm):
        raise ConfigError(f"{path}: not a private key in PEM") from None
    if not isinstance(key, Ed25519PrivateKey):
        raise ConfigError(f"{path}: not an Ed25519 key")
    now = int(time.time())
    entry = IssuedToken(secrets.token_hex(8), _utc(now), _utc(now + lifetime))
    with changing(directory) as users:
        user = users.get(name, User(since=_utc(now)))
        users[name] = User((*unexpired(user, now), entry), user.since)
    claims = {"iss": ISSUER, "aud": AUDIENCE, "sub": name, "iat": now, "exp": now + lifetime, "jti": entry.id}
    return jwt.encode(claims, key, algorithm=ALGORITHMS[0])


def unexpired(user: User, now: float) -> tuple[IssuedToken, ...]:
    """The tokens of `user` that are still good at the Unix time `now`."""
    return tuple(token for token in user.tokens if token.expires > _utc(now))


def _utc(moment: float) -> str:
    return datetime.fromtimestamp(moment, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
