"""Wire contract, sections 5 and 6: the methods, and tools through the whole walk against their reference programs."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from tests.walk.client import Stream
from tests.walk.conftest import Start
from tests.walk.running import Running

ENVIRONMENT = {**os.environ, "LC_ALL": "C.UTF-8"}
HANDSHAKE = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "t", "version": "0"}}


def listing(path: str, *flags: str) -> str:
    command = ["ls", *flags, path]
    return subprocess.run(command, capture_output=True, env=ENVIRONMENT, check=True).stdout.decode("utf-8", "replace")


@pytest.fixture
def stream(gateway: Running, alice: str) -> Stream:
    return gateway.stream(alice)


# Section 5


@pytest.mark.parametrize(
    ("asked", "answered"),
    [
        ("2024-11-05", "2024-11-05"),
        ("2025-03-26", "2025-03-26"),
        ("2025-06-18", "2025-06-18"),
        ("2025-11-25", "2025-11-25"),
        ("2026-07-28", "2025-11-25"),
        ("nonsense", "2025-11-25"),
        (7, "2025-11-25"),
        (["2025-06-18"], "2025-11-25"),
        (None, "2025-11-25"),
    ],
)
def test_initialize_answers_the_asked_version_or_the_newest(stream: Stream, asked: Any, answered: str) -> None:
    result = stream.call("initialize", {**HANDSHAKE, "protocolVersion": asked})["result"]
    assert result["protocolVersion"] == answered
    assert result["capabilities"] == {"tools": {}, "resources": {}}
    assert result["serverInfo"] == {"name": "ssegate", "version": "0.1.0"}
    assert "files_list" in result["instructions"]


@pytest.mark.parametrize(
    ("method", "result"),
    [
        ("ping", {}),
        ("resources/list", {"resources": []}),
        ("resources/templates/list", {"resourceTemplates": []}),
    ],
)
def test_the_small_methods_answer(stream: Stream, method: str, result: Any) -> None:
    assert stream.call(method)["result"] == result
    assert stream.call(method, {"cursor": None})["result"] == result


TOOLS = {
    "files/list": ("files", "list"),
    "list_dir": ("files", "entries"),
    "read_files_batch": ("files", "read"),
    "read_tree": ("git", "tree"),
}


def test_tools_list_shows_every_tool_with_its_group_verb_and_hints(stream: Stream) -> None:
    result = stream.call("tools/list")["result"]
    assert list(result) == ["tools"], "one page"
    shown = {tool["name"]: tool for tool in result["tools"] if tool["tools_group"] != "trial"}
    assert {name: (tool["tools_group"], tool["linuxctl_verb"]) for name, tool in shown.items()} == TOOLS
    for tool in shown.values():
        assert tool["title"]
        assert len(tool["description"]) > 60
        assert tool["annotations"] == {
            "title": tool["title"],
            "readOnlyHint": True,
            "destructiveHint": False,
            "idempotentHint": True,
            "openWorldHint": False,
        }
        jsonschema.Draft202012Validator.check_schema(tool["inputSchema"])
        assert tool["inputSchema"]["type"] == "object"
        assert tool.get("outputSchema", {"type": "object"})["type"] == "object"
    assert stream.call("tools/list")["result"] == result, "in the same order each time"


@pytest.mark.parametrize(
    ("setting", "before", "after"),
    [
        ("auto", "files/list", "files_list"),
        ("documented", "files/list", "files/list"),
        ("model-safe", "files_list", "files_list"),
    ],
)
def test_tool_names_follow_the_client_or_the_setting(start: Start, setting: str, before: str, after: str) -> None:
    gateway = start({"tool_names": setting})
    stream = gateway.stream(gateway.token())

    def names() -> list[str]:
        return [tool["name"] for tool in stream.call("tools/list")["result"]["tools"]]

    assert before in names()
    stream.call("initialize", HANDSHAKE)
    assert after in names()
    for spelling in ("files/list", "files_list"):
        assert "isError" not in stream.tool(spelling, path="/etc"), "both spellings are accepted always"


def test_an_unknown_tool_is_told_what_there_is(stream: Stream) -> None:
    error = stream.call("tools/call", {"name": "files-list", "arguments": {}})["error"]
    assert (error["code"], error["message"]) == (-32602, "Unknown tool: files-list")
    assert set(TOOLS) <= set(error["data"]["tools"])


# Section 6


@pytest.mark.parametrize("path", ["/usr/bin", "/etc", "/dev", "/var/log"])
@pytest.mark.parametrize(
    ("arguments", "flags"), [({}, ["-l"]), ({"all": True, "human_readable": True}, ["-lah"]), ({"long": False}, ["-1"])]
)
def test_files_list_equals_ls(stream: Stream, path: str, arguments: dict[str, Any], flags: list[str]) -> None:
    before = listing(f"{path}/", *flags)
    text = stream.tool("files/list", path=path, **arguments)["content"][0]["text"]
    assert text in (before, listing(f"{path}/", *flags)), "or the directory changed meanwhile"


def test_files_list_equals_ls_for_odd_names(stream: Stream, open_directory: Path) -> None:
    odd = open_directory / "odd"
    odd.mkdir()
    for name in (b"new\nline", b"\xff\xfe", b"-l", b" ", "é".encode(), "\u2028".encode(), b"a'b\"c\\", b"\x1b[31m"):
        Path(os.fsdecode(bytes(odd) + b"/" + name)).write_bytes(name)
    assert stream.tool("files/list", path=str(odd))["content"][0]["text"] == listing(f"{odd}/", "-l")


def test_a_success_has_no_is_error_but_for_read_tree(stream: Stream) -> None:
    assert list(stream.tool("files/list", path="/etc")) == ["content"]
    assert list(stream.tool("list_dir", path="/etc")) == ["content", "structuredContent"]
    assert list(stream.tool("read_files_batch", paths=["/etc/hostname"])) == ["content", "structuredContent"]


def test_structured_results_stand_twice_and_alike(stream: Stream) -> None:
    for result in (
        stream.tool("list_dir", path="/etc", recursive=True),
        stream.tool("read_files_batch", paths=["/etc/passwd", "/nosuch"]),
        stream.tool("files/list", path="/etc", output_format="json"),
        stream.tool("read_tree", rev="nosuch"),
    ):
        text = json.loads(result["content"][0]["text"])
        assert result["structuredContent"] in (text, {"entries": text})


def test_arguments_that_do_not_fit_are_results_that_name_them(stream: Stream) -> None:
    for tool, arguments, named in (
        ("files/list", {}, "'path'"),
        ("files/list", {"path": 7}, "'path'"),
        ("files/list", {"path": "/etc", "all": "yes"}, "'all'"),
        ("list_dir", {"path": "/etc", "recursive": 1}, "'recursive'"),
        ("read_files_batch", {"paths": "/etc/passwd"}, "'paths'"),
        ("read_files_batch", {"paths": [None]}, "'paths[0]'"),
    ):
        result = stream.tool(tool, **arguments)
        assert result["isError"] is True
        assert named in result["content"][0]["text"]


@pytest.mark.parametrize(
    "inside", [b'{"path":"/etc","path":"/"}', b'{"path":"\\ud800"}', b'{"path":"/etc","x":{"\\udfff":1}}']
)
@pytest.mark.parametrize("tool", [b"list_dir", b"files/list", b"read_tree"])
def test_a_double_member_or_lone_surrogate_inside_arguments_is_the_tool_s_business(
    stream: Stream, tool: bytes, inside: bytes
) -> None:
    body = b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"%s","arguments":%s}}' % (tool, inside)
    assert stream.post(body).status == 202
    result = stream.message()["result"]
    assert result["isError"] is True
    text = result["content"][0]["text"]
    assert ("stands twice" in text) or ("lone surrogate" in text)
    if tool == b"read_tree":
        assert result["structuredContent"]["error"]["code"] == "E_INVALID_ARG"


def test_a_tool_with_a_bug_is_an_internal_error_whose_text_stays_in_the_log(gateway: Running, stream: Stream) -> None:
    error = stream.call("tools/call", {"name": "trial/run", "arguments": {"do": "bug"}})["error"]
    assert error == {"code": -32603, "message": "Internal error"}
    assert "AssertionError: a bug of the tool, with \N{SNOWMAN}" in gateway.log
    assert stream.tool("trial/run", do="answer")["content"][0]["text"] == "done"


def test_progress_is_reported_in_order_and_not_too_often(stream: Stream) -> None:
    params = {"name": "trial/run", "arguments": {"do": "report", "seconds": 1.2}, "_meta": {"progressToken": "é"}}
    stream.post({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params})
    messages = [stream.message()]
    while "id" not in messages[-1]:
        messages.append(stream.message())
    reports = [message["params"] for message in messages[:-1]]
    assert 1 <= len(reports) <= 5, "at most 4 a second"
    assert all(message["method"] == "notifications/progress" for message in messages[:-1])
    assert {report["progressToken"] for report in reports} == {"é"}
    done = [report["progress"] for report in reports]
    assert done == sorted(set(done))
    assert stream.call("ping", identifier="after")["id"] == "after"


def test_without_a_progress_token_nothing_is_reported(stream: Stream) -> None:
    assert stream.tool("trial/run", do="report", seconds=0.5)["content"][0]["text"] == "done"


def test_an_initialized_session_gets_no_event_over_a_million_bytes(stream: Stream) -> None:
    stream.call("initialize", HANDSHAKE)
    for size in (999_000, 999_900, 999_990, 1_000_100, 2_000_000):
        body = {"name": "trial/run", "arguments": {"do": "answer", "size": size}}
        stream.post({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": body})
        frame = stream.frame()
        assert len(frame) <= 1_000_000
        result = json.loads(frame.split(b"data: ")[1])["result"]
        if "isError" in result:
            assert size > 999_800
            assert "is over this session's limit of 999," in result["content"][0]["text"]
            assert result["content"][0]["text"].endswith("ask for less")
        else:
            assert len(result["content"][0]["text"]) == size


def test_a_batch_of_an_initialized_session_stays_below_a_million_bytes_as_a_whole(stream: Stream) -> None:
    stream.call("initialize", HANDSHAKE)
    call = {"name": "trial/run", "arguments": {"do": "answer", "size": 400_000}}
    stream.post([{"jsonrpc": "2.0", "id": n, "method": "tools/call", "params": call} for n in range(3)])
    frame = stream.frame()
    assert len(frame) <= 1_000_000
    assert all(answer["result"]["isError"] for answer in json.loads(frame.split(b"data: ")[1]))


def test_a_session_that_never_initialized_may_have_more(start: Start) -> None:
    gateway = start({"limits": {"result": 5_000_000}})
    stream = gateway.stream(gateway.token())
    assert len(stream.tool("trial/run", do="answer", size=4_000_000)["content"][0]["text"]) == 4_000_000
    refused = stream.tool("trial/run", do="answer", size=5_000_000)
    assert refused["isError"] is True
    assert "over this session's limit of" in refused["content"][0]["text"]


# read_tree


@pytest.fixture(scope="module")
def repository(open_directory: Path) -> Path:
    """This repository, or what stands in for it where the tests run outside of a checkout: a clone in any case, which
    every account can read."""
    path = open_directory / "repository"
    source = Path(__file__).parents[2]
    subprocess.run(["git", "clone", "-q", "--no-local", str(source), str(path)], check=True)
    subprocess.run(["git", "-C", str(path), "checkout", "-q", "-B", "main"], check=True)
    return path


def test_pages_of_read_tree_joined_equal_git_ls_tree(start: Start, repository: Path) -> None:
    gateway = start({"repository": str(repository), "limits": {"rate": 0}})
    stream = gateway.stream(gateway.token())
    entries: list[dict[str, Any]] = []
    arguments: dict[str, Any] = {"rev": "main", "depth": 64, "limit": 7}
    pages = 0
    while True:
        envelope = stream.tool("read_tree", **arguments)["structuredContent"]
        page = envelope["result"]
        entries += page["entries"]
        pages += 1
        if not page["truncated"]:
            break
        assert len(page["entries"]) == 7
        arguments["cursor"] = page["cursor"]
    kinds = {"100644": "file", "100755": "file", "120000": "symlink", "040000": "dir", "160000": "submodule"}
    expected = []
    command = ["git", "-C", str(repository), "ls-tree", "-r", "-t", "-l", "-z", "main"]
    for row in subprocess.run(command, capture_output=True, check=True).stdout.decode().split("\0")[:-1]:
        head, name = row.split("\t")
        mode, _, identifier, size = head.split()
        sizes = {} if size == "-" else {"size": int(size)}
        expected.append({"name": name, "kind": kinds[mode], **sizes, "id": identifier})
    assert entries == expected
    assert pages == -(-len(expected) // 7)
    commit = subprocess.run(
        ["git", "-C", str(repository), "rev-parse", "main"], capture_output=True, check=True, text=True
    ).stdout.strip()
    assert list(envelope) == ["ok", "op", "api", "result", "meta"]
    assert envelope["meta"]["resolved"] == {"main": commit}
    assert envelope["meta"]["auth"] == "bearer"


def test_read_tree_outside_a_repository_says_so_and_the_gateway_serves_on(start: Start, open_directory: Path) -> None:
    gateway = start({"repository": str(open_directory / "nosuch.git")})
    stream = gateway.stream(gateway.token())
    result = stream.tool("read_tree", rev="main")
    assert result["isError"] is True
    assert result["structuredContent"]["error"]["code"] == "E_NOT_A_REPO"
    assert "isError" not in stream.tool("list_dir", path="/etc")


def test_roots_and_the_gateway_s_own_directory_bound_every_tool(start: Start, open_directory: Path) -> None:
    inside = open_directory / "inside"
    inside.mkdir()
    (inside / "seen.txt").write_text("seen")
    (inside / "way-out").symlink_to("/etc")
    gateway = start({"roots": [str(inside)]})
    stream = gateway.stream(gateway.token())
    assert stream.tool("list_dir", path=str(inside))["structuredContent"] == {"entries": ["seen.txt", "way-out"]}
    for path in ("/etc", f"{inside}/way-out", f"{inside}/..", str(gateway.directory)):
        assert stream.tool("list_dir", path=path)["isError"] is True
        assert stream.tool("files/list", path=path)["isError"] is True
        read = stream.tool("read_files_batch", paths=[f"{path}/passwd"])["structuredContent"]["results"]
        assert read[f"{path}/passwd"]["status"] == "error"
