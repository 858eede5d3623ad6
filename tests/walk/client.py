"""The wire from the other side, with nothing between a test and the bytes: TLS sockets, HTTP/1.1 by hand."""

from __future__ import annotations

import json
import socket
import ssl
import struct
import time
from dataclasses import dataclass
from typing import Any

TIMEOUT = 20.0


@dataclass(frozen=True)
class Response:
    status: int
    headers: list[tuple[str, str]]
    body: bytes

    def header(self, name: str) -> str | None:
        found = [value for key, value in self.headers if key == name.lower()]
        assert len(found) <= 1, found
        return found[0] if found else None


class Connection:
    """One TLS connection; requests go one after the other (keep-alive)."""

    def __init__(
        self, port: int, certificate: str, address: str = "127.0.0.1", receive_buffer: int | None = None
    ) -> None:
        context = ssl.create_default_context(cafile=certificate)
        raw = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET)
        if receive_buffer is not None:  # before the connection, for the window is told with it (tcp(7))
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        try:
            raw.settimeout(TIMEOUT)
            raw.connect((address, port))
            raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self.socket = context.wrap_socket(raw, server_hostname="localhost")
        except OSError:
            raw.close()
            raise
        self.buffer = b""

    def send(self, method: str, target: str, headers: list[tuple[str, str]], body: bytes | None = None) -> None:
        lines = [f"{method} {target} HTTP/1.1", "Host: localhost", *(f"{k}: {v}" for k, v in headers)]
        if body is not None:
            lines.append(f"Content-Length: {len(body)}")
        self.socket.sendall("\r\n".join([*lines, "", ""]).encode("latin-1") + (body or b""))

    def read_head(self) -> tuple[int, list[tuple[str, str]]]:
        head = self.read_until(b"\r\n\r\n").decode("latin-1")
        status, *lines = head.rstrip("\r\n").split("\r\n")
        pairs = (line.split(": ", 1) for line in lines)
        return int(status.split(" ")[1]), [(key.lower(), value) for key, value in pairs]

    def request(self, method: str, target: str, headers: list[tuple[str, str]], body: bytes | None = None) -> Response:
        self.send(method, target, headers, body)
        status, received = self.read_head()
        length = dict(received).get("content-length")
        if method == "HEAD" or status in (204, 304):
            return Response(status, received, b"")
        assert length is not None, received
        return Response(status, received, self.read(int(length)))

    def read(self, size: int) -> bytes:
        while len(self.buffer) < size:
            self._more()
        data, self.buffer = self.buffer[:size], self.buffer[size:]
        return data

    def read_until(self, mark: bytes) -> bytes:
        while mark not in self.buffer:
            self._more()
        end = self.buffer.index(mark) + len(mark)
        data, self.buffer = self.buffer[:end], self.buffer[end:]
        return data

    def _more(self) -> None:
        data = self.socket.recv(1 << 20)
        if not data:
            raise EOFError("the server closed the connection")
        self.buffer += data

    def close(self) -> None:
        self.socket.close()

    def reset(self) -> None:
        """Ends the connection by RST, as a crashed host does (SO_LINGER of 0 seconds)."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.socket.close()


class Stream:
    """`GET /sse` held open. `frames` are read as the bytes between empty lines."""

    def __init__(self, port: int, certificate: str, token: str, receive_buffer: int | None = None) -> None:
        self.port, self.certificate = port, certificate
        self.authorization = [("Authorization", f"Bearer {token}")]
        self.connection = Connection(port, certificate, receive_buffer=receive_buffer)
        self.connection.send("GET", "/sse", self.authorization)
        self.status, self.headers = self.connection.read_head()
        assert self.status == 200, (self.status, self.headers)
        self._posting: Connection | None = None
        self.body = b""
        self.ended = False
        endpoint = self.frame().decode("ascii")
        assert endpoint.startswith("event: endpoint\ndata: /"), endpoint
        self.endpoint = endpoint.removeprefix("event: endpoint\ndata: ").removesuffix("\n\n")

    def frame(self, timeout: float = TIMEOUT) -> bytes:
        """The next event or comment with its empty line. Raises TimeoutError, and EOFError at the stream's end."""
        deadline = time.monotonic() + timeout
        while b"\n\n" not in self.body:
            if self.ended:
                raise EOFError("the stream ended")
            self.connection.socket.settimeout(max(0.001, deadline - time.monotonic()))
            size = int(self.connection.read_until(b"\r\n"), 16)
            self.body += self.connection.read(size)
            assert self.connection.read(2) == b"\r\n"
            self.ended = size == 0
        end = self.body.index(b"\n\n") + 2
        data, self.body = self.body[:end], self.body[end:]
        return data

    def message(self, timeout: float = TIMEOUT) -> Any:
        """The next JSON-RPC message; pings are passed over."""
        while (frame := self.frame(timeout)).startswith(b":"):
            pass
        head, data = frame.removesuffix(b"\n\n").split(b"\n")
        assert head == b"event: message"
        return json.loads(data.removeprefix(b"data: "))

    def post(self, body: Any, token: str | None = None) -> Response:
        """POSTs to the endpoint on a connection of its own that is kept."""
        if self._posting is None:
            self._posting = Connection(self.port, self.certificate)
        headers = self.authorization if token is None else [("Authorization", f"Bearer {token}")]
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        return self._posting.request("POST", self.endpoint, headers, data)

    def call(self, method: str, params: Any = None, identifier: Any = 1) -> Any:
        """One request and its answer, which must be the next message."""
        request = {"jsonrpc": "2.0", "id": identifier, "method": method}
        if params is not None:
            request["params"] = params
        assert self.post(request).status == 202
        answer = self.message()
        assert answer["id"] == identifier, answer
        return answer

    def tool(self, tool: str, **arguments: Any) -> Any:
        return self.call("tools/call", {"name": tool, "arguments": arguments})["result"]

    def rest(self, timeout: float = TIMEOUT) -> list[bytes]:
        """All frames up to the stream's end."""
        frames = []
        try:
            while True:
                frames.append(self.frame(timeout))
        except EOFError:
            return frames

    def close(self) -> None:
        self.connection.close()
        if self._posting is not None:
            self._posting.close()

    def reset(self) -> None:
        self.connection.reset()
        if self._posting is not None:
            self._posting.reset()


def trial(identifier: Any, do: str, **arguments: Any) -> dict[str, Any]:
    """A `tools/call` of the tests' own tool."""
    params = {"name": "trial/run", "arguments": {"do": do, **arguments}}
    return {"jsonrpc": "2.0", "id": identifier, "method": "tools/call", "params": params}


def text_of(answer: Any) -> str:
    """The text of the answer to a `tools/call`."""
    (content,) = answer["result"]["content"]
    return str(content["text"])
