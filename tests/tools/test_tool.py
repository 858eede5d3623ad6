"""`tools._tool`: how a tool is declared, called and answered."""

from __future__ import annotations

import json
from typing import Annotated, Any, Literal

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tools import Context, Result, ToolError, load
from tools._tool import argument_sentence, bounded, call, encode, structured, tool

ASCII = st.characters(max_codepoint=127)


class Inner(msgspec.Struct, frozen=True):
    x: int


class Wanted(msgspec.Struct, frozen=True):
    path: Annotated[str, msgspec.Meta(description="Absolute path.")]
    deep: Annotated[bool, msgspec.Meta(description="true or false.\nMore about it.")] = False
    count: Annotated[int, msgspec.Meta(description="From 1 to 9", ge=1, le=9)] = 1
    sort: Annotated[Literal["a", "b"] | None, msgspec.Meta(description="a or b")] = None
    words: Annotated[list[str], msgspec.Meta(description="Words")] = []
    inner: Inner | None = None


@tool("some/tool", title="Title", group="files", verb="try", description="What it does.", smaller="ask for less")
def some_tool(arguments: Wanted, context: Context) -> Result:
    if arguments.path == "fail":
        raise ToolError("it failed - try another")
    if arguments.path == "fail with more":
        raise ToolError("it failed", {"error": {"code": "x"}})
    return structured({"path": arguments.path, "deep": arguments.deep, "limit": context.limit})


def test_a_call_hands_typed_arguments_and_the_context_to_the_function() -> None:
    result = call(some_tool, {"path": "/a", "deep": True, "unknown": 1}, None, Context(limit=5))
    assert result == Result('{"path":"/a","deep":true,"limit":5}', {"path": "/a", "deep": True, "limit": 5})


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({}, "argument 'path' is required: Absolute path"),
        ([], "arguments must be a JSON object"),
        (None, "arguments must be a JSON object"),
        ("x", "arguments must be a JSON object"),
        ({"path": 5}, "argument 'path' must be string, not integer; Absolute path"),
        ({"path": None}, "argument 'path' must be string, not null; Absolute path"),
        ({"path": "/", "deep": 1}, "argument 'deep' must be boolean, not integer; true or false"),
        ({"path": "/", "deep": "yes"}, "argument 'deep' must be boolean, not string; true or false"),
        ({"path": "/", "deep": None}, "argument 'deep' must be boolean, not null; true or false"),
        ({"path": "/", "count": 0}, "argument 'count' must be integer >= 1; From 1 to 9"),
        ({"path": "/", "count": True}, "argument 'count' must be integer, not boolean; From 1 to 9"),
        ({"path": "/", "sort": "c"}, "argument 'sort': Invalid enum value 'c'; a or b"),
        ({"path": "/", "sort": 1}, "argument 'sort' must be string or null, not integer; a or b"),
        ({"path": "/", "words": "x"}, "argument 'words' must be array, not string; Words"),
        ({"path": "/", "words": ["x", 1]}, "argument 'words[1]' must be string, not integer; Words"),
    ],
)
def test_arguments_that_do_not_fit_are_an_error_that_names_argument_value_and_rule(
    arguments: Any, sentence: str
) -> None:
    assert call(some_tool, arguments, None, Context()) == Result(sentence, is_error=True)


def test_what_the_json_layer_found_wrong_is_answered_as_any_bad_argument() -> None:
    result = call(some_tool, {"path": "/"}, "argument 'path' stands twice", Context())
    assert result == Result("argument 'path' stands twice", is_error=True)


def test_a_tool_may_answer_bad_arguments_in_its_own_way() -> None:
    def fault(text: str, context: Context) -> Result:
        return structured({"ok": False, "why": text, "limit": context.limit}, is_error=True)

    @tool("t", title="T", group="g", verb="v", description="d", smaller="s", fault=fault)
    def another(arguments: Inner, context: Context) -> Result:
        return Result(f"{arguments.x} {context.limit}")

    result = call(another, {"x": "1"}, None, Context(limit=7))
    assert result.structured == {
        "ok": False,
        "why": "argument 'x' must be integer, not string; see the tool's inputSchema",
        "limit": 7,
    }


@pytest.mark.parametrize(
    ("path", "result"),
    [
        ("fail", Result("it failed - try another", None, is_error=True)),
        ("fail with more", Result("it failed", {"error": {"code": "x"}}, is_error=True)),
    ],
)
def test_a_tool_error_is_a_result(path: str, result: Result) -> None:
    assert call(some_tool, {"path": path}, None, Context()) == result


def test_words_of_msgspec_without_a_known_form_are_kept() -> None:
    assert argument_sentence("Something new - at `$.path`", {}) == (
        "argument 'path': Something new; see the tool's inputSchema"
    )


def test_the_descriptor_has_a_schema_that_stands_alone_and_tells_that_the_tool_only_reads() -> None:
    descriptor = some_tool.descriptor("some_tool")
    assert descriptor["name"] == "some_tool"
    assert descriptor["inputSchema"]["type"] == "object"
    assert descriptor["inputSchema"]["required"] == ["path"]
    assert descriptor["inputSchema"]["properties"]["path"] == {"type": "string", "description": "Absolute path."}
    assert "$ref" not in json.dumps(descriptor)
    assert "outputSchema" not in descriptor
    assert descriptor["annotations"] == {
        "title": "Title",
        "readOnlyHint": True,
        "destructiveHint": False,
        "idempotentHint": True,
        "openWorldHint": False,
    }
    assert (descriptor["tools_group"], descriptor["linuxctl_verb"]) == ("files", "try")


def test_a_name_with_a_slash_has_a_form_for_those_who_allow_none() -> None:
    assert some_tool.safe_name == "some_tool"


@pytest.mark.parametrize(
    ("result", "members"),
    [
        (Result("x"), {"content": [{"type": "text", "text": "x"}]}),
        (Result("x", is_error=True), {"content": [{"type": "text", "text": "x"}], "isError": True}),
        (Result("x", is_error=False), {"content": [{"type": "text", "text": "x"}], "isError": False}),
        (
            structured({"a": "日\u2028"}),
            {"content": [{"type": "text", "text": '{"a":"日\u2028"}'}], "structuredContent": {"a": "日\u2028"}},
        ),
    ],
)
def test_the_finished_result_has_content_then_structured_content_then_is_error(
    result: Result, members: dict[str, Any]
) -> None:
    encoded = encode(result)
    assert encoded.isascii()
    assert list(json.loads(encoded).items()) == list(members.items())


@settings(deadline=None)
@given(st.dictionaries(st.text(), st.text()) | st.dictionaries(st.text(ASCII), st.text(ASCII)))
def test_the_text_of_a_structured_result_is_its_structured_content(value: dict[str, Any]) -> None:
    encoded = encode(structured(value))
    assert encoded.isascii()
    assert len(encoded.splitlines()) <= 1
    decoded = json.loads(encoded)
    assert decoded["structuredContent"] == value
    assert json.loads(decoded["content"][0]["text"]) == value


def test_a_result_of_just_the_limit_passes_and_one_byte_more_is_an_error_that_says_the_way_out() -> None:
    result = Result("x" * 2000)
    size = len(encode(result))
    assert bounded(some_tool, result, Context(limit=size)) == encode(result)
    refused = json.loads(bounded(some_tool, result, Context(limit=size - 1)))
    assert refused["isError"] is True
    assert refused["content"][0]["text"] == (
        f"result of {size:,} bytes is over this session's limit of {size - 1:,} bytes - ask for less"
    )


def test_the_package_finds_its_tools_and_each_is_described() -> None:
    found = load()
    assert {"list_dir", "read_files_batch"} <= set(found)
    assert list(found) == sorted(found)
    for name, each in found.items():
        assert each.name == name
        assert each.title
        assert each.description
        assert each.smaller
