"""The listener's SSLContext, from a pair given as bytes: the process that serves may not open the key's file."""

from __future__ import annotations

import os
import ssl


def server_context(certificate: bytes, key: bytes) -> ssl.SSLContext:
    """TLS 1.2 and up, AEAD ciphers with forward secrecy only (security design, section 5.5), ALPN `http/1.1`. Raises
    ssl.SSLError for what is no pair."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_ciphers("ECDHE+AESGCM:ECDHE+CHACHA20")
    context.set_alpn_protocols(["http/1.1"])
    # The ssl module loads from paths only; a memfd is a path that nobody else can open.
    with _memory_file(certificate) as certificate_path, _memory_file(key) as key_path:
        context.load_cert_chain(certificate_path.name, key_path.name, password=no_passphrase)
    return context


def no_passphrase() -> str:
    """Without it OpenSSL would ask for the passphrase of an encrypted key on the terminal, and wait."""
    return ""


class _memory_file:  # noqa: N801 - used as a context manager, like open()
    def __init__(self, content: bytes) -> None:
        self._descriptor = os.memfd_create("tls", os.MFD_CLOEXEC)
        os.write(self._descriptor, content)

    @property
    def name(self) -> str:
        return f"/proc/self/fd/{self._descriptor}"

    def __enter__(self) -> _memory_file:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._descriptor)
