"""`read_tree` as a client sees it: schemas, envelope, the seed's example, argument faults."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import msgspec
import pytest

from tests.tools.read_tree_stores import TOOL, Git, ask, new, refusal
from tools._tool import Context, call, encode

SEED = Path(__file__).resolve().parents[3] / "shared" / "seeds" / "003_87e3b1304b3c3d13.txt"

# The seed's input schema without its descriptions.
SEED_SCHEMA: dict[str, Any] = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "properties": {
        "cursor": {"type": ["string", "null"]},
        "depth": {"default": 1, "format": "uint32", "maximum": 64, "minimum": 1, "type": "integer"},
        "limit": {"default": 250, "format": "uint", "minimum": 1, "type": "integer"},
        "path": {"type": ["string", "null"]},
        "rev": {"type": "string"},
    },
    "required": ["rev"],
    "title": "ReadTreeReq",
    "type": "object",
}


def undescribed(schema: dict[str, Any]) -> dict[str, Any]:
    bare = {name: value for name, value in schema.items() if name != "description"}
    bare["properties"] = {
        name: {member: value for member, value in property_.items() if member != "description"}
        for name, property_ in schema["properties"].items()
    }
    return bare


def descriptions(schema: dict[str, Any]) -> dict[str, str]:
    return {name: property_["description"] for name, property_ in schema["properties"].items()}


@pytest.fixture(scope="module")
def seed_store(tmp_path_factory: pytest.TempPathFactory) -> Git:
    """The store of the seed's example: a README of seven bytes and a directory."""
    git = new(tmp_path_factory.mktemp("seed") / "store")
    git.write("README.md", b"# demo\n")
    git.write("src/main.c", b"int main;\n")
    git.commit()
    return git


def test_the_input_schema_is_the_seeds_member_by_member() -> None:
    assert undescribed(TOOL.input_schema) == SEED_SCHEMA


@pytest.mark.skipif(not SEED.exists(), reason="the seeds are not beside this repository")
def test_the_seed_itself_says_the_same_in_other_words() -> None:
    seed = json.loads(SEED.read_text().split("```json\n", 1)[1].split("```", 1)[0])
    assert undescribed(TOOL.input_schema) == undescribed(seed)
    ours, theirs = descriptions(TOOL.input_schema), descriptions(seed)
    assert ours.keys() == theirs.keys()
    for name, words in ours.items():
        assert words not in theirs[name]
        assert theirs[name] not in words


def test_the_arguments_type_has_the_types_defaults_and_bounds_of_the_schema() -> None:
    (_, components) = msgspec.json.schema_components([TOOL.arguments])
    made = components["ReadTreeReq"]
    for name, declared in SEED_SCHEMA["properties"].items():
        types = [part["type"] for part in made["properties"][name].get("anyOf", [made["properties"][name]])]
        assert types == ([declared["type"]] if isinstance(declared["type"], str) else declared["type"])
        for bound in ("minimum", "maximum"):
            assert made["properties"][name].get(bound) == declared.get(bound)
        if "default" in declared:
            assert made["properties"][name]["default"] == declared["default"]
    assert made["required"] == ["rev"]


def test_both_schemas_are_valid_json_schema() -> None:
    jsonschema.Draft202012Validator.check_schema(TOOL.input_schema)
    assert TOOL.output_schema is not None
    jsonschema.Draft202012Validator.check_schema(TOOL.output_schema)
    assert TOOL.output_schema["type"] == "object"


def test_the_descriptor_names_group_verb_and_the_siblings_to_use_instead() -> None:
    entry = TOOL.descriptor("read_tree")
    assert (entry["tools_group"], entry["linuxctl_verb"]) == ("git", "tree")
    assert "list_dir" in entry["description"]
    assert "files/list" in entry["description"]


def test_the_seeds_example_gives_the_seeds_answer(seed_store: Git) -> None:
    result = ask(seed_store, rev="main")
    whole = json.loads(encode(result))
    assert list(whole) == ["content", "structuredContent", "isError"]
    assert whole["isError"] is False
    assert whole["structuredContent"] == json.loads(whole["content"][0]["text"])
    # Members in the order of the seed's text block, values written out.
    src, commit = seed_store("rev-parse", "main:src", "main").split()
    elapsed = whole["structuredContent"]["meta"]["elapsed_ms"]
    assert result.text == (
        '{"ok":true,"op":"read_tree","api":1,"result":{"entries":['
        '{"name":"README.md","kind":"file","size":7,"id":"fc72a5c1094e203eefcd1c710f060957ebbbaac4"},'
        f'{{"name":"src","kind":"dir","id":"{src}"}}],"truncated":false}},'
        f'"meta":{{"repo":"{seed_store.directory}","elapsed_ms":{elapsed},'
        f'"resolved":{{"main":"{commit}"}},"auth":"bearer"}}}}'
    )


def test_elapsed_ms_is_a_whole_number(seed_store: Git) -> None:
    result = ask(seed_store, rev="main")
    assert result.structured is not None
    assert type(result.structured["meta"]["elapsed_ms"]) is int


def test_a_failure_has_error_in_place_of_result_and_what_is_known_in_meta(seed_store: Git) -> None:
    result = ask(seed_store, rev="nope")
    assert result.is_error is True
    assert result.structured is not None
    assert list(result.structured) == ["ok", "op", "api", "error", "meta"]
    assert list(result.structured["error"]) == ["code", "message"]
    assert result.structured["error"]["code"] == "E_NOT_FOUND"
    assert list(result.structured["meta"]) == ["repo", "elapsed_ms", "resolved", "auth"]
    assert result.structured["meta"]["repo"] == str(seed_store.directory)
    assert result.structured["meta"]["resolved"] == {}
    assert json.loads(result.text) == result.structured


def test_a_failure_after_the_revision_was_found_says_what_it_resolved_to(seed_store: Git) -> None:
    result = ask(seed_store, rev="main", path="nope")
    assert result.structured is not None
    assert result.structured["meta"]["resolved"] == {"main": seed_store("rev-parse", "main")}


def test_a_cursor_stands_last_and_only_beside_truncated(seed_store: Git) -> None:
    whole, first = ask(seed_store, rev="main").structured, ask(seed_store, rev="main", limit=1).structured
    assert whole is not None
    assert first is not None
    assert list(whole["result"]) == ["entries", "truncated"]
    assert list(first["result"]) == ["entries", "truncated", "cursor"]


@pytest.mark.parametrize(
    "arguments",
    [
        {"rev": "main"},
        {"rev": "main", "limit": 1, "depth": 3},
        {"rev": "main", "path": "src"},
        {"rev": "main", "path": "README.md"},
        {"rev": "nope"},
        {"rev": 5},
        {},
    ],
    ids=str,
)
def test_the_output_schema_is_true_of_successes_and_failures(seed_store: Git, arguments: dict[str, Any]) -> None:
    assert TOOL.output_schema is not None
    jsonschema.validate(ask(seed_store, **arguments).structured, TOOL.output_schema)
    jsonschema.validate(ask(None, **arguments).structured, TOOL.output_schema)


@pytest.mark.parametrize(
    "change",
    [
        {"ok": False},
        {"error": {"code": "E_INTERNAL", "message": "m"}},
        {"extra": 1},
        {"result": {"entries": [], "truncated": True}},
        {"result": {"entries": [], "truncated": False, "cursor": "a"}},
        {"result": {"entries": [{"name": "a", "kind": "file", "id": "f" * 39}], "truncated": False}},
    ],
    ids=str,
)
def test_the_output_schema_refuses_what_is_no_answer(seed_store: Git, change: dict[str, Any]) -> None:
    assert TOOL.output_schema is not None
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({**(ask(seed_store, rev="main").structured or {}), **change}, TOOL.output_schema)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({}, "argument 'rev' is required"),
        ({"rev": 1}, "argument 'rev' must be string, not integer"),
        ({"rev": None}, "argument 'rev' must be string, not null"),
        ({"rev": ["main"]}, "argument 'rev' must be string, not array"),
        ({"rev": "main", "path": 5}, "argument 'path' must be string or null, not integer"),
        ({"rev": "main", "cursor": {}}, "argument 'cursor' must be string or null, not object"),
        ({"rev": "main", "depth": 0}, "argument 'depth' must be integer >= 1"),
        ({"rev": "main", "depth": 65}, "argument 'depth' must be integer <= 64"),
        ({"rev": "main", "depth": -1}, "argument 'depth' must be integer >= 1"),
        ({"rev": "main", "depth": "1"}, "argument 'depth' must be integer, not string"),
        ({"rev": "main", "depth": True}, "argument 'depth' must be integer, not boolean"),
        ({"rev": "main", "depth": 1.5}, "argument 'depth' must be integer, not number"),
        ({"rev": "main", "depth": None}, "argument 'depth' must be integer, not null"),
        ({"rev": "main", "limit": 0}, "argument 'limit' must be integer >= 1"),
        ({"rev": "main", "limit": -(2**70)}, "argument 'limit' must be integer >= 1"),
        ({"rev": "main", "limit": None}, "argument 'limit' must be integer, not null"),
    ],
    ids=str,
)
def test_arguments_that_do_not_fit_are_named(seed_store: Git, arguments: dict[str, Any], words: str) -> None:
    code, message = refusal(seed_store, **arguments)
    assert code == "E_INVALID_ARG"
    assert message.startswith(words)


@pytest.mark.parametrize("arguments", [[], "main", None, 7], ids=repr)
def test_arguments_that_are_no_object_are_refused_in_the_envelope(seed_store: Git, arguments: Any) -> None:
    result = call(TOOL, arguments, None, Context(repository=str(seed_store.directory)))
    assert result.structured is not None
    assert result.structured["error"] == {"code": "E_INVALID_ARG", "message": "arguments must be a JSON object"}


def test_a_member_that_stands_twice_is_refused_in_the_envelope(seed_store: Git) -> None:
    words = "argument 'rev' is given twice"  # what the JSON layer hands over
    result = call(TOOL, {"rev": "main"}, words, Context(repository=str(seed_store.directory)))
    assert result.is_error is True
    assert result.structured is not None
    assert result.structured["error"] == {"code": "E_INVALID_ARG", "message": words}


@pytest.mark.parametrize(
    "arguments",
    [{"limit": 2**70}, {"limit": 2**31, "depth": 64}, {"path": None, "cursor": None}, {"unknown": [1], "Rev": 2}],
    ids=str,
)
def test_huge_limits_nulls_and_unknown_members_are_fine(seed_store: Git, arguments: dict[str, Any]) -> None:
    result = ask(seed_store, rev="main", **arguments)
    assert result.structured is not None
    assert result.structured["ok"]
    assert not result.structured["result"]["truncated"]
