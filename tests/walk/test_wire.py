"""Wire contract, sections 2 and 4: every refusal of a token and of a POST, over a real TLS socket."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from tests.walk.client import Response
from tests.walk.conftest import Start
from tests.walk.running import Running, eventually

PING = b'{"jsonrpc":"2.0","id":1,"method":"ping"}'


def bearer(token: str) -> list[tuple[str, str]]:
    return [("Authorization", f"Bearer {token}")]


def post(gateway: Running, target: str, headers: list[tuple[str, str]], body: bytes = PING) -> Response:
    return gateway.connect().request("POST", target, headers, body)


# Section 2: the bearer

NO_TOKEN = 'Bearer realm="ssegate"'


def invalid(description: str) -> str:
    return f'{NO_TOKEN}, error="invalid_token", error_description="{description}"'


MALFORMED = invalid("the token is malformed")
SIGNATURE = invalid("the token's signature is not valid")
EXPIRED = invalid("the token has expired")
AUDIENCE = invalid("the token is for another audience or from another issuer")
UNKNOWN = invalid("the token's user is not known here")


class Forge:
    """Tokens by the gateway's own key, and by others."""

    def __init__(self, directory: Path) -> None:
        pem = (directory / "tokens" / "signing.key").read_bytes()
        key = serialization.load_pem_private_key(pem, None)
        assert isinstance(key, Ed25519PrivateKey)
        self.key = key
        self.public_pem = (directory / "tokens" / "signing.pub").read_bytes()

    def claims(self, **changes: Any) -> dict[str, Any]:
        now = int(time.time())
        claims = {"iss": "ssegate", "aud": "ssegate", "sub": "alice", "iat": now, "exp": now + 3600, **changes}
        return {name: value for name, value in claims.items() if value is not None}

    def own(self, headers: dict[str, Any] | None = None, **changes: Any) -> str:
        return jwt.encode(self.claims(**changes), self.key, algorithm="EdDSA", headers=headers)

    def raw(self, header: dict[str, Any], payload: bytes, sign: Callable[[bytes], bytes]) -> str:
        def part(data: bytes) -> bytes:
            return base64.urlsafe_b64encode(data).rstrip(b"=")

        signed = part(json.dumps(header).encode()) + b"." + part(payload)
        return (signed + b"." + part(sign(signed))).decode()

    def hmac_with_public_key(self) -> str:
        return self.raw(
            {"alg": "HS256", "typ": "JWT"},
            json.dumps(self.claims()).encode(),
            lambda data: hmac.new(self.public_pem, data, hashlib.sha256).digest(),
        )


@pytest.fixture(scope="module")
def forge(gateway: Running, alice: str) -> Forge:
    assert alice
    return Forge(gateway.directory)


BAD_TOKENS: list[tuple[str, Callable[[Forge], str], str]] = [
    ("it is no JWT", lambda _: "abc", MALFORMED),
    ("it has empty parts", lambda _: "..", MALFORMED),
    ("it is 100 kB long", lambda _: "a" * 100_000, MALFORMED),
    ("it is not base64url", lambda _: "a+b/c=", MALFORMED),
    ("it has characters no token has", lambda _: 'a"b', MALFORMED),
    (
        "its algorithm is none",
        lambda f: f.raw({"alg": "none"}, json.dumps(f.claims()).encode(), lambda _: b""),
        SIGNATURE,
    ),
    ("it is HS256 with the public key as secret", Forge.hmac_with_public_key, SIGNATURE),
    (
        "it is RS256 with a key of its own",
        lambda f: jwt.encode(f.claims(), rsa.generate_private_key(65537, 2048), algorithm="RS256"),
        SIGNATURE,
    ),
    (
        "it is ES256 with a key of its own",
        lambda f: jwt.encode(f.claims(), ec.generate_private_key(ec.SECP256R1()), algorithm="ES256"),
        SIGNATURE,
    ),
    (
        "it is signed with another Ed25519 key",
        lambda f: jwt.encode(f.claims(), Ed25519PrivateKey.generate(), algorithm="EdDSA"),
        SIGNATURE,
    ),
    ("its last character is another", lambda f: f.own()[:-4] + "AAAA", SIGNATURE),
    ("it has expired", lambda f: f.own(exp=int(time.time()) - 1), EXPIRED),
    ("it has no exp", lambda f: f.own(exp=None), MALFORMED),
    ("it has no sub", lambda f: f.own(sub=None), MALFORMED),
    ("it has no iss", lambda f: f.own(iss=None), MALFORMED),
    ("it has no aud", lambda f: f.own(aud=None), MALFORMED),
    ("its exp is a text", lambda f: f.own(exp="99999999999"), MALFORMED),
    ("it is for another audience", lambda f: f.own(aud="other"), AUDIENCE),
    ("it is from another issuer", lambda f: f.own(iss="other"), AUDIENCE),
    ("its user is not known", lambda f: f.own(sub="mallory"), UNKNOWN),
    ("its payload is no object", lambda f: f.raw({"alg": "EdDSA"}, b"[]", f.key.sign), MALFORMED),
]


@pytest.mark.parametrize("target", ["/sse", "/message?session_id=x"])
@pytest.mark.parametrize(("make", "challenge"), [case[1:] for case in BAD_TOKENS], ids=[case[0] for case in BAD_TOKENS])
def test_a_token_is_refused_because(
    gateway: Running, forge: Forge, target: str, make: Callable[[Forge], str], challenge: str
) -> None:
    method = "GET" if target == "/sse" else "POST"
    response = gateway.connect().request(method, target, bearer(make(forge)), PING if method == "POST" else None)
    assert (response.status, response.body) == (401, b"Unauthorized\n")
    assert response.header("content-type") == "text/plain; charset=utf-8"
    assert response.header("www-authenticate") == challenge


HEADERS: list[tuple[str, list[tuple[str, str]], str]] = [
    ("there is none", [], NO_TOKEN),
    ("the scheme is Basic", [("Authorization", "Basic YTpi")], NO_TOKEN),
    ("the scheme stands alone", [("Authorization", "Bearer")], MALFORMED),
    ("the token is empty", [("Authorization", "Bearer ")], MALFORMED),
    ("a tab divides scheme and token", [("Authorization", "Bearer\tabc")], MALFORMED),
    ("it is a cookie", [("Cookie", "Authorization=Bearer abc")], NO_TOKEN),
]


@pytest.mark.parametrize(("headers", "challenge"), [case[1:] for case in HEADERS], ids=[case[0] for case in HEADERS])
def test_a_request_without_a_token_is_challenged_when(
    gateway: Running, headers: list[tuple[str, str]], challenge: str
) -> None:
    response = gateway.connect().request("GET", "/sse", headers)
    assert (response.status, response.body) == (401, b"Unauthorized\n")
    assert response.header("www-authenticate") == challenge


def test_two_authorization_headers_are_refused_even_if_both_are_good(gateway: Running, alice: str) -> None:
    response = gateway.connect().request("GET", "/sse", bearer(alice) * 2)
    assert (response.status, response.header("www-authenticate")) == (401, MALFORMED)


@pytest.mark.parametrize("query", ["access_token", "token", "Authorization"])
def test_a_token_in_the_query_is_no_token(gateway: Running, alice: str, query: str) -> None:
    response = gateway.connect().request("GET", f"/sse?{query}={alice}", [])
    assert (response.status, response.header("www-authenticate")) == (401, NO_TOKEN)


@pytest.mark.parametrize("scheme", ["Bearer ", "bearer ", "BEARER ", "bEaReR   "])
def test_the_scheme_s_case_and_spaces_do_not_matter(gateway: Running, alice: str, scheme: str) -> None:
    response = post(gateway, "/message", [("Authorization", scheme + alice)])
    assert (response.status, response.body) == (400, b"Missing session_id in query parameters\n")


@pytest.mark.parametrize(
    "headers", [{"kid": "../../etc/passwd"}, {"jku": "https://127.0.0.1:1/"}, {"x5u": "https://127.0.0.1:1/"}]
)
def test_what_a_token_s_header_says_of_keys_is_not_listened_to(
    gateway: Running, forge: Forge, headers: dict[str, Any]
) -> None:
    assert post(gateway, "/message", bearer(forge.own(headers=headers))).status == 400
    stranger = jwt.encode(forge.claims(), Ed25519PrivateKey.generate(), algorithm="EdDSA", headers=headers)
    assert post(gateway, "/message", bearer(stranger)).status == 401


def test_a_verified_token_is_still_refused_once_it_has_expired(gateway: Running, forge: Forge) -> None:
    token = forge.own(exp=int(time.time()) + 2)
    assert post(gateway, "/message", bearer(token)).status == 400
    assert eventually(lambda: post(gateway, "/message", bearer(token)).status == 401)
    assert post(gateway, "/message", bearer(token)).header("www-authenticate") == EXPIRED


# Section 4: POST /message, row by row


@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE", "OPTIONS", "PATCH", "HEAD"])
def test_row_1_another_method_than_post(gateway: Running, method: str) -> None:
    response = gateway.connect().request(method, "/message?session_id=x", [])
    assert (response.status, response.header("allow")) == (405, "POST")
    assert response.body == (b"" if method == "HEAD" else b"Method Not Allowed\n")


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS", "HEAD"])
def test_the_stream_s_path_takes_get_alone(gateway: Running, alice: str, method: str) -> None:
    response = gateway.connect().request(method, "/sse", bearer(alice), b"{}" if method == "POST" else None)
    assert (response.status, response.header("allow")) == (405, "GET")
    assert response.body == (b"" if method == "HEAD" else b"Method Not Allowed\n")


def test_row_2_a_bad_token_comes_before_a_missing_session(gateway: Running) -> None:
    assert post(gateway, "/message", bearer("abc")).status == 401


@pytest.mark.parametrize("query", ["", "?", "?session_id", "?session_id=", "?other=1", "?Session_Id=x"])
def test_row_3_no_session_id(gateway: Running, alice: str, query: str) -> None:
    response = post(gateway, f"/message{query}", bearer(alice))
    assert (response.status, response.body) == (400, b"Missing session_id in query parameters\n")
    assert response.header("content-type") == "text/plain; charset=utf-8"


@pytest.mark.parametrize("session", ["nosuch", "%00", "%F0%9F", "../x", "a" * 5000])
def test_row_4_an_unknown_session(gateway: Running, alice: str, session: str) -> None:
    response = post(gateway, f"/message?session_id={session}", bearer(alice))
    assert (response.status, response.body) == (400, b"No active SSE session\n")


def test_row_4_a_session_of_another_user_looks_like_an_unknown_one(gateway: Running, alice: str, bob: str) -> None:
    stream = gateway.stream(alice)
    foreign = post(gateway, stream.endpoint, bearer(bob))
    unknown = post(gateway, "/message?session_id=nosuch", bearer(bob))
    assert (foreign.status, foreign.body) == (unknown.status, unknown.body) == (400, b"No active SSE session\n")
    assert [name for name, _ in foreign.headers] == [name for name, _ in unknown.headers]
    assert "security: bob posted to a session of alice" in gateway.log
    assert stream.call("ping")["result"] == {}, "the stream must have got nothing of it"


def test_row_4_an_ended_session(gateway: Running, alice: str) -> None:
    stream = gateway.stream(alice)
    assert stream.call("ping")["result"] == {}
    stream.close()
    assert eventually(lambda: post(gateway, stream.endpoint, bearer(alice)).status == 400)
    assert post(gateway, stream.endpoint, bearer(alice)).body == b"No active SSE session\n"


def test_row_4_comes_before_the_body_is_looked_at(gateway: Running, alice: str) -> None:
    assert post(gateway, "/message?session_id=nosuch", bearer(alice), b"not JSON").body == b"No active SSE session\n"


def test_another_token_of_the_same_user_may_post(gateway: Running, alice: str) -> None:
    stream = gateway.stream(alice)
    assert stream.post(PING, token=gateway.token("alice")).status == 202
    assert stream.message()["result"] == {}


def test_row_5_a_body_over_the_limit(gateway: Running, alice: str) -> None:
    stream = gateway.stream(alice)
    largest = b'{"jsonrpc":"2.0","id":1,"method":"ping","params":{"x":"%s"}}' % (b"a" * (4 * 1024 * 1024 - 58))
    assert len(largest) == 4 * 1024 * 1024
    assert stream.post(largest).status == 202
    assert stream.message() == {"jsonrpc": "2.0", "id": 1, "result": {}}
    response = stream.post(largest + b" ")
    assert (response.status, response.body) == (413, b"Request body too large\n")


def test_row_5_a_body_over_the_limit_that_does_not_say_its_length(gateway: Running, alice: str) -> None:
    stream = gateway.stream(alice)
    connection = gateway.connect()
    connection.send("POST", stream.endpoint, [*bearer(alice), ("Transfer-Encoding", "chunked")])
    for _ in range(5):
        connection.socket.sendall(b"100000\r\n" + b"a" * 0x100000 + b"\r\n")
    status, headers = connection.read_head()
    assert (status, connection.read(int(dict(headers)["content-length"]))) == (413, b"Request body too large\n")


def deep(levels: int) -> bytes:
    """A call whose params nest so that the whole body is `levels` deep."""
    inner = b"[" * (levels - 2) + b"]" * (levels - 2)
    return b'{"jsonrpc":"2.0","id":1,"method":"ping","params":{"x":%s}}' % inner


NOT_JSON_RPC = [
    b"",
    b"not JSON",
    b'{"jsonrpc":"2.0","id":1,"method":"ping"} x',
    b'{"jsonrpc":"2.0","id":1,"method":"ping"}{}',
    b'\xef\xbb\xbf{"jsonrpc":"2.0","id":1,"method":"ping"}',
    b'{"jsonrpc":"2.0","id":1,"method":"ping","params":{"x":"\xff"}}',
    b'{"jsonrpc":"2.0","id":1,"method":"ping","params":{"x":"\xed\xa0\x80"}}',
    b'{"jsonrpc":"2.0","id":1,"method":"ping","params":{"x":NaN}}',
    b'{"jsonrpc":"2.0","id":1,"method":"ping","params":{"x":-Infinity}}',
    b'{"jsonrpc":"2.0","id":1,"method":"ping","params":{"x":1e999}}',
    b'{"jsonrpc":"2.0","id":1,"method":"ping","params":{"x":%s}}' % (b"9" * 5000),
    deep(65),
    b"[" * 100_000,
    b'{"a":' * 100_000,
    b'"text"',
    b"7",
    b"null",
    b"true",
    b"[]",
    b"[%s]" % b",".join([PING] * 101),
    b'{"jsonrpc":"2.0","id":1,"id":2,"method":"ping"}',
    b'{"jsonrpc":"2.0","id":1,"method":"ping","params":{"x":1,"x":1}}',
    b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"list_dir","_meta":{"a":1,"a":2},"arguments":{}}}',
    b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"arguments":{},"name":"list_dir","arguments":{}}}',
    b'{"jsonrpc":"2.0","id":"\\ud800","method":"ping"}',
    b'{"jsonrpc":"2.0","id":1,"method":"ping","params":{"\\udc00":1}}',
    b'[{"jsonrpc":"2.0","id":1,"method":"ping","x":1,"x":1}]',
    b'{"jsonrpc":"2.0","id":1,"method":"ping",}',
    b"{'jsonrpc':'2.0'}",
    b'{"jsonrpc":"2.0","id":01,"method":"ping"}',
]


@pytest.mark.parametrize("body", NOT_JSON_RPC, ids=[repr(body[:60]) for body in NOT_JSON_RPC])
def test_row_6_what_is_no_json_rpc(gateway: Running, alice: str, body: bytes) -> None:
    stream = gateway.stream(alice)
    response = stream.post(body)
    assert (response.status, response.body) == (400, b"Invalid JSON-RPC\n")
    assert stream.call("ping")["result"] == {}, "the stream goes on, and nothing was answered"


def test_row_6_a_nesting_of_64_is_allowed(gateway: Running, alice: str) -> None:
    stream = gateway.stream(alice)
    assert stream.post(deep(64)).status == 202
    assert stream.message()["result"] == {}


def test_row_7_the_rate_limit_is_a_bucket_of_its_own_for_each_user(start: Start) -> None:
    gateway = start({"limits": {"rate": 0.2, "burst": 3}})
    one, other = gateway.stream(gateway.token("alice")), gateway.stream(gateway.token("bob"))
    assert [one.post({"jsonrpc": "2.0", "id": n, "method": "ping"}).status for n in range(3)] == [202] * 3
    refused = one.post({"jsonrpc": "2.0", "id": "late", "method": "ping"})
    assert (refused.status, refused.body) == (429, b"Rate limit exceeded\n")
    assert 1 <= int(refused.header("retry-after") or 0) <= 5
    assert [one.message()["id"] for _ in range(3)] == [0, 1, 2]
    assert one.message() == {
        "jsonrpc": "2.0",
        "id": "late",
        "error": {"code": -32000, "message": "Rate limit exceeded"},
    }
    assert other.call("ping")["result"] == {}


def stuck(number: Any, fifo: str) -> dict[str, Any]:
    arguments = {"do": "fifo", "path": fifo}
    return {
        "jsonrpc": "2.0",
        "id": number,
        "method": "tools/call",
        "params": {"name": "trial/run", "arguments": arguments},
    }


@pytest.fixture
def fifo(open_directory: Path) -> str:
    path = open_directory / "row8"
    if not path.exists():
        os.mkfifo(path)
        path.chmod(0o666)
    return str(path)


def test_row_8_the_session_s_calls_in_flight_are_bounded(start: Start, fifo: str) -> None:
    gateway = start({"limits": {"rate": 0, "in_flight": 2}, "timeouts": {"drain": 0}})
    stream = gateway.stream(gateway.token())
    assert [stream.post(stuck(n, fifo)).status for n in (1, 2)] == [202, 202]
    refused = stream.post(stuck("3", fifo))
    assert (refused.status, refused.body, refused.header("retry-after")) == (503, b"Busy\n", "1")
    assert stream.message() == {"jsonrpc": "2.0", "id": "3", "error": {"code": -32000, "message": "Busy"}}
    batch = stream.post([stuck(4, fifo), {"jsonrpc": "2.0", "id": 5, "method": "ping"}])
    assert batch.status == 503
    assert [answer["id"] for answer in stream.message()] == [4, 5]
    assert stream.call("ping")["result"] == {}
    cancel = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1}}
    assert stream.post(cancel).status == 202
    assert eventually(lambda: stream.post(stuck(6, fifo)).status == 202)


@pytest.mark.parametrize(
    "body",
    [
        {"jsonrpc": "2.0", "method": "notifications/initialized"},
        {"jsonrpc": "2.0", "method": "notifications/nosuch", "params": [1]},
        {"jsonrpc": "2.0", "method": "ping"},
        {"jsonrpc": "2.0", "id": 1, "result": {}},
        {"jsonrpc": "2.0", "id": 1, "error": {"code": 1, "message": "x"}},
        [{"jsonrpc": "2.0", "method": "a"}, {"jsonrpc": "2.0", "method": "b"}],
        {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": "nosuch"}},
        {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": [1]}},
    ],
    ids=str,
)
def test_row_9_what_needs_no_answer_gets_202_and_none(gateway: Running, alice: str, body: Any) -> None:
    stream = gateway.stream(alice)
    response = stream.post(body)
    assert (response.status, response.body, response.header("content-length")) == (202, b"", "0")
    assert stream.call("ping", identifier="next")["id"] == "next"


SHAPED = [
    ({"jsonrpc": "1.0", "id": 1, "method": "ping"}, 1, -32600),
    ({"id": 1, "method": "ping"}, 1, -32600),
    ({"jsonrpc": 2.0, "id": 1, "method": "ping"}, 1, -32600),
    ({"jsonrpc": "2.0", "id": 1}, 1, -32600),
    ({"jsonrpc": "2.0", "id": 1, "method": 7}, 1, -32600),
    ({"jsonrpc": "2.0", "id": 1, "method": "ping", "params": "x"}, 1, -32600),
    ({"jsonrpc": "2.0", "id": None, "method": "ping"}, None, -32600),
    ({"jsonrpc": "2.0", "id": True, "method": "ping"}, None, -32600),
    ({"jsonrpc": "2.0", "id": [1], "method": "ping"}, None, -32600),
    ({"jsonrpc": "2.0", "id": {}, "method": "ping"}, None, -32600),
    ({}, None, -32600),
    ({"jsonrpc": "2.0", "id": 1, "method": "nosuch"}, 1, -32601),
    ({"jsonrpc": "2.0", "id": 1, "method": "server/discover"}, 1, -32601),
    ({"jsonrpc": "2.0", "id": 1, "method": ""}, 1, -32601),
    ({"jsonrpc": "2.0", "id": 1, "method": "tools/call"}, 1, -32602),
    ({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": []}, 1, -32602),
    ({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": 1}}, 1, -32602),
    ({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "nosuch"}}, 1, -32602),
    ({"jsonrpc": "2.0", "id": 1, "method": "ping", "params": [1]}, 1, -32602),
]


@pytest.mark.parametrize(("body", "identifier", "code"), SHAPED, ids=[json.dumps(case[0]) for case in SHAPED])
def test_row_9_json_rpc_errors_travel_on_the_stream(
    gateway: Running, alice: str, body: Any, identifier: Any, code: int
) -> None:
    stream = gateway.stream(alice)
    assert stream.post(body).status == 202
    answer = stream.message()
    assert (answer["jsonrpc"], answer["id"], answer["error"]["code"]) == ("2.0", identifier, code)
    assert list(answer) == ["jsonrpc", "id", "error"]


@pytest.mark.parametrize("text", ['"1"', "1", "0", '""', "9007199254740993", "-7", '"\\u00e9"', "1.50", "12e3"])
def test_an_id_is_echoed_with_its_type_and_exact_digits(gateway: Running, alice: str, text: str) -> None:
    stream = gateway.stream(alice)
    assert stream.post(b'{"jsonrpc":"2.0","id":%s,"method":"ping"}' % text.encode()).status == 202
    assert stream.frame() == b'event: message\ndata: {"jsonrpc":"2.0","id":%s,"result":{}}\n\n' % text.encode()


def test_a_batch_is_answered_by_one_array_in_one_event(gateway: Running, alice: str) -> None:
    stream = gateway.stream(alice)
    batch = [
        {"jsonrpc": "2.0", "id": 1, "method": "ping"},
        {"jsonrpc": "2.0", "method": "notifications/initialized"},
        7,
        {
            "jsonrpc": "2.0",
            "id": "2",
            "method": "tools/call",
            "params": {"name": "list_dir", "arguments": {"path": "x"}},
        },
        {"jsonrpc": "2.0", "id": 3, "method": "nosuch"},
    ]
    assert stream.post(batch).status == 202
    answers = stream.message()
    assert [answer["id"] for answer in answers] == [1, None, "2", 3]
    assert answers[0]["result"] == {}
    assert answers[1]["error"]["code"] == -32600
    assert answers[2]["result"]["isError"] is True
    assert answers[3]["error"]["code"] == -32601


def test_no_content_type_is_required(gateway: Running, alice: str) -> None:
    stream = gateway.stream(alice)
    for kind in ("application/x-www-form-urlencoded", "text/plain", "application/json"):
        response = post(gateway, stream.endpoint, [*bearer(alice), ("Content-Type", kind)])
        assert response.status == 202
        assert stream.message()["result"] == {}


def test_streams_are_bounded_for_each_user_and_in_all(start: Start) -> None:
    gateway = start({"limits": {"sessions_per_identity": 2, "sessions": 3}})
    alice, bob = gateway.token("alice"), gateway.token("bob")
    streams = [gateway.stream(alice), gateway.stream(alice)]
    refused = gateway.connect().request("GET", "/sse", bearer(alice))
    assert (refused.status, refused.body, refused.header("retry-after")) == (429, b"Too many sessions\n", "1")
    gateway.stream(bob)
    refused = gateway.connect().request("GET", "/sse", bearer(bob))
    assert (refused.status, refused.body, refused.header("retry-after")) == (503, b"Busy\n", "1")
    streams[0].close()

    def opens() -> bool:
        connection = gateway.connect()
        connection.send("GET", "/sse", bearer(alice))
        return connection.read_head()[0] == 200

    assert eventually(opens), "the slot of a stream that ended is free again"
