"""`list_dir`: names and relative paths, against the real file system and `find`."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import resource
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.tools._fuse import mounted
from tests.tools._unprivileged import answer, public_directory
from tools import Context, load
from tools._tool import bounded, call
from tools._walk import OPEN_LEVELS

LIST_DIR = load()["list_dir"]


@pytest.fixture
def place() -> Iterator[Path]:
    with public_directory() as directory:
        yield directory


def listed(path: Path | str, recursive: bool | None = None, context: Context | None = None) -> Any:
    """The structured result, which is what the schema says and what stands in the text."""
    context = context or Context()
    arguments = {"path": str(path)} | ({} if recursive is None else {"recursive": recursive})
    whole = json.loads(bounded(LIST_DIR, call(LIST_DIR, arguments, None, context), context))
    structured = whole["structuredContent"]
    assert LIST_DIR.output_schema is not None
    jsonschema.validate(structured, LIST_DIR.output_schema)
    assert json.loads(whole["content"][0]["text"]) == structured
    assert whole.get("isError") == (True if "error" in structured else None)
    return structured


def entries(path: Path | str, recursive: bool | None = None, context: Context | None = None) -> Any:
    found = listed(path, recursive, context)
    assert list(found) == ["entries"]
    return found["entries"]


def by_find(directory: Path) -> list[str]:
    """Everything below, from find(1); sorted by components, which is: a directory first, then what is in it."""
    found = subprocess.run(
        ["find", directory, "-mindepth", "1", "-printf", "%P\\0"], check=True, capture_output=True
    ).stdout
    return [path.decode() for path in sorted(found.split(b"\0")[:-1], key=lambda path: path.split(b"/"))]


def make(directory: Path, *paths: str) -> None:
    """`a/b/` makes directories, `a/b` a file, `a -> b` a link."""
    for path in paths:
        name, _, target = path.partition(" -> ")
        place = directory / name
        place.parent.mkdir(parents=True, exist_ok=True)
        if target:
            place.symlink_to(target)
        elif name.endswith("/"):
            place.mkdir(parents=True, exist_ok=True)
        else:
            place.touch()


def deep(directory: Path, depth: int, *, name: str, beside: str | None = None) -> None:
    """A chain of `depth` directories, each with the directory `beside`, which holds the file `f`; by descriptors."""
    at = os.open(directory, os.O_RDONLY)
    for _ in range(depth):
        if beside:
            os.mkdir(beside, dir_fd=at)
            os.close(os.open(f"{beside}/f", os.O_CREAT | os.O_WRONLY, dir_fd=at))
        os.mkdir(name, dir_fd=at)
        following = os.open(name, os.O_RDONLY, dir_fd=at)
        os.close(at)
        at = following
    os.close(at)


# What is listed


def test_the_example_of_the_seed_lists_names_or_with_recursive_all_below(place: Path) -> None:
    make(place, "src/index.ts", "src/utils/helpers.ts", "src/types.ts")
    assert entries(place / "src") == ["index.ts", "types.ts", "utils"]
    assert entries(place / "src", recursive=False) == ["index.ts", "types.ts", "utils"]
    assert entries(place / "src", recursive=True) == ["index.ts", "types.ts", "utils", "utils/helpers.ts"]


@pytest.mark.parametrize("recursive", [False, True])
def test_an_empty_directory_has_no_entries(place: Path, recursive: bool) -> None:
    assert entries(place, recursive) == []


def test_hidden_files_are_listed_and_the_directory_itself_and_its_parent_are_not(place: Path) -> None:
    make(place, ".git/config", ".hidden", "..odd", "seen")
    assert entries(place) == ["..odd", ".git", ".hidden", "seen"]
    assert entries(place, recursive=True) == ["..odd", ".git", ".git/config", ".hidden", "seen"]


def test_names_stand_in_byte_order_whatever_the_language(place: Path) -> None:
    names = ["B", "a", "_", "Z", "é", "10", "9", "日本", "\U0001f600", "\uff5e", "a b", "a-b", "~"]
    make(place, *names)
    expected = ["10", "9", "B", "Z", "_", "a", "a b", "a-b", "~", "é", "日本", "\uff5e", "\U0001f600"]
    assert entries(place) == expected
    assert entries(place, recursive=True) == expected


def test_each_directory_is_followed_by_its_contents_in_the_order_of_its_names(place: Path) -> None:
    make(place, "a-b", "a.txt", "a/z", "a/b/c", "a/b/d/", "a0", "b/")
    assert entries(place, recursive=True) == ["a", "a/b", "a/b/c", "a/b/d", "a/z", "a-b", "a.txt", "a0", "b"]
    assert entries(place, recursive=True) == by_find(place)


def test_everything_that_has_a_name_is_listed_whatever_it_is(place: Path) -> None:
    make(place, "file", "dir/", "link -> file", "dangling -> nowhere", "loop -> loop")
    os.mkfifo(place / "fifo")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(place / "socket"))
        assert entries(place, recursive=True) == ["dangling", "dir", "fifo", "file", "link", "loop", "socket"]


def test_links_to_directories_are_listed_and_not_entered_so_loops_end(place: Path) -> None:
    make(place, "a/file", "a/up -> ..", "b -> a", "self -> .", "root -> /")
    assert entries(place, recursive=True) == ["a", "a/file", "a/up", "b", "root", "self"]


def test_the_directory_asked_for_may_itself_be_a_link_or_spelled_with_dots_and_slashes(place: Path) -> None:
    make(place, "a/b/file", "link -> a")
    for spelling in ("a", "a/", "a//", "a/.", "a/b/..", "link", "link/", "link/b/../../a"):
        assert entries(f"{place}/{spelling}") == ["b"]
        assert entries(f"{place}/{spelling}", recursive=True) == ["b", "b/file"]


@pytest.mark.parametrize("directory", ["/usr/share", "/proc/self", "/sys/class", "/dev"])
def test_directories_of_every_kind_are_listed_as_find_does(directory: str) -> None:
    stable = [name for name in sorted(os.listdir(directory)) if not name.startswith(("pts", "shm"))]
    assert [name for name in entries(directory) if not name.startswith(("pts", "shm"))] == stable


def test_a_big_real_tree_is_listed_as_find_does() -> None:
    tree = Path(os.__file__).parent / "email"
    assert entries(tree, recursive=True) == by_find(tree)


NAMES = st.binary(min_size=1, max_size=20).filter(lambda name: not {0, 47} & set(name) and name not in (b".", b".."))


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(NAMES, NAMES), max_size=8))
def test_names_of_any_bytes_are_listed_and_can_be_had_back(pairs: list[tuple[bytes, bytes]]) -> None:
    with tempfile.TemporaryDirectory() as directory:
        top = os.fsencode(directory)
        for outer, inner in pairs:
            os.makedirs(os.path.join(top, outer), exist_ok=True)
            os.makedirs(os.path.join(top, outer, inner), exist_ok=True)
        expected = sorted({(outer,) for outer, _ in pairs} | set(pairs))
        found = listed(directory, recursive=True)
        exact = {each["entry"]: bytes.fromhex(each["name_hex"]) for each in found.get("undecodable", [])}
        assert [exact.get(i, entry.encode()) for i, entry in enumerate(found["entries"])] == [
            b"/".join(parts) for parts in expected
        ]


def test_names_that_are_not_utf8_show_replacements_and_their_bytes_stand_beside(place: Path) -> None:
    top = os.fsencode(place)
    for name in (b"plain", b"a\xff", b"a\xfe", b"\xe6\x97"):
        os.mkdir(os.path.join(top, name))
    (place / os.fsdecode(b"a\xff") / "inner").touch()
    assert listed(place) == {
        "entries": ["a\ufffd", "a\ufffd", "plain", "\ufffd"],
        "undecodable": [
            {"entry": 0, "name_hex": "61fe"},
            {"entry": 1, "name_hex": "61ff"},
            {"entry": 3, "name_hex": "e697"},
        ],
    }
    assert listed(place, recursive=True) == {
        "entries": ["a\ufffd", "a\ufffd", "a\ufffd/inner", "plain", "\ufffd"],
        "undecodable": [
            {"entry": 0, "name_hex": "61fe"},
            {"entry": 1, "name_hex": "61ff"},
            {"entry": 2, "name_hex": b"a\xff/inner".hex()},
            {"entry": 4, "name_hex": "e697"},
        ],
    }


def test_control_characters_in_names_are_kept(place: Path) -> None:
    make(place, "new\nline", "esc\x1b[31m", "u\u2028v", "\u202e")
    assert entries(place) == ["esc\x1b[31m", "new\nline", "u\u2028v", "\u202e"]


# What cannot be listed


@pytest.mark.parametrize("recursive", [False, True])
@pytest.mark.parametrize(
    ("spelling", "code", "sentence"),
    [
        ("missing", "not-found", "Directory not found: PATH"),
        ("missing/below", "not-found", "Directory not found: PATH"),
        ("dangling", "not-found", "Directory not found: PATH"),
        ("file", "not-a-dir", "Not a directory: PATH"),
        ("file/", "not-a-dir", "Not a directory: PATH"),
        ("to-file", "not-a-dir", "Not a directory: PATH"),
        ("fifo", "not-a-dir", "Not a directory: PATH"),
        ("socket", "not-a-dir", "Not a directory: PATH"),
        ("file/below", "fs-error", "Not a directory: PATH"),
        ("loop", "fs-error", "Too many levels of symbolic links: PATH"),
        ("x" * 256, "fs-error", "File name too long: PATH"),
        ("x/" * 2100, "fs-error", "File name too long: PATH"),
    ],
)
def test_a_failure_has_the_code_of_the_seed_and_names_the_path(
    place: Path, spelling: str, code: str, sentence: str, recursive: bool
) -> None:
    make(place, "file", "to-file -> file", "dangling -> nowhere", "loop -> loop")
    os.mkfifo(place / "fifo")
    path = f"{place}/{spelling}"
    shown = path if len(path) <= 200 else path[:199] + "…"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(place / "socket"))
        assert listed(path, recursive) == {"error": {"code": code, "message": sentence.replace("PATH", shown)}}


@pytest.mark.parametrize(
    ("path", "sentence"),
    [
        ("", "path is empty - give an absolute path, such as /var/log"),
        ("src", "path src is relative - give an absolute path, such as /src"),
        ("/a\0b", "path /a\\x00b contains a NUL character - no file name can hold one"),
    ],
)
def test_a_string_that_is_no_absolute_path_is_not_found_and_the_message_says_why(path: str, sentence: str) -> None:
    assert listed(path) == {"error": {"code": "not-found", "message": sentence}}


def test_devices_are_no_directories() -> None:
    assert listed("/dev/null") == {"error": {"code": "not-a-dir", "message": "Not a directory: /dev/null"}}


@pytest.mark.parametrize(
    ("arguments", "start"),
    [
        ({}, "argument 'path' is required: Absolute path of the directory"),
        ({"path": None}, "argument 'path' must be string, not null"),
        ({"path": ["/"]}, "argument 'path' must be string, not array"),
        ({"path": "/", "recursive": 1}, "argument 'recursive' must be boolean, not integer"),
        ({"path": "/", "recursive": "true"}, "argument 'recursive' must be boolean, not string"),
        ({"path": "/", "recursive": None}, "argument 'recursive' must be boolean, not null"),
    ],
)
def test_arguments_that_do_not_fit_are_an_error_in_plain_words(arguments: dict[str, Any], start: str) -> None:
    result = call(LIST_DIR, arguments, None, Context())
    assert result.text.startswith(start)
    assert result.is_error is True
    assert result.structured is None


def test_unknown_arguments_are_ignored(place: Path) -> None:
    result = call(LIST_DIR, {"path": str(place), "depth": 3}, None, Context())
    assert result.structured == {"entries": []}


@pytest.mark.parametrize("recursive", [False, True])
def test_a_directory_that_may_not_be_read_is_an_error_with_the_words_of_the_system(
    place: Path, recursive: bool
) -> None:
    make(place, "closed/inner/file")
    for mode in (0o000, 0o333):
        (place / "closed").chmod(mode)
        for path in ("closed", "closed/inner") if mode == 0 else ("closed",):
            result = answer("list_dir", {"path": f"{place}/{path}", "recursive": recursive})
            assert result["structuredContent"] == {
                "error": {"code": "fs-error", "message": f"Permission denied: {place}/{path}"}
            }
            assert result["isError"] is True


def test_inside_a_walk_a_directory_that_may_not_be_read_is_listed_and_skipped(place: Path) -> None:
    make(place, "a/file", "closed/file", "no-search/dir/file", "no-search/file", "search-only/file", "z/file")
    (place / "closed").chmod(0o000)
    (place / "no-search").chmod(0o444)
    (place / "search-only").chmod(0o111)
    result = answer("list_dir", {"path": str(place), "recursive": True})
    assert result["structuredContent"] == {
        "entries": [
            "a", "a/file", "closed", "no-search", "no-search/dir", "no-search/file", "search-only", "z", "z/file",
        ]
    }  # fmt: skip


# What may be seen


def test_outside_the_roots_nothing_is_listed_and_the_message_says_what_may_be(place: Path) -> None:
    make(place, "open/file", "shut/file", "open/out -> ../shut")
    context = Context(roots=(f"{place}/open",))
    assert entries(place / "open", True, context) == ["file", "out"]
    for path in ("shut", "open/out", "open/..", "missing"):
        assert listed(place / path, True, context)["error"] == {
            "code": "fs-error",
            "message": f"path {place}/{path} is outside what may be read here - ask for something below {place}/open",
        }


def test_the_gateways_own_directory_is_listed_by_name_and_never_entered(place: Path) -> None:
    make(place, "etc/gate/keys/token", "etc/gate/config", "etc/other/file")
    context = Context(hidden=(f"{place}/etc/gate",))
    assert entries(place, True, context) == ["etc", "etc/gate", "etc/other", "etc/other/file"]
    for recursive in (False, True):
        for path in ("etc/gate", "etc/gate/keys", "etc/gate/../gate"):
            error = listed(place / path, recursive, context)["error"]
            assert error["code"] == "fs-error"
            assert "the gateway's own configuration" in error["message"]


def test_the_gateways_own_directory_is_not_entered_through_a_bind_mount_either(place: Path) -> None:
    make(place, "gate/token", "seen/through/")
    if subprocess.run(
        ["mount", "--bind", place / "gate", place / "seen/through"], check=False, capture_output=True
    ).returncode:
        pytest.skip("no right to mount here")
    try:
        assert entries(place / "seen", True) == ["through", "through/token"]
        assert entries(place / "seen", True, Context(hidden=(f"{place}/gate",))) == ["through"]
    finally:
        subprocess.run(["umount", place / "seen/through"], check=True)


# Deep, wide and changing trees


@contextlib.contextmanager
def descriptors_left(count: int) -> Iterator[None]:
    """Room for just `count` more; at the end, as many must be open as at the beginning."""
    opened = sorted(int(name) for name in os.listdir("/proc/self/fd"))[:-1]  # the last one read this listing
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    free = itertools.islice((number for number in itertools.count() if number not in opened), count, count + 1)
    resource.setrlimit(resource.RLIMIT_NOFILE, (next(free), hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert sorted(int(name) for name in os.listdir("/proc/self/fd"))[:-1] == opened


def test_a_tree_deeper_than_any_path_may_be_long_is_listed_whole(place: Path) -> None:
    deep(place, 850, name="level", beside="zz")
    found = entries(place, recursive=True)
    assert len(found) == 2550
    assert max(map(len, found)) > 5000
    assert found == by_find(place)


def test_a_deep_tree_needs_few_descriptors_and_leaves_none_open(place: Path) -> None:
    deep(place, 500, name="a", beside="b")
    with descriptors_left(OPEN_LEVELS + 4):
        found = entries(place, recursive=True)
    assert found == by_find(place)


@pytest.mark.parametrize("left", [0, 1, 2, 3, OPEN_LEVELS])
def test_when_we_run_out_of_descriptors_the_listing_fails_rather_than_lacks_something(place: Path, left: int) -> None:
    deep(place, 100, name="a", beside="b")
    with descriptors_left(left):
        found = listed(place, recursive=True)
    assert found == {"error": {"code": "fs-error", "message": f"Too many open files: {place}"}}


def change_when(entries_found: int, change: Any) -> Context:
    """A context whose walk calls `change` once, when it has found so many entries (it tells after each directory)."""
    pending = [change]

    def progress(done: int, _total: int | None, _message: str) -> None:
        if done >= entries_found and pending:
            pending.pop()()

    return Context(progress=progress)


def test_a_directory_moved_away_while_the_walk_is_below_it_costs_nothing_already_in_reach(place: Path) -> None:
    deep(place, 60, name="a", beside="b")
    expected = by_find(place)
    middle = place.joinpath(*["a"] * 20)
    context = change_when(len(expected) - 60, lambda: middle.rename(place.parent / f"{place.name}-moved"))
    try:
        assert entries(place, True, context) == expected
    finally:
        subprocess.run(["rm", "-rf", f"{place}-moved"], check=True)


def test_what_is_moved_out_of_reach_midway_is_listed_as_far_as_it_was_seen(place: Path) -> None:
    deep(place, 60, name="a", beside="b")
    expected = by_find(place)

    def move_twice() -> None:
        place.joinpath(*["a"] * 20).rename(place / "moved-1")
        place.joinpath(*["a"] * 10).rename(place / "moved-2")

    # The 10th to the 19th level are then neither above what was walked, nor where they were.
    unreached = {"/".join(["a"] * level + ["b", "f"]) for level in range(10, 20)}
    assert entries(place, True, change_when(len(expected) - 60, move_twice)) == [
        path for path in expected if path not in unreached
    ]


def test_a_directory_that_vanishes_or_becomes_a_link_before_it_is_entered_is_no_error(place: Path) -> None:
    make(place, "a/file", "b/file", "c/file", "d/file")

    def change() -> None:
        subprocess.run(["rm", "-rf", place / "b", place / "c"], check=True)
        (place / "c").symlink_to("/")

    assert entries(place, True, change_when(4, change)) == ["a", "a/file", "b", "c", "d", "d/file"]


def test_types_that_the_file_system_does_not_tell_are_looked_up(place: Path) -> None:
    with mounted(place) as server:
        if server is None:
            pytest.skip("no right to mount a FUSE file system here")
        assert entries(place / "types", recursive=True) == ["inner", "plain"]


def test_a_walk_tells_its_progress(place: Path) -> None:
    make(place, "a/b/c", "d")
    told: list[tuple[int, int | None]] = []
    entries(place, True, Context(progress=lambda done, total, _: told.append((done, total))))
    assert told == [(2, None), (3, None), (4, None)]


# Size and speed


@pytest.fixture(scope="module")
def hundred_thousand() -> Iterator[Path]:
    """100 directories of 1,000 files; in memory where there is such a place, since disks take their time over it."""
    with public_directory("/dev/shm" if os.access("/dev/shm", os.W_OK) else None) as directory:
        for outer in range(100):
            (directory / f"directory-{outer}").mkdir()
            at = os.open(directory / f"directory-{outer}", os.O_RDONLY)
            for inner in range(1000):
                os.close(os.open(f"file-{inner}", os.O_CREAT | os.O_WRONLY, dir_fd=at))
            os.close(at)
        yield directory


def test_a_hundred_thousand_entries_are_listed_whole_and_soon(hundred_thousand: Path) -> None:
    begun = time.process_time()
    context = Context()
    result = bounded(
        LIST_DIR, call(LIST_DIR, {"path": str(hundred_thousand), "recursive": True}, None, context), context
    )
    taken = time.process_time() - begun
    assert json.loads(result)["structuredContent"]["entries"] == by_find(hundred_thousand)
    assert taken < 3  # it takes 0.2 s; what is not linear takes minutes


def test_a_walk_that_is_sure_to_pass_the_limit_ends_early_and_says_the_way_out(hundred_thousand: Path) -> None:
    told: list[int] = []
    context = Context(limit=100_000, progress=lambda done, _total, _message: told.append(done))
    with descriptors_left(OPEN_LEVELS):
        result = call(LIST_DIR, {"path": str(hundred_thousand), "recursive": True}, None, context)
    assert result.is_error is True
    assert result.text == (
        f"the listing passes this session's limit of 100,000 bytes after {told[-1] + 1000:,} entries "
        "- list a directory further down, or one level at a time (recursive: false)"
    )
    assert len(told) < 5


@pytest.mark.parametrize("recursive", [False, True])
def test_a_result_just_within_the_limit_is_delivered_and_one_byte_less_is_refused(place: Path, recursive: bool) -> None:
    make(place, *(f"file-{number}" for number in range(100)), "dir/é")
    arguments = {"path": str(place), "recursive": recursive}
    size = len(bounded(LIST_DIR, call(LIST_DIR, arguments, None, Context()), Context()))
    fits, tight = Context(limit=size), Context(limit=size - 1)
    assert "isError" not in json.loads(bounded(LIST_DIR, call(LIST_DIR, arguments, None, fits), fits))
    refused = json.loads(bounded(LIST_DIR, call(LIST_DIR, arguments, None, tight), tight))
    assert refused["isError"] is True
    assert refused["content"][0]["text"].endswith(
        "- list a directory further down, or one level at a time (recursive: false)"
    )


# How it is described


def test_the_schema_has_the_arguments_of_the_seed_described_for_a_model() -> None:
    schema = LIST_DIR.input_schema
    assert schema["required"] == ["path"]
    assert schema["properties"]["path"]["type"] == "string"
    assert schema["properties"]["recursive"]["type"] == "boolean"
    assert schema["properties"]["recursive"]["default"] is False
    assert all(each["description"] for each in schema["properties"].values())
    jsonschema.Draft202012Validator.check_schema(schema)


def test_the_output_schema_is_an_object_and_refuses_what_is_no_result() -> None:
    schema = LIST_DIR.output_schema
    assert schema is not None
    assert schema["type"] == "object"
    jsonschema.Draft202012Validator.check_schema(schema)
    for wrong in ({}, {"entries": [1]}, {"entries": [], "error": {"code": "not-found", "message": ""}}, {"x": 1}):
        assert not jsonschema.Draft202012Validator(schema).is_valid(wrong)


def test_the_description_says_when_to_use_its_siblings() -> None:
    for sibling in ("files/list", "read_files_batch", "read_tree"):
        assert sibling in LIST_DIR.description
