"""The gateway's key pair and the tokens signed with it."""

from __future__ import annotations

import base64
import json
import os
import stat
import subprocess
import time
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from gateway import tokens, users
from gateway.auth import Authenticator
from gateway.config import ConfigError
from gateway.users import IssuedToken, User

NO_ENCRYPTION = serialization.NoEncryption()


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def pem(key: Ed25519PrivateKey | rsa.RSAPrivateKey, passphrase: bytes | None = None) -> bytes:
    encryption = serialization.BestAvailableEncryption(passphrase) if passphrase else NO_ENCRYPTION
    return key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, encryption)


def claims(token: str) -> dict[str, object]:
    payload = token.split(".")[1]
    loaded = json.loads(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))
    assert isinstance(loaded, dict)
    return loaded


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("1s", 1),
        ("45s", 45),
        ("90m", 5_400),
        ("12h", 43_200),
        ("30d", 2_592_000),
        ("2w", 1_209_600),
        ("1y", 31_536_000),
        ("100y", 3_153_600_000),
        ("007d", 604_800),
    ],
)
def test_a_lifetime_is_a_number_and_a_unit(text: str, seconds: int) -> None:
    assert tokens.seconds(text) == seconds


@pytest.mark.parametrize(
    "text",
    ["", "30", "d", "0d", "000s", "-1d", "+1d", "1.5d", "1 d", " 1d", "1d ", "1d\n", "1D", "1M", "1d1h", "١d", "1e3s"],
)
def test_other_lifetimes_are_refused(text: str) -> None:
    with pytest.raises(ConfigError) as caught:
        tokens.seconds(text)
    assert str(caught.value) == f"--expires {text!r}: give a number and a unit, such as 12h, 30d or 1y"


@pytest.mark.parametrize("text", ["101y", "36501d", "5215w", "999999999y"])
def test_a_lifetime_over_a_century_is_refused(text: str) -> None:
    with pytest.raises(ConfigError) as caught:
        tokens.seconds(text)
    assert str(caught.value).endswith(": 100y is the most")


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o077])
def test_the_keys_have_their_modes_whatever_the_umask(tmp_path: Path, umask: int) -> None:
    before = os.umask(umask)
    try:
        tokens.ensure_keys(str(tmp_path))
    finally:
        os.umask(before)
    assert mode(tmp_path / "tokens") == 0o700
    assert mode(tmp_path / "tokens/signing.key") == 0o600
    assert mode(tmp_path / "tokens/signing.pub") == 0o644


def test_the_keys_are_an_ed25519_pair_that_openssl_knows(tmp_path: Path) -> None:
    tokens.ensure_keys(str(tmp_path))
    derived = subprocess.run(
        ["openssl", "pkey", "-in", tmp_path / "tokens/signing.key", "-pubout"], capture_output=True, check=True
    )
    assert derived.stdout == (tmp_path / "tokens/signing.pub").read_bytes()
    shown = subprocess.run(
        ["openssl", "pkey", "-pubin", "-in", tmp_path / "tokens/signing.pub", "-noout", "-text"],
        capture_output=True,
        check=True,
    )
    assert shown.stdout.startswith(b"ED25519 Public-Key:")


def test_keys_that_are_there_stay(tmp_path: Path) -> None:
    tokens.ensure_keys(str(tmp_path))
    before = (tmp_path / "tokens/signing.key").read_bytes()
    tokens.ensure_keys(str(tmp_path))
    assert (tmp_path / "tokens/signing.key").read_bytes() == before


@pytest.mark.parametrize(("missing", "there"), [("signing.key", "signing.pub"), ("signing.pub", "signing.key")])
def test_one_half_without_the_other_is_refused(tmp_path: Path, missing: str, there: str) -> None:
    tokens.ensure_keys(str(tmp_path))
    (tmp_path / "tokens" / missing).unlink()
    with pytest.raises(ConfigError) as caught:
        tokens.create(str(tmp_path), "alice", 60)
    place = tmp_path / "tokens"
    assert str(caught.value) == (
        f"{place}/{there} is there but {place}/{missing} is not - restore it, or remove both to have a new pair made"
    )
    assert not (tmp_path / "users.yaml").exists()


def test_a_token_carries_its_claims_and_is_let_in(tmp_path: Path) -> None:
    earliest = int(time.time())
    token = tokens.create(str(tmp_path), "alice", 3600)
    latest = int(time.time())
    known = users.read(f"{tmp_path}/users.yaml").users
    (entry,) = known["alice"].tokens
    carried = claims(token)
    issued, expires = carried.pop("iat"), carried.pop("exp")
    assert isinstance(issued, int)
    assert earliest <= issued <= latest
    assert expires == issued + 3600
    assert carried == {"iss": "ssegate", "aud": "ssegate", "sub": "alice", "jti": entry.id}

    key = tokens.public_key((tmp_path / "tokens/signing.pub").read_bytes())
    identity = Authenticator(key, lambda: dict.fromkeys(known, float(issued))).authenticate(
        [(b"authorization", f"Bearer {token}".encode())]
    )
    assert (identity.subject, identity.expires, identity.token_id) == ("alice", expires, entry.id)


def test_an_entry_says_when_the_token_was_made_and_ends(tmp_path: Path) -> None:
    issued = claims(tokens.create(str(tmp_path), "alice", 86400))["iat"]
    (entry,) = users.read(f"{tmp_path}/users.yaml").users["alice"].tokens
    for shown, moment in ((entry.issued, issued), (entry.expires, int(str(issued)) + 86400)):
        printed = subprocess.run(
            ["date", "-u", "-d", f"@{moment}", "+%Y-%m-%dT%H:%M:%SZ"], capture_output=True, check=True, text=True
        )
        assert shown == printed.stdout.strip()


def test_the_token_itself_is_kept_nowhere(tmp_path: Path) -> None:
    token = tokens.create(str(tmp_path), "alice", 60)
    for path in tmp_path.rglob("*"):
        if path.is_file():
            assert token.encode() not in path.read_bytes()
            assert token.rsplit(".", 1)[1].encode() not in path.read_bytes()


def test_a_new_token_keeps_the_good_ones_and_drops_the_expired(tmp_path: Path) -> None:
    expired = IssuedToken("old", "2020-01-01T00:00:00Z", "2020-02-01T00:00:00Z")
    good = IssuedToken("good", "2020-01-01T00:00:00Z", "2099-01-01T00:00:00Z")
    with users.changing(str(tmp_path)) as known:
        known["alice"] = User((expired, good))
        known["bob"] = User((expired,))
    tokens.create(str(tmp_path), "alice", 60)
    read = users.read(f"{tmp_path}/users.yaml").users
    assert read["alice"].tokens[0] == good
    assert len(read["alice"].tokens) == 2
    assert read["bob"].tokens == (expired,)


@pytest.mark.parametrize(
    ("now", "left"),
    [(1_577_836_799, ["a", "b"]), (1_577_836_800, ["b"]), (1_577_836_800.5, ["b"]), (4_070_908_800, [])],
)
def test_a_token_is_unexpired_until_its_last_second(now: float, left: list[str]) -> None:
    first = IssuedToken("a", "2019-01-01T00:00:00Z", "2020-01-01T00:00:00Z")
    second = IssuedToken("b", "2019-01-01T00:00:00Z", "2099-01-01T00:00:00Z")
    assert [token.id for token in tokens.unexpired(User((first, second)), now)] == left


def test_every_token_has_its_own_id(tmp_path: Path) -> None:
    made = {claims(tokens.create(str(tmp_path), "alice", 60))["jti"] for _ in range(5)}
    assert len(made) == 5


def test_a_longest_lifetime_can_be_written_down(tmp_path: Path) -> None:
    tokens.create(str(tmp_path), "alice", tokens.seconds("100y"))
    (entry,) = users.read(f"{tmp_path}/users.yaml").users["alice"].tokens
    assert entry.expires.startswith("21")


def test_a_directory_that_is_not_there_is_made(tmp_path: Path) -> None:
    tokens.create(f"{tmp_path}/a/b", "alice", 60)
    assert (tmp_path / "a/b/users.yaml").exists()


def test_a_name_that_cannot_be_a_users_makes_nothing(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"^user name 'a b'"):
        tokens.create(f"{tmp_path}/new", "a b", 60)
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"", "not a private key in PEM"),
        (b"garbage", "not a private key in PEM"),
        (b"-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n", "not a private key in PEM"),
        (pem(Ed25519PrivateKey.generate(), b"secret"), "not a private key in PEM"),
        (pem(rsa.generate_private_key(65537, 2048)), "not an Ed25519 key"),
    ],
)
def test_a_signing_key_that_cannot_sign_is_refused_and_no_user_is_added(
    tmp_path: Path, content: bytes, why: str
) -> None:
    tokens.ensure_keys(str(tmp_path))
    (tmp_path / "tokens/signing.key").write_bytes(content)
    with pytest.raises(ConfigError) as caught:
        tokens.create(str(tmp_path), "alice", 60)
    assert str(caught.value) == f"{tmp_path}/tokens/signing.key: {why}"
    assert not (tmp_path / "users.yaml").exists()


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read every file")
def test_a_signing_key_that_may_not_be_read_is_refused(tmp_path: Path) -> None:
    tokens.ensure_keys(str(tmp_path))
    (tmp_path / "tokens/signing.key").chmod(0)
    with pytest.raises(ConfigError) as caught:
        tokens.create(str(tmp_path), "alice", 60)
    assert str(caught.value) == f"{tmp_path}/tokens/signing.key: Permission denied"


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"garbage",
        pem(Ed25519PrivateKey.generate()),
        rsa.generate_private_key(65537, 2048)
        .public_key()
        .public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo),
    ],
)
def test_what_is_no_ed25519_public_key_is_refused(content: bytes) -> None:
    with pytest.raises(ConfigError, match=r"^the token key is not an Ed25519 public key in PEM$"):
        tokens.public_key(content)
