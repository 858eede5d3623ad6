"""Who is let in: the bearer section (2) of the wire contract, section 5.1 of the security design, RFC 8725."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import math
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from gateway import auth
from gateway.auth import Authenticator, Identity, Reason, Refusal, bearer_token

KEY = Ed25519PrivateKey.generate()
OTHER_KEY = Ed25519PrivateKey.generate()
PUBLIC_PEM = KEY.public_key().public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
FAR = 4_102_444_800  # 2100-01-01
GOOD: dict[str, Any] = {"iss": "ssegate", "aud": "ssegate", "sub": "alice", "exp": FAR, "jti": "6f1c"}

MALFORMED = 'Bearer realm="ssegate", error="invalid_token", error_description="the token is malformed"'
SIGNATURE = 'Bearer realm="ssegate", error="invalid_token", error_description="the token\'s signature is not valid"'
EXPIRED = 'Bearer realm="ssegate", error="invalid_token", error_description="the token has expired"'
AUDIENCE = (
    'Bearer realm="ssegate", error="invalid_token", '
    'error_description="the token is for another audience or from another issuer"'
)
REVOKED = (
    'Bearer realm="ssegate", error="invalid_token", error_description="the token is from before its user was removed"'
)
UNKNOWN = 'Bearer realm="ssegate", error="invalid_token", error_description="the token\'s user is not known here"'


def b64(content: bytes | str) -> bytes:
    raw = content.encode() if isinstance(content, str) else content
    return base64.urlsafe_b64encode(raw).rstrip(b"=")


def signed(payload: str, header: str = '{"alg":"EdDSA","typ":"JWT"}', key: Ed25519PrivateKey = KEY) -> bytes:
    """A token of exactly these texts, with a true signature."""
    content = b64(header) + b"." + b64(payload)
    return content + b"." + b64(key.sign(content))


def token(**changes: Any) -> bytes:
    """A good token with some claims changed; None leaves one out."""
    claims = {name: value for name, value in (GOOD | changes).items() if value is not None}
    return signed(json.dumps(claims))


def headers(credentials: bytes) -> list[tuple[bytes, bytes]]:
    return [(b"host", b"localhost"), (b"authorization", b"Bearer " + credentials)]


def authenticator(*users: str) -> Authenticator:
    return Authenticator(KEY.public_key(), lambda: dict.fromkeys(users or ("alice",), 0.0))


def refusal(credentials: bytes) -> Refusal:
    with pytest.raises(Refusal) as caught:
        authenticator().authenticate(headers(credentials))
    return caught.value


# The header


@pytest.mark.parametrize(
    "value",
    [b"Bearer abc", b"bearer abc", b"BEARER abc", b"bEaReR abc", b"Bearer  abc", b"Bearer" + b" " * 50 + b"abc"],
)
def test_the_scheme_may_be_in_any_case_and_followed_by_several_spaces(value: bytes) -> None:
    assert bearer_token([(b"authorization", value)]) == b"abc"


@pytest.mark.parametrize("text", [b"a", b"a.b.c", b"a-b_c~d+e/f", b"YWJj==", b"0" * 8192])
def test_every_character_and_length_of_rfc_6750_is_a_token(text: bytes) -> None:
    assert bearer_token([(b"authorization", b"Bearer " + text)]) == text


@pytest.mark.parametrize(
    "value",
    [
        pytest.param(b"Bearer", id="nothing"),
        pytest.param(b"Bearer ", id="a space"),
        pytest.param(b"Bearer\tabc", id="tab"),
        pytest.param(b"Bearer \tabc", id="space and tab"),
        pytest.param(b"Bearer abc ", id="trailing space"),
        pytest.param(b"Bearer abc\t", id="trailing tab"),
        pytest.param(b"Bearer abc\n", id="trailing line feed"),
        pytest.param(b"Bearer abc def", id="two words"),
        pytest.param(b"Bearer abc,def", id="comma"),
        pytest.param(b'Bearer "abc"', id="quotes"),
        pytest.param(b"Bearer =abc", id="padding first"),
        pytest.param(b"Bearer ab=c", id="padding inside"),
        pytest.param(b"Bearer abc\xc3\xa9", id="not ASCII"),
        pytest.param(b"Bearer abc\x00", id="NUL"),
        pytest.param(b"Bearer " + b"a" * 8193, id="8193 bytes"),
        pytest.param(b"Bearer " + b"a" * 100_000, id="100 kB"),
        pytest.param(b"Bearer " + b" " * 100_000, id="100 kB of spaces"),
        pytest.param(b"Bearer " + b"=" * 100_000, id="100 kB of padding"),
    ],
)
def test_a_bearer_header_that_is_no_token_is_malformed(value: bytes) -> None:
    with pytest.raises(Refusal) as caught:
        bearer_token([(b"authorization", value)])
    assert caught.value.reason is Reason.MALFORMED
    assert caught.value.challenge == MALFORMED


@pytest.mark.parametrize(
    "sent",
    [
        pytest.param([], id="no header"),
        pytest.param([b""], id="empty"),
        pytest.param([b"Basic YWxpY2U6eA=="], id="Basic"),
        pytest.param([b"Basic " + b"a" * 100_000], id="100 kB of Basic"),
        pytest.param([b"Digest username=alice"], id="Digest"),
        pytest.param([b"abc"], id="a bare token"),
        pytest.param([b" Bearer abc"], id="space first"),
    ],
)
def test_without_a_bearer_token_the_challenge_names_no_error(sent: list[bytes]) -> None:
    with pytest.raises(Refusal) as caught:
        bearer_token([(b"authorization", value) for value in sent])
    assert caught.value.reason is None
    assert caught.value.challenge == 'Bearer realm="ssegate"'


@pytest.mark.parametrize(
    "sent", [[b"Bearer abc", b"Bearer abc"], [b"Bearer abc", b"Basic eA=="], [b"Basic eA==", b"Bearer abc"], [b"", b""]]
)
def test_two_headers_are_refused_whatever_they_say(sent: list[bytes]) -> None:
    with pytest.raises(Refusal) as caught:
        bearer_token([(b"authorization", value) for value in sent])
    assert caught.value.challenge == MALFORMED


def test_a_token_elsewhere_is_no_token() -> None:
    with pytest.raises(Refusal) as caught:
        bearer_token([(b"cookie", b"authorization=Bearer abc"), (b"proxy-authorization", b"Bearer abc")])
    assert caught.value.reason is None


# Tokens that are good


@pytest.mark.parametrize(
    ("changes", "expires", "token_id"),
    [
        ({}, FAR, "6f1c"),
        ({"jti": None}, FAR, ""),
        ({"exp": FAR + 0.5}, FAR + 0.5, "6f1c"),
        ({"aud": ["elsewhere", "ssegate"]}, FAR, "6f1c"),
        ({"nbf": 1}, FAR, "6f1c"),
        ({"scope": "x", "unknown": {"a": [1]}}, FAR, "6f1c"),
    ],
)
def test_a_good_token_is_its_identity(changes: dict[str, Any], expires: float, token_id: str) -> None:
    identity = authenticator().authenticate(headers(token(**changes)))
    assert identity == Identity("ssegate", "alice", expires, token_id)


@pytest.mark.parametrize(
    "header",
    [
        '{"alg":"EdDSA"}',
        '{"alg":"EdDSA","kid":"../../etc/passwd"}',
        '{"alg":"EdDSA","jku":"http://127.0.0.1:1/keys"}',
        '{"alg":"EdDSA","x5u":"http://127.0.0.1:1/cert"}',
        '{"alg":"EdDSA","x5c":["AAAA"]}',
    ],
)
def test_header_claims_about_keys_are_ignored_when_our_key_signed(header: str) -> None:
    assert authenticator().authenticate(headers(signed(json.dumps(GOOD), header))).subject == "alice"


def test_the_same_person_is_issuer_and_subject() -> None:
    alice = Identity("ssegate", "alice", 1.0, "a")
    assert alice.same_person(Identity("ssegate", "alice", 2.0, "b"))
    assert not alice.same_person(Identity("ssegate", "bob", 1.0, "a"))
    assert not alice.same_person(Identity("elsewhere", "alice", 1.0, "a"))


# Tokens that are not


def _rsa_signed() -> bytes:
    return jwt.encode(GOOD, rsa.generate_private_key(65537, 2048), algorithm="RS256").encode()


def _ec_signed() -> bytes:
    return jwt.encode(GOOD, ec.generate_private_key(ec.SECP256R1()), algorithm="ES256").encode()


def _hmac_signed(secret: bytes, algorithm: str = "HS256") -> bytes:
    content = b64(json.dumps({"alg": algorithm})) + b"." + b64(json.dumps(GOOD))
    return content + b"." + b64(hmac.new(secret, content, hashlib.sha256).digest())


def _with_own_key() -> bytes:
    """Signed by a stranger whose key stands in the header."""
    x = b64(OTHER_KEY.public_key().public_bytes_raw()).decode()
    header = {"alg": "EdDSA", "jwk": {"kty": "OKP", "crv": "Ed25519", "x": x}}
    return signed(json.dumps(GOOD), json.dumps(header), OTHER_KEY)


def _changed_payload() -> bytes:
    header, _, signature = token().split(b".")
    return b".".join((header, b64(json.dumps(GOOD | {"sub": "root"})), signature))


SIGNATURE_REFUSED = {
    "alg none": b64('{"alg":"none"}') + b"." + b64(json.dumps(GOOD)) + b".",
    "alg None": b64('{"alg":"None"}') + b"." + b64(json.dumps(GOOD)) + b".",
    "alg none with our signature": signed(json.dumps(GOOD), '{"alg":"none"}'),
    "HS256 with the public key's PEM": _hmac_signed(PUBLIC_PEM),
    "HS256 with the public key's bytes": _hmac_signed(KEY.public_key().public_bytes_raw()),
    "EdDSA with an HMAC": _hmac_signed(PUBLIC_PEM, "EdDSA"),
    "RS256": _rsa_signed(),
    "ES256": _ec_signed(),
    "another Ed25519 key": signed(json.dumps(GOOD), key=OTHER_KEY),
    "another key in jwk": _with_own_key(),
    "changed payload": _changed_payload(),
    "no signature": token().rsplit(b".", 1)[0] + b".",
    "unknown algorithm": signed(json.dumps(GOOD), '{"alg":"X"}'),
    "algorithm is a number": signed(json.dumps(GOOD), '{"alg":5}'),
    "algorithm in another case": signed(json.dumps(GOOD), '{"alg":"eddsa"}'),
}


@pytest.mark.parametrize("name", SIGNATURE_REFUSED)
def test_a_token_that_our_key_did_not_sign_has_a_bad_signature(name: str) -> None:
    refused = refusal(SIGNATURE_REFUSED[name])
    assert refused.reason is Reason.SIGNATURE
    assert refused.challenge == SIGNATURE


@pytest.mark.parametrize(
    "credentials",
    [
        pytest.param(token(exp=1), id="long ago"),
        pytest.param(token(exp=0), id="1970"),
        pytest.param(token(exp=-5), id="before 1970"),
        pytest.param(token(exp=1.5), id="with a fraction"),
        pytest.param(token(exp=1, aud="elsewhere"), id="and for another audience"),
    ],
)
def test_a_token_past_its_exp_has_expired(credentials: bytes) -> None:
    refused = refusal(credentials)
    assert refused.reason is Reason.EXPIRED
    assert refused.challenge == EXPIRED


@pytest.mark.parametrize(
    "changes",
    [{"aud": "elsewhere"}, {"aud": ["a", "b"]}, {"aud": "SSEGATE"}, {"iss": "elsewhere"}, {"iss": ""}],
)
def test_a_token_for_another_audience_or_from_another_issuer_is_told_so(changes: dict[str, Any]) -> None:
    refused = refusal(token(**changes))
    assert refused.reason is Reason.AUDIENCE
    assert refused.challenge == AUDIENCE


_CLAIMS_UP_TO_EXP = '{"iss":"ssegate","aud":"ssegate","sub":"alice","exp":'


@pytest.mark.parametrize(
    "credentials",
    [
        pytest.param(b"abc", id="one part"),
        pytest.param(b"a.b", id="two parts"),
        pytest.param(b"a.b.c.d", id="four parts"),
        pytest.param(b"..", id="empty parts"),
        pytest.param(token().replace(b".", b"..", 1), id="an empty part"),
        pytest.param(b64("nonsense") + b"." + token().split(b".", 1)[1], id="header is no JSON"),
        pytest.param(b64("[]") + b"." + token().split(b".", 1)[1], id="header is no object"),
        pytest.param(signed("nonsense"), id="payload is no JSON"),
        pytest.param(signed("[1]"), id="payload is no object"),
        pytest.param(signed("[" * 4000), id="payload is nested deeply"),
        pytest.param(signed("{}"), id="payload without claims"),
        pytest.param(token(exp=None), id="no exp"),
        pytest.param(token(sub=None), id="no sub"),
        pytest.param(token(iss=None), id="no iss"),
        pytest.param(token(aud=None), id="no aud"),
        pytest.param(token(aud=[]), id="aud is empty"),
        pytest.param(token(exp=str(FAR)), id="exp is a numeric string"),
        pytest.param(token(exp="tomorrow"), id="exp is a word"),
        pytest.param(token(exp=[FAR]), id="exp is an array"),
        pytest.param(token(exp={}), id="exp is an object"),
        pytest.param(signed(_CLAIMS_UP_TO_EXP + "1e400}"), id="exp is 1e400"),
        pytest.param(signed(_CLAIMS_UP_TO_EXP + "NaN}"), id="exp is NaN"),
        pytest.param(signed(_CLAIMS_UP_TO_EXP + "Infinity}"), id="exp is Infinity"),
        pytest.param(signed(_CLAIMS_UP_TO_EXP + "1" * 400 + "}"), id="exp has 400 digits"),
        pytest.param(signed(_CLAIMS_UP_TO_EXP + "1" * 5000 + "}"), id="exp has 5000 digits"),
        pytest.param(token(sub=5), id="sub is a number"),
        pytest.param(token(sub=["alice"]), id="sub is an array"),
        pytest.param(token(jti=5), id="jti is a number"),
        pytest.param(token(nbf=FAR - 1), id="nbf in the future"),
        pytest.param(token(iat=FAR - 1), id="iat in the future"),
        pytest.param(token(nbf="soon"), id="nbf is a word"),
        pytest.param(signed(json.dumps(GOOD), '{"alg":"EdDSA","kid":5}'), id="kid is a number"),
        pytest.param(signed(json.dumps(GOOD), '{"alg":"EdDSA","crit":["exp"]}'), id="crit"),
        pytest.param(signed(json.dumps(GOOD), '{"alg":"EdDSA","crit":["x"],"x":1}'), id="crit of an unknown claim"),
        pytest.param(signed(json.dumps(GOOD), '{"alg":"EdDSA","b64":false,"crit":["b64"]}'), id="unencoded payload"),
    ],
)
def test_a_token_that_is_no_access_token_is_malformed(credentials: bytes) -> None:
    refused = refusal(credentials)
    assert refused.reason is Reason.MALFORMED
    assert refused.challenge == MALFORMED


@pytest.mark.parametrize("subject", ["bob", "Alice", "alice ", "", "\ud800", "root\n"])
def test_a_token_for_a_user_who_is_not_known_is_refused(subject: str) -> None:
    refused = refusal(token(sub=subject))
    assert refused.reason is Reason.UNKNOWN_USER
    assert refused.challenge == UNKNOWN


def test_of_a_claim_that_stands_twice_the_last_counts_for_every_check() -> None:
    """RFC 7519 section 4 allows it; what matters is that no two checks see different values."""
    assert refusal(signed(_CLAIMS_UP_TO_EXP + f'{FAR},"exp":1}}')).reason is Reason.EXPIRED
    assert refusal(signed(_CLAIMS_UP_TO_EXP + f'{FAR},"sub":"bob"}}')).reason is Reason.UNKNOWN_USER


def test_a_challenge_never_repeats_what_was_sent() -> None:
    sent = signed('{"iss":"<evil>"}')
    assert sent.decode() not in refusal(sent).challenge
    assert "evil" not in refusal(token(aud='"evil"')).challenge


# The cache


class Clock:
    def __init__(self) -> None:
        self.time = 1000.0

    def __call__(self) -> float:
        return self.time


class CountingKey(Ed25519PublicKey):
    """A real public key that counts how often it verifies; PyJWT asks the key itself."""

    def __init__(self) -> None:
        self.verified = 0

    def verify(self, signature: Any, data: Any) -> None:
        self.verified += 1
        KEY.public_key().verify(signature, data)

    def public_bytes(
        self,
        encoding: serialization.Encoding,
        format: serialization.PublicFormat,  # noqa: A002 - the library's name
    ) -> bytes:
        return KEY.public_key().public_bytes(encoding, format)

    def public_bytes_raw(self) -> bytes:
        return KEY.public_key().public_bytes_raw()

    def __eq__(self, other: object) -> bool:
        return self is other

    def __hash__(self) -> int:
        return id(self)

    def __copy__(self) -> CountingKey:
        return self

    def __deepcopy__(self, _memo: object) -> CountingKey:
        return self


@pytest.fixture
def key() -> CountingKey:
    return CountingKey()


def test_a_token_is_verified_once(key: CountingKey) -> None:
    gate = Authenticator(key, lambda: {"alice": 0.0})
    first = gate.authenticate(headers(token()))
    assert gate.authenticate(headers(token())) is first
    assert gate.authenticate([(b"authorization", b"bearer   " + token())]) is first
    assert key.verified == 1
    assert gate.authenticate(headers(token(jti="other"))) != first
    assert key.verified == 2


def test_a_bad_token_is_never_remembered(key: CountingKey) -> None:
    gate = Authenticator(key, lambda: {"alice": 0.0})
    for _ in range(2):
        with pytest.raises(Refusal):
            gate.authenticate(headers(SIGNATURE_REFUSED["another Ed25519 key"]))
    assert key.verified == 2


def test_a_remembered_token_still_expires(key: CountingKey) -> None:
    clock = Clock()
    gate = Authenticator(key, lambda: {"alice": 0.0}, clock)
    gate.authenticate(headers(token()))
    clock.time = FAR - 0.001
    assert gate.authenticate(headers(token())).subject == "alice"
    clock.time = FAR
    with pytest.raises(Refusal) as caught:
        gate.authenticate(headers(token()))
    assert caught.value.challenge == EXPIRED
    assert key.verified == 1


def test_a_token_says_when_it_was_issued_if_it_does() -> None:
    assert authenticator().authenticate(headers(token(iat=7))).issued == 7.0
    assert authenticator().authenticate(headers(token(iat=None))).issued == math.inf


def test_a_user_who_was_removed_and_added_again_does_not_get_the_old_tokens_back(key: CountingKey) -> None:
    users = {"alice": 0.0}
    gate = Authenticator(key, lambda: users)
    old, new, silent = headers(token(iat=1000)), headers(token(iat=2000)), headers(token(iat=None))
    assert gate.authenticate(old).subject == "alice"
    users["alice"] = 2000.0
    with pytest.raises(Refusal) as caught:
        gate.authenticate(old)
    assert caught.value.challenge == REVOKED
    assert gate.authenticate(new).subject == "alice"
    assert gate.authenticate(silent).subject == "alice"


def test_a_removed_user_is_refused_at_once_and_known_again_at_once(key: CountingKey) -> None:
    users = {"alice": 0.0}
    gate = Authenticator(key, lambda: users)
    gate.authenticate(headers(token()))
    del users["alice"]
    with pytest.raises(Refusal) as caught:
        gate.authenticate(headers(token()))
    assert caught.value.challenge == UNKNOWN
    users["alice"] = 0.0
    assert gate.authenticate(headers(token())).subject == "alice"
    assert key.verified == 1


@pytest.fixture
def _cache_of_three(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(auth, "CACHE_SIZE", 3)


@pytest.mark.usefixtures("_cache_of_three")
def test_the_cache_is_bounded_and_forgets_the_oldest(key: CountingKey) -> None:
    gate = Authenticator(key, lambda: {"alice": 0.0})
    for number in range(4):
        gate.authenticate(headers(token(jti=str(number))))
    assert key.verified == 4
    for number in (1, 2, 3):
        gate.authenticate(headers(token(jti=str(number))))
    assert key.verified == 4
    gate.authenticate(headers(token(jti="0")))
    assert key.verified == 5
