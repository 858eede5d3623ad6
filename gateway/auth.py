"""Token -> Identity, or a refusal with its reason (RFC 6750, RFC 7519, RFC 8725).

A signature is checked once: verified tokens are remembered by their SHA-256 until they expire.
"""

from __future__ import annotations

import hashlib
import math
import re
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final

import jwt
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

ISSUER: Final = "ssegate"
AUDIENCE: Final = "ssegate"
REALM: Final = "ssegate"
# The key decides the algorithm, never the token (RFC 8725 section 3.1). "EdDSA" is RFC 8037's name for Ed25519.
ALGORITHMS: Final = ("EdDSA",)
MAX_TOKEN: Final = 8192
# One verification costs some 200 us; 4096 users at once pay it once each.
CACHE_SIZE: Final = 4096


class Reason(Enum):
    """Why a token was refused; the value is the challenge's `error_description` (RFC 6750 section 3)."""

    MALFORMED = "the token is malformed"
    SIGNATURE = "the token's signature is not valid"
    EXPIRED = "the token has expired"
    AUDIENCE = "the token is for another audience or from another issuer"
    UNKNOWN_USER = "the token's user is not known here"
    REVOKED = "the token is from before its user was removed"


class Refusal(Exception):
    """`reason` None: no token came at all."""

    def __init__(self, reason: Reason | None, detail: str = "") -> None:
        super().__init__(detail or (reason.value if reason else "no token"))
        self.reason = reason

    @property
    def challenge(self) -> str:
        """The `WWW-Authenticate` value."""
        if self.reason is None:
            return f'Bearer realm="{REALM}"'
        return f'Bearer realm="{REALM}", error="invalid_token", error_description="{self.reason.value}"'


@dataclass(frozen=True, slots=True)
class Identity:
    """Who a verified token speaks for. `expires` and `issued` are Unix times in seconds, `issued` infinite where the
    token has no `iat`; `token_id` is the `jti` claim or ""."""

    issuer: str
    subject: str
    expires: float
    token_id: str
    issued: float = math.inf

    def same_person(self, other: Identity) -> bool:
        """Whether both tokens are of one identity: issuer and subject (RFC 8725 section 3.8)."""
        return self.subject == other.subject and self.issuer == other.issuer


# RFC 6750 section 2.1 (b64token) with RFC 9110's case-insensitive scheme; one or more spaces.
_BEARER: Final = re.compile(rb"bearer +([A-Za-z0-9._~+/-]+=*)", re.IGNORECASE)


def bearer_token(headers: list[tuple[bytes, bytes]]) -> bytes:
    """The token of the one `Authorization` header of a request (names in lower case, as ASGI gives them)."""
    found = [value for name, value in headers if name == b"authorization"]
    if not found:
        raise Refusal(None)
    if len(found) > 1:
        raise Refusal(Reason.MALFORMED, "more than one Authorization header")
    value = found[0]
    if value[:6].lower() != b"bearer":
        raise Refusal(None, "another scheme than Bearer")
    match = _BEARER.fullmatch(value)
    if match is None:
        raise Refusal(Reason.MALFORMED)
    if len(match[1]) > MAX_TOKEN:
        raise Refusal(Reason.MALFORMED, f"longer than {MAX_TOKEN} bytes")
    return match[1]


def standing(identity: Identity, users: Mapping[str, float]) -> Reason | None:
    """Why a good token is not let in, or None. `users` has the Unix time from which on each one's tokens count: who
    was removed and added again does not get the old tokens back."""
    since = users.get(identity.subject)
    if since is None:
        return Reason.UNKNOWN_USER
    return Reason.REVOKED if identity.issued < since else None


class Authenticator:
    """Verifies tokens signed with the gateway's own Ed25519 key.

    `users()` are those who may use tokens just now, as `standing` takes them.
    """

    def __init__(
        self, key: Ed25519PublicKey, users: Callable[[], Mapping[str, float]], now: Callable[[], float] = time.time
    ) -> None:
        self._users = users
        self._key = key
        self._now = now
        self._verified: OrderedDict[bytes, Identity] = OrderedDict()

    def authenticate(self, headers: list[tuple[bytes, bytes]]) -> Identity:
        """The request's identity. Raises Refusal."""
        token = bearer_token(headers)
        digest = hashlib.sha256(token).digest()
        identity = self._verified.get(digest)
        if identity is None:
            identity = self._verify(token)
            self._verified[digest] = identity
            if len(self._verified) > CACHE_SIZE:
                self._verified.popitem(last=False)
        elif identity.expires <= self._now():
            del self._verified[digest]
            raise Refusal(Reason.EXPIRED)
        if reason := standing(identity, self._users()):
            raise Refusal(reason)
        return identity

    def _verify(self, token: bytes) -> Identity:
        try:
            claims: dict[str, Any] = jwt.decode(
                token,
                self._key,
                algorithms=list(ALGORITHMS),
                audience=AUDIENCE,
                issuer=ISSUER,
                options={"require": ["exp", "sub", "iss", "aud"]},
            )
        except jwt.ExpiredSignatureError:
            raise Refusal(Reason.EXPIRED) from None
        except (jwt.InvalidAudienceError, jwt.InvalidIssuerError) as error:
            raise Refusal(Reason.AUDIENCE, str(error)) from None
        except (jwt.InvalidSignatureError, jwt.InvalidAlgorithmError) as error:
            raise Refusal(Reason.SIGNATURE, str(error)) from None
        except (jwt.PyJWTError, ValueError, TypeError, RecursionError, OverflowError) as error:
            raise Refusal(Reason.MALFORMED, f"{type(error).__name__}: {error}") from None
        expires, subject, token_id = claims["exp"], claims["sub"], claims.get("jti", "")
        issued = claims.get("iat", math.inf)
        # PyJWT takes a numeric string for exp and hands it back as it came.
        if any(isinstance(moment, bool) or not isinstance(moment, (int, float)) for moment in (expires, issued)):
            raise Refusal(Reason.MALFORMED, "exp or iat is not a number")
        if not isinstance(subject, str) or not isinstance(token_id, str):
            raise Refusal(Reason.MALFORMED, "sub or jti is not a string")
        try:
            return Identity(ISSUER, subject, float(expires), token_id, float(issued))
        except OverflowError:
            raise Refusal(Reason.MALFORMED, "exp or iat is out of range") from None
