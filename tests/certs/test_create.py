"""The self-signed pair of wire contract section 7, judged by openssl, curl and Python's own strict verification."""

from __future__ import annotations

import os
import pty
import re
import select
import signal
import socket
import ssl
import stat
import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from certs.context import server_context
from certs.create import CertificateError, check_pair, describe, ensure_pair, fingerprint, make_pair
from tests.certs.handshake import handshake


def openssl(*arguments: str | Path) -> str:
    return subprocess.run(["openssl", *arguments], capture_output=True, check=True, text=True).stdout


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.fixture
def certificate(tmp_path: Path) -> Path:
    return tmp_path / "tls" / "mcpd.crt"


@pytest.fixture
def key(tmp_path: Path) -> Path:
    return tmp_path / "tls" / "mcpd.key"


@pytest.fixture
def pair(certificate: Path, key: Path) -> None:
    ensure_pair(str(certificate), str(key))


# What is made


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o077])
def test_the_files_have_their_modes_whatever_the_umask(certificate: Path, key: Path, umask: int) -> None:
    before = os.umask(umask)
    try:
        ensure_pair(str(certificate), str(key))
    finally:
        os.umask(before)
    assert (mode(certificate), mode(key)) == (0o644, 0o600)
    assert sorted(os.listdir(certificate.parent)) == ["mcpd.crt", "mcpd.key"]


@pytest.mark.usefixtures("pair")
def test_openssl_shows_a_p256_leaf_for_these_names(certificate: Path) -> None:
    shown = openssl("x509", "-in", certificate, "-noout", "-text")
    assert "Signature Algorithm: ecdsa-with-SHA256" in shown
    assert "ASN1 OID: prime256v1" in shown
    assert re.search(r"Basic Constraints: critical\s+CA:FALSE\n", shown)
    assert re.search(r"Extended Key Usage: \s*TLS Web Server Authentication\n", shown)
    names = re.search(r"Subject Alternative Name: \s*(.*)\n", shown)
    assert names
    own = f", DNS:{socket.gethostname()}" if socket.gethostname() != "localhost" else ""
    assert names[1] == f"DNS:localhost, IP Address:127.0.0.1, IP Address:0:0:0:0:0:0:0:1{own}"


@pytest.mark.usefixtures("pair")
def test_the_certificate_is_good_now_and_for_years(certificate: Path) -> None:
    assert "will not expire" in openssl("x509", "-in", certificate, "-noout", "-checkend", str(9 * 365 * 86400))
    openssl("verify", "-x509_strict", "-CAfile", certificate, certificate)


@pytest.mark.usefixtures("pair")
def test_the_key_belongs_to_the_certificate(certificate: Path, key: Path) -> None:
    assert openssl("x509", "-in", certificate, "-noout", "-pubkey") == openssl("pkey", "-in", key, "-pubout")


def test_configured_names_are_added_once(certificate: Path, key: Path) -> None:
    ensure_pair(str(certificate), str(key), ["gate.example", "10.0.0.7", "localhost", "gate.example", "fd00::7"])
    shown = openssl("x509", "-in", certificate, "-noout", "-ext", "subjectAltName")
    assert shown.count("localhost") == 1
    assert shown.rstrip().endswith("DNS:gate.example, IP Address:10.0.0.7, IP Address:FD00:0:0:0:0:0:0:7")


@pytest.mark.parametrize("name", ["", "bücher.example"])
def test_a_name_that_no_certificate_can_hold_is_refused(name: str) -> None:
    with pytest.raises(CertificateError) as caught:
        make_pair([name])
    assert str(caught.value) == f"{name!r} is no host name - give its ASCII form (RFC 5890)"


def test_each_pair_is_another() -> None:
    first, second = make_pair(["localhost"]), make_pair(["localhost"])
    assert first[0] != second[0]
    assert first[1] != second[1]


@pytest.mark.usefixtures("pair")
def test_a_pair_that_is_there_stays(certificate: Path, key: Path) -> None:
    before = certificate.read_bytes(), key.read_bytes()
    ensure_pair(str(certificate), str(key), ["new.example"])
    assert (certificate.read_bytes(), key.read_bytes()) == before


# Who accepts it


@pytest.mark.usefixtures("pair")
@pytest.mark.parametrize("name", ["localhost", "127.0.0.1", "::1", socket.gethostname()])
@pytest.mark.parametrize("flags", [0, ssl.VERIFY_X509_STRICT, ssl.VERIFY_X509_STRICT | ssl.VERIFY_X509_PARTIAL_CHAIN])
def test_python_trusts_it_as_its_own_anchor(certificate: Path, key: Path, name: str, flags: int) -> None:
    client = ssl.create_default_context(cafile=certificate)
    client.verify_flags |= flags
    shaken = handshake(client, server_context(certificate.read_bytes(), key.read_bytes()), name)
    peer = shaken.getpeercert(binary_form=True)
    assert peer == ssl.PEM_cert_to_DER_cert(certificate.read_text())


@pytest.mark.usefixtures("pair")
@pytest.mark.parametrize("name", ["elsewhere.example", "127.0.0.2", "localhost.localhost"])
def test_other_names_are_not_accepted(certificate: Path, key: Path, name: str) -> None:
    client = ssl.create_default_context(cafile=certificate)
    with pytest.raises(ssl.SSLCertVerificationError, match="match"):
        handshake(client, server_context(certificate.read_bytes(), key.read_bytes()), name)


@pytest.mark.usefixtures("pair")
def test_another_pairs_certificate_does_not_vouch_for_it(certificate: Path, key: Path, tmp_path: Path) -> None:
    ensure_pair(f"{tmp_path}/other/crt", f"{tmp_path}/other/key")
    client = ssl.create_default_context(cafile=f"{tmp_path}/other/crt")
    with pytest.raises(ssl.SSLCertVerificationError):
        handshake(client, server_context(certificate.read_bytes(), key.read_bytes()), "localhost")


@pytest.fixture
def greeter(certificate: Path, key: Path) -> Iterator[int]:
    """The port of a TLS server that answers each connection with one greeting."""
    ensure_pair(str(certificate), str(key))
    context = server_context(certificate.read_bytes(), key.read_bytes())
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        while True:
            connection, _ = listener.accept()
            with connection:
                if stop.is_set():
                    return
                connection.settimeout(20)
                with context.wrap_socket(connection, server_side=True) as secure:
                    secure.recv(65536)
                    secure.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nConnection: close\r\n\r\nhello")

    stop = threading.Event()
    server = threading.Thread(target=serve)
    server.start()
    yield listener.getsockname()[1]
    stop.set()
    socket.create_connection(listener.getsockname()).close()
    server.join(20)
    listener.close()


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "[::1]"])
def test_curl_accepts_it_with_cacert(greeter: int, certificate: Path, host: str) -> None:
    # --connect-to: one listener serves all three names.
    command: list[str | Path] = ["curl", "-q", "--noproxy", "*", "-sS", "--max-time", "20", "--cacert", certificate]
    command += ["--connect-to", f"::127.0.0.1:{greeter}", f"https://{host}:{greeter}/"]
    answer = subprocess.run(command, capture_output=True, check=False, text=True)
    assert (answer.returncode, answer.stdout, answer.stderr) == (0, "hello", "")


# What it is called


@pytest.mark.usefixtures("pair")
def test_the_fingerprint_is_openssls(certificate: Path) -> None:
    shown = openssl("x509", "-in", certificate, "-noout", "-fingerprint", "-sha256")
    expected = "sha256:" + shown.strip().partition("=")[2].replace(":", "").lower()
    assert re.fullmatch(r"sha256:[0-9a-f]{64}", expected)
    assert fingerprint(str(certificate)) == expected


@pytest.mark.usefixtures("pair")
def test_of_a_chain_the_first_certificate_is_shown(certificate: Path) -> None:
    expected = fingerprint(str(certificate))
    other, _ = make_pair(["other.example"])
    certificate.write_bytes(b"a comment\n" + certificate.read_bytes() + other)
    assert fingerprint(str(certificate)) == expected
    assert "other.example" not in describe(str(certificate))["names"]


def test_a_description_is_file_fingerprint_names_and_last_day(certificate: Path) -> None:
    certificate.parent.mkdir()
    made, _ = make_pair(["gate.example", "10.0.0.7"])
    certificate.write_bytes(made)
    ends = openssl("x509", "-in", certificate, "-noout", "-enddate", "-dateopt", "iso_8601").strip().partition("=")[2]
    assert describe(str(certificate)) == {
        "file": str(certificate),
        "fingerprint": fingerprint(str(certificate)),
        "names": "gate.example, 10.0.0.7",
        "expires": ends.replace(" ", "T"),
    }


def test_a_certificate_without_names_says_none(tmp_path: Path) -> None:
    made: list[str | Path] = ["-keyout", tmp_path / "key", "-out", tmp_path / "crt", "-subj", "/CN=x", "-nodes"]
    openssl("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", *made)
    assert describe(f"{tmp_path}/crt")["names"] == "none"
    check_pair(f"{tmp_path}/crt", f"{tmp_path}/key")


def test_a_pair_of_another_maker_and_kind_is_fine(tmp_path: Path) -> None:
    made: list[str | Path] = ["-keyout", tmp_path / "key", "-out", tmp_path / "crt", "-subj", "/CN=x", "-nodes"]
    openssl("req", "-x509", "-newkey", "rsa:2048", "-addext", "subjectAltName=DNS:x.example", *made)
    check_pair(f"{tmp_path}/crt", f"{tmp_path}/key")
    server = server_context((tmp_path / "crt").read_bytes(), (tmp_path / "key").read_bytes())
    handshake(ssl.create_default_context(cafile=tmp_path / "crt"), server, "x.example")


# What is refused


def refusal(certificate: Path, key: Path) -> str:
    with pytest.raises(CertificateError) as caught:
        ensure_pair(str(certificate), str(key))
    assert str(caught.value).isprintable()
    return str(caught.value)


@pytest.mark.usefixtures("pair")
@pytest.mark.parametrize(("missing", "there"), [("mcpd.crt", "mcpd.key"), ("mcpd.key", "mcpd.crt")])
def test_one_file_without_the_other_is_refused_and_nothing_is_made(
    certificate: Path, key: Path, missing: str, there: str
) -> None:
    (certificate.parent / missing).unlink()
    place = certificate.parent
    assert refusal(certificate, key) == (
        f"{place}/{there} is there but {place}/{missing} is not - restore it, or remove both to have a new pair made"
    )
    assert os.listdir(place) == [there]


PAIR_REFUSED = (
    r"{certificate} and {key} are not a pair that TLS can use \(.*\) - check that both are PEM, belong together, "
    r"and that the key has no passphrase"
)


def _garbage(path: Path) -> None:
    path.write_bytes(b"\x00garbage\xff")


def _empty(path: Path) -> None:
    path.write_bytes(b"")


def _cut_short(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-60])


@pytest.mark.usefixtures("pair")
@pytest.mark.parametrize("broken", ["mcpd.crt", "mcpd.key"])
@pytest.mark.parametrize("damage", [_garbage, _empty, _cut_short])
def test_a_broken_file_is_refused(certificate: Path, key: Path, broken: str, damage: Callable[[Path], None]) -> None:
    damage(certificate.parent / broken)
    expected = PAIR_REFUSED.format(certificate=re.escape(str(certificate)), key=re.escape(str(key)))
    assert re.fullmatch(expected, refusal(certificate, key))


@pytest.mark.usefixtures("pair")
def test_files_of_two_pairs_are_refused(certificate: Path, key: Path) -> None:
    _, other = make_pair(["localhost"])
    key.write_bytes(other)
    assert "(KEY_VALUES_MISMATCH)" in refusal(certificate, key)


@pytest.mark.usefixtures("pair")
def test_exchanged_files_are_refused(certificate: Path, key: Path) -> None:
    assert "are not a pair that TLS can use" in refusal(key, certificate)


@pytest.mark.usefixtures("pair")
def test_a_file_that_is_a_directory_is_refused(certificate: Path, key: Path) -> None:
    key.unlink()
    key.mkdir()
    assert refusal(certificate, key) == f"{key}: Is a directory"


@pytest.mark.usefixtures("pair")
@pytest.mark.skipif(os.geteuid() == 0, reason="root may read every file")
def test_a_file_that_may_not_be_read_is_refused(certificate: Path, key: Path) -> None:
    key.chmod(0)
    assert refusal(certificate, key) == f"{key}: Permission denied"


@pytest.mark.parametrize(
    ("content", "why"),
    [(None, "No such file or directory"), (b"", "not a certificate in PEM"), (b"garbage", "not a certificate in PEM")],
)
def test_what_is_no_certificate_has_no_fingerprint(tmp_path: Path, content: bytes | None, why: str) -> None:
    path = tmp_path / "crt"
    if content is not None:
        path.write_bytes(content)
    for ask in (fingerprint, describe):
        with pytest.raises(CertificateError) as caught:
            ask(str(path))
        assert str(caught.value) == f"{path}: {why}"


# A key with a passphrase


@pytest.fixture
def locked_key(certificate: Path, key: Path) -> Path:
    ensure_pair(str(certificate), str(key))
    openssl("pkey", "-in", key, "-out", f"{key}.locked", "-aes256", "-passout", "pass:secret")
    os.replace(f"{key}.locked", key)
    return key


def on_a_terminal(work: Callable[[], object]) -> tuple[int, bytes]:
    """Exit code of a child that runs `work` on a terminal of its own, and what it wrote there. It has 20 seconds."""
    pid, terminal = pty.fork()
    if pid == 0:
        try:
            work()
        except (CertificateError, ssl.SSLError):
            os._exit(3)
        os._exit(0)
    written = b""
    while select.select([terminal], [], [], 20)[0]:
        try:
            written += os.read(terminal, 4096)
        except OSError:  # the other end is closed: EIO (pty(7))
            break
    else:
        os.kill(pid, signal.SIGKILL)
    os.close(terminal)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), written


def test_a_key_with_a_passphrase_is_refused_without_asking_the_terminal(certificate: Path, locked_key: Path) -> None:
    assert on_a_terminal(lambda: check_pair(str(certificate), str(locked_key))) == (3, b"")
    contents = certificate.read_bytes(), locked_key.read_bytes()
    assert on_a_terminal(lambda: server_context(*contents)) == (3, b"")
    expected = PAIR_REFUSED.format(certificate=re.escape(str(certificate)), key=re.escape(str(locked_key)))
    assert re.fullmatch(expected, refusal(certificate, locked_key))
