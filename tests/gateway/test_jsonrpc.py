"""What `jsonrpc` makes of bytes from outside: section 4 row 6 of the wire contract, and the list under its table."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gateway import jsonrpc
from gateway.jsonrpc import (
    INVALID_REQUEST,
    Batch,
    Call,
    Fault,
    Malformed,
    Notification,
    Reply,
    RpcError,
    decode,
)


def call(identifier: str = "1", params: str = "{}") -> bytes:
    return f'{{"jsonrpc":"2.0","id":{identifier},"method":"m","params":{params}}}'.encode()


def with_arguments(arguments: str) -> bytes:
    return call(params=f'{{"name":"t","arguments":{arguments}}}')


def decoded(body: bytes) -> Call:
    message = decode(body)
    assert isinstance(message, Call)
    return message


def fault(body: bytes) -> tuple[str, int, str]:
    """id, code and message of a body that is answered with an error."""
    message = decode(body)
    assert isinstance(message, Fault)
    return message.id, message.error.code, message.error.message


# What is refused as a whole


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(b"", id="empty"),
        pytest.param(b"   \n", id="white space"),
        pytest.param(b"ping", id="no JSON"),
        pytest.param(call()[:-1], id="cut short"),
        pytest.param(call() + b"x", id="trailing garbage"),
        pytest.param(call() + b",", id="trailing comma"),
        pytest.param(call() + call(), id="two documents"),
        pytest.param(b"\xef\xbb\xbf" + call(), id="byte order mark"),
        pytest.param(call(params='{"a":"\xff"}').decode().encode("latin-1"), id="not UTF-8"),
        pytest.param(call(params='{"a":"X"}').replace(b"X", b"\xc0\x80"), id="overlong NUL"),
        pytest.param(call(params='{"a":"X"}').replace(b"X", b"\xe0\x80\xaf"), id="overlong slash"),
        pytest.param(call(params='{"a":"X"}').replace(b"X", b"\xed\xa0\x80"), id="surrogate in UTF-8"),
        pytest.param(call(params='{"a":"X"}').replace(b"X", b"\xf4\x90\x80\x80"), id="beyond U+10FFFF"),
        pytest.param(call().decode().encode("utf-16"), id="UTF-16"),
        pytest.param(call(params='{"a":"\n"}'), id="raw line feed in a string"),
        pytest.param(call(params='{"a":"\x00"}'), id="raw NUL in a string"),
        pytest.param(call(params='{"a":"\\x"}'), id="no such escape"),
        pytest.param(call(params='{"a":"\\u12"}'), id="short escape"),
        pytest.param(call(params='{"a":NaN}'), id="NaN"),
        pytest.param(call(params='{"a":Infinity}'), id="Infinity"),
        pytest.param(call(params='{"a":-Infinity}'), id="-Infinity"),
        pytest.param(call(params='{"a":1e999}'), id="1e999"),
        pytest.param(call(params='{"a":-1e999}'), id="-1e999"),
        pytest.param(call(params='{"a":1' + "0" * 400 + ".0}"), id="400 digits and a fraction"),
        pytest.param(call("1e999"), id="1e999 as id"),
        pytest.param(with_arguments("1e999"), id="1e999 as arguments"),
        pytest.param(with_arguments("[NaN]"), id="NaN in arguments"),
        pytest.param(call(params='{"a":' + "1" * 5000 + "}"), id="5000 digits"),
        pytest.param(call("1" * 5000), id="5000 digits as id"),
        pytest.param(call(params='{"a":01}'), id="leading zero"),
        pytest.param(call(params='{"a":.5}'), id="no digit before the point"),
        pytest.param(call(params='{"a":+1}'), id="plus sign"),
        pytest.param(call(params="{'a':1}"), id="single quotes"),
        pytest.param(call(params='{"a":1,}'), id="comma before the brace"),
        pytest.param(b"/* */" + call(), id="comment"),
        pytest.param(b"1", id="number at the top"),
        pytest.param(b'"ping"', id="string at the top"),
        pytest.param(b"null", id="null at the top"),
        pytest.param(b"true", id="true at the top"),
        pytest.param(b"[]", id="empty batch"),
    ],
)
def test_what_is_no_strict_json_is_malformed(body: bytes) -> None:
    with pytest.raises(Malformed):
        decode(body)


@pytest.mark.parametrize("brackets", [("[", "]"), ('{"a":', "}")])
def test_64_levels_are_accepted_and_65_are_not(brackets: tuple[str, str]) -> None:
    opening, closing = brackets
    # The message and its params are two levels; the innermost value is a number.
    assert isinstance(decode(call(params='{"a":' + opening * 62 + "1" + closing * 62 + "}")), Call)
    with pytest.raises(Malformed, match="nested deeper than 64"):
        decode(call(params='{"a":' + opening * 63 + "1" + closing * 63 + "}"))


@pytest.mark.parametrize(
    "text",
    [
        pytest.param('"' + "[" * 200 + '"', id="opening"),
        pytest.param('"' + "{" * 200 + '"', id="braces"),
        pytest.param('"' + "]" * 200 + '"', id="closing"),
        pytest.param('"\\"' + "[" * 200 + '"', id="after an escaped quote"),
        pytest.param('"\\\\\\"' + "[" * 200 + '"', id="after an escaped backslash and quote"),
        pytest.param('"\\\\","' + "[" * 200 + '"', id="after a string that ends in a backslash"),
    ],
)
def test_brackets_inside_strings_are_no_nesting(text: str) -> None:
    assert decoded(with_arguments(f"[{text}]")).arguments_fault is None


@pytest.mark.parametrize("text", ['"]"', '"\\"]"', '"\\\\"'])
def test_strings_do_not_hide_nesting(text: str) -> None:
    with pytest.raises(Malformed, match="nested deeper than 64"):
        decode(with_arguments(f"[{text}," * 63 + "1" + "]" * 63))


def test_many_brackets_side_by_side_are_no_nesting() -> None:
    assert decoded(with_arguments("[" + "[],{}," * 1000 + "[]]")).arguments_fault is None


@pytest.mark.timeout(20)
@pytest.mark.parametrize(
    "body",
    [
        pytest.param(b"[" * 65 + b'"' * 4_194_304, id="open quotes"),
        pytest.param(b"[]" * 65 + b'"' * 4_194_304, id="open quotes after brackets"),
        pytest.param(b"[" * 4_194_304, id="open brackets"),
        pytest.param(b"[]" * 2_097_152, id="brackets"),
        pytest.param(b"[" * 65 + b'"\\' * 2_097_152, id="open quotes and backslashes"),
        pytest.param(b"[" * 65 + b'\\"' * 2_097_152, id="escaped quotes outside a string"),
        pytest.param(b'["' * 2_097_152, id="brackets and quotes in turn"),
        pytest.param(b'{"a":' * 800_000, id="open objects"),
    ],
)
def test_four_mebibytes_of_hostile_structure_are_judged(body: bytes) -> None:
    """The bound is generous: what it rules out is a cost that grows faster than the body."""
    with pytest.raises(Malformed):
        decode(body)


# Duplicate members and lone surrogates


@pytest.mark.parametrize(
    ("body", "member"),
    [
        (b'{"jsonrpc":"2.0","jsonrpc":"2.0","id":1,"method":"m"}', "jsonrpc"),
        (b'{"jsonrpc":"2.0","id":1,"id":2,"method":"m"}', "id"),
        (b'{"jsonrpc":"2.0","id":1,"method":"m","\\u006dethod":"n"}', "method"),
        (b'{"jsonrpc":"2.0","id":1,"method":"m","params":{},"params":{}}', "params"),
        (b'{"jsonrpc":"2.0","method":"m","method":"m"}', "method"),
        (b'{"jsonrpc":"2.0","id":1,"result":1,"result":2}', "result"),
        (call(params='{"name":"a","name":"b"}'), "name"),
        (call(params='{"name":"a","name":"b","arguments":{}}'), "name"),
        (call(params='{"arguments":{},"arguments":{}}'), "arguments"),
        (call(params='{"_meta":{"a":1,"a":2},"arguments":{}}'), "a"),
        (call(params='{"_meta":{"a":1,"a":2}}'), "a"),
        (call(params='[{"a":1,"a":2}]'), "a"),
        (call(params='{"x":[[{"y":{"a":1,"a":1}}]]}'), "a"),
        (b"[" + call() + b',{"id":1,"id":2}]', "id"),
        (b'[[{"a":1,"a":2}]]', "a"),
        # Both places at once: what is refused as a whole comes first.
        (call(params='{"name":"a","name":"b","arguments":{"c":1,"c":2}}'), "name"),
    ],
)
def test_a_member_that_stands_twice_outside_arguments_is_malformed(body: bytes, member: str) -> None:
    with pytest.raises(Malformed, match=f'^member "{member}" stands twice'):
        decode(body)


@pytest.mark.parametrize(
    "half", ["\\ud800", "\\uD800", "\\uDBFF", "\\udfff", "\\uDc00", "\\ude00\\ud83d", "\\ud83dx\\ude00"]
)
@pytest.mark.parametrize(
    "place",
    [
        '{"jsonrpc":"2.0","id":"HALF","method":"m"}',
        '{"jsonrpc":"2.0","id":1,"method":"HALF"}',
        '{"jsonrpc":"HALF","id":1,"method":"m"}',
        '{"jsonrpc":"2.0","id":1,"method":"m","HALF":1}',
        '{"jsonrpc":"2.0","id":1,"method":"m","params":{"HALF":1}}',
        '{"jsonrpc":"2.0","id":1,"method":"m","params":{"name":"HALF","arguments":{}}}',
        '{"jsonrpc":"2.0","id":1,"method":"m","params":{"_meta":{"progressToken":"HALF"},"arguments":{}}}',
        '{"jsonrpc":"2.0","id":1,"method":"m","params":[[["HALF"]]]}',
        '{"jsonrpc":"2.0","method":"m","params":{"reason":"HALF"}}',
        '{"jsonrpc":"2.0","id":1,"result":"HALF"}',
        '["HALF"]',
        '[{"jsonrpc":"2.0","id":1,"method":"HALF"}]',
    ],
)
def test_a_lone_surrogate_outside_arguments_is_malformed(place: str, half: str) -> None:
    with pytest.raises(Malformed, match="lone surrogate"):
        decode(place.replace("HALF", half).encode())


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ('{"path":"a","path":"b"}', 'member "path" stands twice in one object - give it once'),
        ('{"x":[{"y":1,"z":2,"y":3}]}', 'member "y" stands twice in one object - give it once'),
        ('{"a\\"b":1,"a\\"b":1}', 'member "a\\"b" stands twice in one object - give it once'),
        ('{"path":"\\ud800"}', "a string holds the lone surrogate \\ud800, which is no character"),
        ('{"path":"\\uDFFF"}', "a string holds the lone surrogate \\udfff, which is no character"),
        ('{"\\uD800":1}', "a string holds the lone surrogate \\ud800, which is no character"),
        ('["ok",["\\udc00\\ud800"]]', "a string holds the lone surrogate \\udc00, which is no character"),
        ('"\\ud800"', "a string holds the lone surrogate \\ud800, which is no character"),
    ],
)
def test_the_same_inside_arguments_is_a_call_that_tells_the_tool(arguments: str, named: str) -> None:
    assert decoded(with_arguments(arguments)).arguments_fault == named
    batch = decode(b"[" + with_arguments(arguments) + b"," + call("2") + b"]")
    assert isinstance(batch, Batch)
    assert [m.arguments_fault for m in batch.messages if isinstance(m, Call)] == [named, None]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('"\\ud83d\\ude00"', "\U0001f600"),
        ('"\\uD83D\\uDE00"', "\U0001f600"),
        ('"\\uD83d\\udE00"', "\U0001f600"),
        ('"\\\\ud800"', "\\ud800"),
        ('"\\\\\\\\uD800"', "\\\\uD800"),
        ('"\U0001f600"', "\U0001f600"),
        ('"\\u2028\\u0085\\r\\n"', "\u2028\x85\r\n"),
        ('{"\\ud83d\\ude00":1}', {"\U0001f600": 1}),
        ('[{"a":1},{"a":1}]', [{"a": 1}, {"a": 1}]),
        ('{"a":{"a":{"a":1}}}', {"a": {"a": {"a": 1}}}),
    ],
)
def test_pairs_escaped_backslashes_and_equal_names_in_different_objects_are_no_fault(text: str, value: Any) -> None:
    outside = decoded(call(params=f'{{"_meta":{text},"arguments":{text}}}'))
    assert outside.params == {"_meta": value, "arguments": value}
    assert outside.arguments_fault is None


# Ids


@pytest.mark.parametrize(
    ("sent", "echoed"),
    [
        ('"1"', '"1"'),
        ("1", "1"),
        ("0", "0"),
        ('""', '""'),
        ("-7", "-7"),
        ("9007199254740993", "9007199254740993"),
        ("9" * 1024, "9" * 1024),  # the longest
        ("1.50", "1.50"),
        ("1.0", "1.0"),
        ("-0.0", "-0.0"),
        ("1e2", "1e2"),
        ("1E+2", "1E+2"),
        ("0.1000000000000000055511151231257827", "0.1000000000000000055511151231257827"),
        ("1e-999", "1e-999"),
        # Python's integers have one zero, as JavaScript's JSON has: it writes -0 as 0 too.
        ("-0", "0"),
        ('"é"', '"\\u00e9"'),
        ('"\\u00E9"', '"\\u00e9"'),
        ('"\U0001f600"', '"\\ud83d\\ude00"'),
        ('"\u2028"', '"\\u2028"'),
        ('"a\\"\\\\\\n\\/"', '"a\\"\\\\\\n/"'),
        ('"null"', '"null"'),
    ],
)
def test_an_id_is_echoed_with_its_type_and_digits_in_ascii(sent: str, echoed: str) -> None:
    assert decoded(call(sent)).id == echoed
    assert jsonrpc.result_message(decoded(call(sent)).id, b"{}") == b'{"jsonrpc":"2.0","id":%b,"result":{}}' % (
        echoed.encode("ascii")
    )


@pytest.mark.parametrize("identifier", ["null", "true", "false", "[]", "[1]", "{}", '{"a":1}'])
def test_an_id_of_another_type_is_refused_under_null(identifier: str) -> None:
    assert fault(call(identifier)) == ("null", INVALID_REQUEST, "Invalid Request: id must be a string or a number")


# What is no valid request


@pytest.mark.parametrize(
    ("body", "identifier", "why"),
    [
        (b"{}", "null", 'jsonrpc must be "2.0"'),
        (b'{"id":1,"method":"m"}', "1", 'jsonrpc must be "2.0"'),
        (b'{"jsonrpc":"1.0","id":1,"method":"m"}', "1", 'jsonrpc must be "2.0"'),
        (b'{"jsonrpc":2.0,"id":"x","method":"m"}', '"x"', 'jsonrpc must be "2.0"'),
        (b'{"jsonrpc":["2.0"],"id":1,"method":"m"}', "1", 'jsonrpc must be "2.0"'),
        (b'{"jsonrpc":"2.0","id":1.50}', "1.50", "method must be a string"),
        (b'{"jsonrpc":"2.0","id":1,"method":5}', "1", "method must be a string"),
        (b'{"jsonrpc":"2.0","id":1,"method":null}', "1", "method must be a string"),
        (b'{"jsonrpc":"2.0","id":1,"method":5,"result":1}', "1", "method must be a string"),
        (call(params="null"), "1", "params must be an object or an array"),
        (call(params='"a"'), "1", "params must be an object or an array"),
        (call(params="0"), "1", "params must be an object or an array"),
        (b'{"jsonrpc":"2.0","method":"m","params":false}', "null", "params must be an object or an array"),
        (b'{"jsonrpc":"2.0","method":7}', "null", "method must be a string"),
    ],
)
def test_an_object_that_is_no_request_is_answered_under_its_id(body: bytes, identifier: str, why: str) -> None:
    assert fault(body) == (identifier, -32600, f"Invalid Request: {why}")


@pytest.mark.parametrize("body", [b'{"jsonrpc":"2.0","method":"m"}', b'{"method":"m","jsonrpc":"2.0","params":{}}'])
def test_a_request_without_id_is_a_notification(body: bytes) -> None:
    assert decode(body) == Notification("m", {})


@pytest.mark.parametrize(
    "body",
    [
        b'{"jsonrpc":"2.0","id":1,"result":{}}',
        b'{"jsonrpc":"2.0","id":1,"result":null}',
        b'{"jsonrpc":"2.0","id":null,"error":{"code":-32600,"message":"x"}}',
        b'{"result":1}',
        b'{"jsonrpc":"2.0","id":1,"result":{"content":[]},"error":null}',
    ],
)
def test_a_response_of_the_client_is_dropped(body: bytes) -> None:
    assert decode(body) == Reply()


def test_params_may_be_left_out_or_be_an_array() -> None:
    assert decode(b'{"jsonrpc":"2.0","id":1,"method":"m"}') == Call("1", "m", {})
    assert decode(call(params="[1,2]")) == Call("1", "m", [1, 2])


def test_unknown_members_and_white_space_do_not_matter() -> None:
    body = b' \r\n\t{ "extra" : 1 , "jsonrpc" : "2.0" , "id" : 1 , "method" : "m" } \n'
    assert decode(body) == Call("1", "m", {})


# Batches


@pytest.mark.parametrize("size", [1, 2, 100])
def test_a_batch_of_1_to_100_is_accepted(size: int) -> None:
    batch = decode(b"[" + b",".join(call(str(number)) for number in range(size)) + b"]")
    assert batch == Batch(tuple(Call(str(number), "m", {}) for number in range(size)))


@pytest.mark.parametrize(("size", "why"), [(0, "a batch of 0 messages"), (101, "a batch of 101 messages")])
def test_a_batch_of_0_or_101_is_malformed(size: int, why: str) -> None:
    with pytest.raises(Malformed, match=why):
        decode(b"[" + b",".join([call()] * size) + b"]")


@pytest.mark.parametrize("member", [b"1", b'"x"', b"null", b"true", b"[]", b"[[]]"])
def test_a_batch_member_that_is_no_object_is_answered_under_null(member: bytes) -> None:
    batch = decode(b"[" + member + b"," + call() + b"]")
    assert isinstance(batch, Batch)
    refused, good = batch.messages
    assert isinstance(refused, Fault)
    assert (refused.id, refused.error.code) == ("null", -32600)
    assert good == Call("1", "m", {})


def test_a_batch_keeps_the_order_of_its_kinds() -> None:
    batch = decode(b'[{"jsonrpc":"2.0","method":"n"},{"result":1},{},' + call() + b"]")
    assert isinstance(batch, Batch)
    assert [type(message) for message in batch.messages] == [Notification, Reply, Fault, Call]


# Encoding


def test_a_result_has_its_members_in_the_contracts_order() -> None:
    assert jsonrpc.result_message('"a"', b'{"x":1}') == b'{"jsonrpc":"2.0","id":"a","result":{"x":1}}'


def test_an_error_has_its_members_in_the_contracts_order() -> None:
    assert (
        jsonrpc.error_message("7", RpcError(-32601, "Method not found: é"))
        == b'{"jsonrpc":"2.0","id":7,"error":{"code":-32601,"message":"Method not found: \\u00e9"}}'
    )


def test_an_error_carries_its_data_last() -> None:
    assert (
        jsonrpc.error_message("null", RpcError(-32602, "no", {"tools": ["a", "b"]}))
        == b'{"jsonrpc":"2.0","id":null,"error":{"code":-32602,"message":"no","data":{"tools":["a","b"]}}}'
    )


def test_a_notification_has_no_id() -> None:
    assert (
        jsonrpc.notification_message("notifications/progress", b'{"progress":1}')
        == b'{"jsonrpc":"2.0","method":"notifications/progress","params":{"progress":1}}'
    )


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ({"b": 1, "a": [True, None, 1.5]}, b'{"b":1,"a":[true,null,1.5]}'),
        ("é\u2028\u0085\r\n\U0001f600", b'"\\u00e9\\u2028\\u0085\\r\\n\\ud83d\\ude00"'),
        ("\ud800", b'"\\ud800"'),
        (9007199254740993, b"9007199254740993"),
    ],
)
def test_encoded_json_is_compact_ascii_in_the_given_order(value: Any, text: bytes) -> None:
    assert jsonrpc.encode(value) == text


@pytest.mark.parametrize("value", [math.nan, math.inf, [-math.inf]])
def test_what_json_cannot_say_is_never_encoded(value: Any) -> None:
    with pytest.raises(ValueError, match="not JSON compliant"):
        jsonrpc.encode(value)


# Whatever comes


_json_texts = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.text(st.characters(exclude_categories=["Cs"]), max_size=4), inner, max_size=4)
    ),
    max_leaves=12,
)
_pieces = st.sampled_from(
    [
        *(b"{", b"}", b"[", b"]", b",", b":", b" ", b'"', b"\\", b"\\u", b"d800", b"1", b"-", b"e9", b"null", b"\xff"),
        *(b'"jsonrpc":"2.0"', b'"id":1', b'"method":"m"', b'"params":{"arguments":', b'"a":1'),
    ]
)
# How fast an example runs depends on the machine, not on us.
_unhurried = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])


@_unhurried
@given(st.binary() | st.lists(_pieces, max_size=40).map(b"".join))
def test_any_bytes_are_a_message_or_malformed(body: bytes) -> None:
    try:
        message = decode(body)
    except Malformed:
        return
    members = message.messages if isinstance(message, Batch) else (message,)
    assert members
    for member in members:
        if isinstance(member, (Call, Fault)):
            json.loads(jsonrpc.error_message(member.id, RpcError(0, "")))


@_unhurried
@given(_json_texts, st.booleans())
def test_any_json_value_arrives_as_arguments_and_can_be_encoded_again(value: Any, ascii_only: bool) -> None:
    message = decoded(with_arguments(json.dumps(value, ensure_ascii=ascii_only)))
    assert isinstance(message.params, dict)
    assert message.arguments_fault is None
    assert json.loads(jsonrpc.encode(message.params["arguments"])) == value


def test_an_id_longer_than_an_answer_should_carry_is_refused_under_null() -> None:
    for identifier in ("9" * 1025, '"' + "a" * 1023 + '"'):
        refused = decode(call(identifier))
        assert isinstance(refused, Fault)
        assert (refused.id, refused.error.code) == ("null", -32600)
    assert isinstance(decode(call('"' + "a" * 1022 + '"')), Call)
