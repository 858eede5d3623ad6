"""What the listener's TLS accepts: 1.2 and up, AEAD with forward secrecy, HTTP/1.1."""

from __future__ import annotations

import os
import ssl
import warnings

import pytest

from certs.context import server_context
from certs.create import make_pair
from tests.certs.handshake import handshake

CERTIFICATE, KEY = make_pair(["localhost"])


def client() -> ssl.SSLContext:
    """One that takes any TLS version and suite, so that only the server refuses."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(cadata=CERTIFICATE.decode())
    context.set_ciphers("ALL:@SECLEVEL=0")
    return context


@pytest.mark.parametrize(
    ("version", "name"), [(ssl.TLSVersion.TLSv1_2, "TLSv1.2"), (ssl.TLSVersion.TLSv1_3, "TLSv1.3")]
)
def test_tls_1_2_and_1_3_are_spoken(version: ssl.TLSVersion, name: str) -> None:
    asking = client()
    asking.minimum_version = asking.maximum_version = version
    assert handshake(asking, server_context(CERTIFICATE, KEY)).version() == name


def test_tls_1_1_is_refused() -> None:
    asking = client()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # that old versions should not be asked for is the point
        asking.minimum_version = asking.maximum_version = ssl.TLSVersion.TLSv1_1
    with pytest.raises(ssl.SSLError) as caught:
        handshake(asking, server_context(CERTIFICATE, KEY))
    assert caught.value.reason == "UNSUPPORTED_PROTOCOL"


def test_every_suite_is_aead_with_forward_secrecy() -> None:
    suites = server_context(CERTIFICATE, KEY).get_ciphers()
    assert suites
    for suite in suites:
        assert suite["aead"], suite["name"]
        assert suite["protocol"] == "TLSv1.3" or suite["name"].startswith("ECDHE-"), suite["name"]


@pytest.mark.parametrize(
    "suite", ["ECDHE-ECDSA-AES128-GCM-SHA256", "ECDHE-ECDSA-AES256-GCM-SHA384", "ECDHE-ECDSA-CHACHA20-POLY1305"]
)
def test_a_client_with_one_good_suite_of_tls_1_2_is_served(suite: str) -> None:
    asking = client()
    asking.maximum_version = ssl.TLSVersion.TLSv1_2
    asking.set_ciphers(suite)
    chosen = handshake(asking, server_context(CERTIFICATE, KEY)).cipher()
    assert chosen is not None
    assert chosen[0] == suite


@pytest.mark.parametrize("suite", ["ECDHE-ECDSA-AES128-SHA256", "ECDHE-ECDSA-AES256-SHA", "ECDHE-ECDSA-AES128-CCM"])
def test_a_client_with_other_suites_alone_is_refused(suite: str) -> None:
    asking = client()
    asking.maximum_version = ssl.TLSVersion.TLSv1_2
    asking.set_ciphers(suite)
    with pytest.raises(ssl.SSLError) as caught:
        handshake(asking, server_context(CERTIFICATE, KEY))
    assert caught.value.reason == "NO_SHARED_CIPHER"


@pytest.mark.parametrize(
    ("offered", "chosen"),
    [(["http/1.1"], "http/1.1"), (["h2", "http/1.1"], "http/1.1"), (["h2"], None), ([], None)],
)
def test_the_only_protocol_is_http_1_1(offered: list[str], chosen: str | None) -> None:
    asking = client()
    if offered:
        asking.set_alpn_protocols(offered)
    assert handshake(asking, server_context(CERTIFICATE, KEY)).selected_alpn_protocol() == chosen


@pytest.mark.parametrize(
    ("certificate", "key"),
    [(b"", b""), (b"garbage", KEY), (CERTIFICATE, b"garbage"), (KEY, CERTIFICATE), (CERTIFICATE, make_pair(["a"])[1])],
)
def test_what_is_no_pair_is_an_ssl_error(certificate: bytes, key: bytes) -> None:
    with pytest.raises(ssl.SSLError):
        server_context(certificate, key)


def test_no_descriptor_is_left_open() -> None:
    before = os.listdir("/proc/self/fd")
    server_context(CERTIFICATE, KEY)
    with pytest.raises(ssl.SSLError):
        server_context(CERTIFICATE, b"garbage")
    assert os.listdir("/proc/self/fd") == before
