"""Makes the self-signed pair of wire contract section 7, and says what a pair's fingerprint is."""

from __future__ import annotations

import hashlib
import ipaddress
import os
import socket
import ssl
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from certs.context import no_passphrase

# Clients pin this very file, so nothing renews it behind their backs: it has to last.
LIFETIME: Final = timedelta(days=3650)
ALWAYS: Final = ("localhost", "127.0.0.1", "::1")


class CertificateError(Exception):
    """The pair cannot be used; `str()` is one sentence for a person."""


def ensure_pair(certificate: str, key: str, names: Iterable[str] = ()) -> None:
    """Makes the pair where neither file is there. Raises CertificateError when one stands without the other, cannot
    be read, or the two do not belong together."""
    have_certificate, have_key = os.path.exists(certificate), os.path.exists(key)
    if have_certificate != have_key:
        there, missing = (certificate, key) if have_certificate else (key, certificate)
        raise CertificateError(
            f"{there} is there but {missing} is not - restore it, or remove both to have a new pair made"
        )
    if not have_certificate:
        os.makedirs(os.path.dirname(certificate), mode=0o755, exist_ok=True)
        certificate_pem, key_pem = make_pair((*ALWAYS, socket.gethostname(), *names))
        create_file(key, key_pem, 0o600)
        create_file(certificate, certificate_pem, 0o644)
    check_pair(certificate, key)


def make_pair(names: Iterable[str]) -> tuple[bytes, bytes]:
    """(certificate, key) in PEM: ECDSA P-256, a leaf (CA:FALSE) that is its own anchor, for DNS names and addresses
    (RFC 5280 sections 4.2.1.1-4.2.1.12: the extensions that strict verification asks for)."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "ssegate")])
    now = datetime.now(UTC)
    identifier = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
    certificate = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        # A clock that is a little behind must not find it "not yet valid".
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + LIFETIME)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(
            x509.KeyUsage(
                digital_signature=True,
                content_commitment=False,
                key_encipherment=False,
                data_encipherment=False,
                key_agreement=False,
                key_cert_sign=False,
                crl_sign=False,
                encipher_only=False,
                decipher_only=False,
            ),
            critical=True,
        )
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.SubjectAlternativeName([_general_name(n) for n in dict.fromkeys(names)]), critical=False)
        .add_extension(identifier, critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(identifier), critical=False)
        .sign(key, hashes.SHA256())
    )
    return (
        certificate.public_bytes(serialization.Encoding.PEM),
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()),
    )


def check_pair(certificate: str, key: str) -> None:
    """Raises CertificateError unless the two files are a pair that TLS can use."""
    for path in (certificate, key):
        try:
            with open(path, "rb"):
                pass
        except OSError as error:
            raise CertificateError(f"{path}: {error.strerror}") from None
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(certificate, key, password=no_passphrase)
    except (ssl.SSLError, ValueError) as error:
        reason = error.reason if isinstance(error, ssl.SSLError) else str(error)
        raise CertificateError(
            f"{certificate} and {key} are not a pair that TLS can use ({reason}) - check that both are PEM, "
            "belong together, and that the key has no passphrase"
        ) from None


def fingerprint(certificate: str) -> str:
    """`sha256:` and the 64 hex digits of the DER form of the first certificate in a PEM file."""
    return _fingerprint(_load(certificate))


def describe(certificate: str) -> dict[str, str]:
    """What a person wants to know of a certificate's file: file, fingerprint, names, expires."""
    loaded = _load(certificate)
    try:
        names = loaded.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        shown = ", ".join(str(name.value) for name in names)
    except x509.ExtensionNotFound:
        shown = "none"
    except ValueError:
        raise CertificateError(f"{certificate}: its names cannot be read") from None
    return {
        "file": certificate,
        "fingerprint": _fingerprint(loaded),
        "names": shown,
        "expires": loaded.not_valid_after_utc.strftime("%Y-%m-%dT%H:%M:%SZ"),
    }


def _load(certificate: str) -> x509.Certificate:
    try:
        with open(certificate, "rb") as file:
            return x509.load_pem_x509_certificate(file.read())
    except OSError as error:
        raise CertificateError(f"{certificate}: {error.strerror}") from None
    except ValueError:
        raise CertificateError(f"{certificate}: not a certificate in PEM") from None


def _fingerprint(certificate: x509.Certificate) -> str:
    return "sha256:" + hashlib.sha256(certificate.public_bytes(serialization.Encoding.DER)).hexdigest()


def _general_name(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        if not name or not name.isascii():
            raise CertificateError(f"{name!r} is no host name - give its ASCII form (RFC 5890)") from None
        return x509.DNSName(name)


def create_file(path: str, content: bytes, mode: int) -> None:
    """A new file, on the disk when this returns. Raises FileExistsError: two first starts at once do not overwrite
    each other's half of a pair."""
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode), "wb") as file:
        os.fchmod(file.fileno(), mode)  # whatever the caller's umask is
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
