"""A TLS handshake without a network."""

from __future__ import annotations

import ssl


def handshake(client: ssl.SSLContext, server: ssl.SSLContext, name: str = "localhost") -> ssl.SSLObject:
    """A whole TLS handshake in memory, the server's side first to fail; the client's side of it."""
    to_client, to_server = ssl.MemoryBIO(), ssl.MemoryBIO()
    client_side = client.wrap_bio(to_client, to_server, server_hostname=name)
    server_side = server.wrap_bio(to_server, to_client, server_side=True)
    waiting = [client_side, server_side]
    for _ in range(10):
        for side in list(waiting):
            try:
                side.do_handshake()
            except ssl.SSLWantReadError:
                continue
            waiting.remove(side)
    assert not waiting
    return client_side
