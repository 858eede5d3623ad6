"""Listings of `read_tree` against `git ls-tree`: order, kinds, sizes, names, depth, paths, pages."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.tools.read_tree_stores import TOOL, Git, listed, new, pages, refusal, rows
from tools._tool import Context, call, encode

LATIN = b"caf\xe9"

# Every kind of entry, and names whose order git decides: a directory sorts as if its name ended in a slash.
FILES: dict[bytes, bytes] = {
    b"a": b"1",
    b"a.b/in": b"22",
    b"a-b/in": b"22",
    b"a0": b"333",
    b"foo.txt": b"",
    b"foo/x": b"x",
    b"foo-bar": b"x",
    b"foo0/y": b"y",
    b"lib/deep/er/still/leaf": b"leaf\n",
    b"lib/deep/a": b"a" * 70000,
    b"lib/deep.c": b"c",
    b"lib/z": b"z",
    "größe/日本 語.txt".encode(): b"\xff\xfe",
    b"with space": b" ",
    b'quote"back\\slash': b"q",
    b"tab\tand\nnewline": b"t",
    b"\x01\x1b[31m": b"c",
    "🎉".encode(): b"p",
    "e\u0301".encode(): b"d",
    LATIN: b"latin",
    LATIN + b"dir/" + LATIN: b"latin",
    b"\xff\xfe/\xc3\x28": b"raw",
    b"-dash": b"-",
    b"HEAD": b"h",
    b"~1": b"t",
    b"n" * 255: b"long",
}


def stored(git: Git, files: dict[bytes, bytes], ref: str = "refs/heads/main", extra: bytes = b"") -> None:
    """Commits these files, {path: content}, without a work tree: any bytes can be a name."""
    stream = [b"reset %s\ncommit %s\ncommitter c <c@example.com> 0 +0000\ndata 0\n" % (ref.encode(), ref.encode())]
    stream += [
        b"M %s inline %s\ndata %d\n%s\n" % (MODES.get(name, b"100644"), quoted(name), len(content), content)
        for name, content in files.items()
    ]
    git.raw("fast-import", "--quiet", "--force", stdin=b"".join([*stream, extra]))


def quoted(name: bytes) -> bytes:
    return b'"' + b"".join(b"\\%03o" % byte for byte in name) + b'"'


# Paths of `FILES` and of generated trees that are not plain files.
MODES = {b"a0": b"100755", b"foo-bar": b"120000", b"lib/z": b"120000"}
SUBMODULE = b"0123456789abcdef0123456789abcdef01234567"


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Git:
    git = new(tmp_path_factory.mktemp("listing"), "--bare")
    extra = b"".join(b'M 160000 %s "%s"\n' % (SUBMODULE, path) for path in (b"sub", b"lib/deep/sub"))
    stored(git, FILES, extra=extra)
    return git


@pytest.mark.parametrize("depth", [1, 2, 3, 4, 5, 6, 64])
@pytest.mark.parametrize("path", ["", "lib", "lib/deep", "lib/deep/er", "größe", "a.b", "foo"])
def test_a_listing_is_gits_at_every_depth(store: Git, path: str, depth: int) -> None:
    assert rows(listed(store, rev="main", path=path, depth=depth)["entries"]) == store.listing("main", path, depth)


def test_packed_objects_are_listed_alike(store: Git, tmp_path: Path) -> None:
    store("clone", "-q", "--bare", "--no-local", ".", str(tmp_path / "packed.git"))
    packed = Git(tmp_path / "packed.git")
    packed("gc", "-q", "--aggressive")
    assert rows(listed(packed, rev="main", depth=64)["entries"]) == store.listing("main")


def test_depth_and_limit_are_1_and_250_when_not_given(tmp_path: Path) -> None:
    git = new(tmp_path, "--bare")
    stored(git, {b"%03d/x" % number: b"" for number in range(251)})
    result = listed(git, rev="main")
    assert rows(result["entries"]) == git.listing("main", depth=1)[:250]
    assert result["truncated"] is True


def test_each_kind_has_its_members_in_order_and_size_only_where_it_has_one(store: Git) -> None:
    entries = {entry["name"]: entry for entry in listed(store, rev="main", depth=2)["entries"]}
    assert list(entries["a"].items())[:3] == [("name", "a"), ("kind", "file"), ("size", 1)]
    assert list(entries["a"]) == ["name", "kind", "size", "id"]
    assert entries["a0"]["kind"] == "file"  # executable
    assert list(entries["foo"]) == ["name", "kind", "id"]
    assert entries["foo-bar"]["kind"] == "symlink"
    assert entries["foo-bar"]["size"] == 1
    assert entries["lib/z"]["kind"] == "symlink"
    assert entries["sub"] == {"name": "sub", "kind": "submodule", "id": SUBMODULE.decode()}
    assert entries["foo.txt"]["size"] == 0


def test_a_name_that_is_not_utf_8_has_its_exact_bytes_beside_it_and_no_other_has(store: Git) -> None:
    entries = listed(store, rev="main", depth=3)["entries"]
    inexact = {entry["name"]: entry["name_hex"] for entry in entries if "name_hex" in entry}
    assert inexact == {
        "caf\ufffd": "636166e9",
        "caf\ufffddir": "636166e9646972",
        "caf\ufffddir/caf\ufffd": "636166e96469722f636166e9",
        "\ufffd\ufffd": "fffe",
        "\ufffd\ufffd/\ufffd(": "fffe2fc328",
    }
    entry = next(entry for entry in entries if "name_hex" in entry)
    assert list(entry)[:2] == ["name", "name_hex"]


def test_a_path_may_be_null_empty_or_end_in_a_slash(store: Git) -> None:
    root = listed(store, rev="main")
    assert listed(store, rev="main", path=None) == root
    assert listed(store, rev="main", path="") == root
    assert listed(store, rev="main", path="lib/deep/") == listed(store, rev="main", path="lib/deep")


@pytest.mark.parametrize(
    ("path", "code", "words"),
    [
        ("nope", "E_NOT_FOUND", "path 'nope' does not exist at this revision - list the root"),
        ("lib/nope/x", "E_NOT_FOUND", "path 'lib/nope' does not exist at this revision - list 'lib'"),
        ("LIB", "E_NOT_FOUND", "path 'LIB' does not exist"),
        ("li", "E_NOT_FOUND", "path 'li' does not exist"),
        ("caf\ufffddir", "E_NOT_FOUND", "a name that is not UTF-8 cannot be given"),
        ("x" * 5000, "E_NOT_FOUND", "does not exist"),
        ("/".join("x" * 3000), "E_NOT_FOUND", "path 'x' does not exist"),
        ("a", "E_NOT_A_DIR", "path 'a' is a file"),
        ("a0", "E_NOT_A_DIR", "path 'a0' is a file"),
        ("a/", "E_NOT_A_DIR", "path 'a' is a file"),
        ("lib/deep/a/b", "E_NOT_A_DIR", "path 'lib/deep/a' is a file"),
        ("foo-bar", "E_NOT_A_DIR", "path 'foo-bar' is a symlink, and links are not followed"),
        ("lib/z/x", "E_NOT_A_DIR", "path 'lib/z' is a symlink"),
        ("sub", "E_NOT_A_DIR", "path 'sub' is a submodule - its content is in another repository"),
        ("lib/deep/sub/x", "E_NOT_A_DIR", "path 'lib/deep/sub' is a submodule"),
        ("/", "E_INVALID_ARG", "starts with '/'"),
        ("/lib", "E_INVALID_ARG", "starts with '/'"),
        ("//", "E_INVALID_ARG", "starts with '/'"),
        (".", "E_INVALID_ARG", "contains '.' as a name"),
        ("./lib", "E_INVALID_ARG", "contains '.' as a name"),
        ("lib/.", "E_INVALID_ARG", "contains '.' as a name"),
        ("..", "E_INVALID_ARG", "contains '..' as a name"),
        ("lib/../foo", "E_INVALID_ARG", "contains '..' as a name"),
        ("lib//deep", "E_INVALID_ARG", "contains '' as a name"),
        ("lib//", "E_INVALID_ARG", "contains '' as a name"),
        ("lib\0", "E_INVALID_ARG", "NUL"),
        ("lib\0/deep", "E_INVALID_ARG", "NUL"),
    ],
    ids=lambda value: repr(value)[:24],
)
def test_a_path_that_is_no_directory_is_refused_by_name(store: Git, path: str, code: str, words: str) -> None:
    found = refusal(store, rev="main", path=path)
    assert found[0] == code
    assert words in found[1]
    assert found[1].isprintable()
    assert len(found[1]) < 600


def test_an_empty_tree_has_no_entries(tmp_path: Path) -> None:
    git = new(tmp_path)
    git.commit()
    assert listed(git, rev="main", depth=64) == {"entries": [], "truncated": False}


def test_an_empty_directory_in_a_tree_is_listed_and_entered(tmp_path: Path) -> None:
    git = new(tmp_path)
    empty = git.object("tree", b"")
    tree = git("mktree", stdin=f"040000 tree {empty}\tb\n040000 tree {empty}\tz\n".encode())
    git("update-ref", "refs/heads/main", git.commit_of(tree))
    assert rows(listed(git, rev="main", depth=3)["entries"]) == git.listing("main")
    assert [len(page) for page in pages(git, [1], rev="main", depth=3)] == [1, 1]
    assert listed(git, rev="main", path="b") == {"entries": [], "truncated": False}


def test_names_and_modes_that_git_never_writes_are_read_as_git_reads_them(tmp_path: Path) -> None:
    git = new(tmp_path)
    blob, tree = (bytes.fromhex(git.object(kind, data)) for kind, data in (("blob", b"b"), ("tree", b"")))
    modes = [b"100664", b"100600", b"0100644", b"120755", b"0120000", b"160755", b"0", b"10644", b"7"]
    raw = b"".join(b"%s %02d\0%s" % (mode, number, blob) for number, mode in enumerate(modes))
    raw += b"040755 d\0" + tree + b"40000 ..\0" + tree + b"100644 a/b\0" + blob + b"100644 .git\0" + blob
    raw += b"100644 twice\0" + blob + b"100644 twice\0" + blob
    git("update-ref", "refs/heads/main", git.commit_of(git.object("tree", raw)))
    expected = git.listing("main", depth=1)
    facts = git.raw("ls-tree", "-z", "-l", "main").split(b"\0")[:-1]
    assert len(facts) == len(modes) + 6
    found = listed(git, rev="main")["entries"]
    assert [row for row in rows(found) if row[0] != b"a/b"] == expected
    assert [entry for page in pages(git, [1], rev="main") for entry in page] == found


def test_sixty_four_levels_are_listed_and_no_more(tmp_path: Path) -> None:
    git = new(tmp_path, "--bare")
    stored(git, {b"/".join([b"d"] * 70): b"x"})
    expected = git.listing("main")
    assert len(expected) == 64
    assert rows(listed(git, rev="main", depth=64)["entries"]) == expected
    assert [row for page in pages(git, [3, 1], rev="main", depth=64) for row in rows(page)] == expected
    assert len(listed(git, rev="main", path="/".join("d" * 60), depth=64)["entries"]) == 10


@pytest.mark.parametrize("limits", [[1], [2], [3, 1, 2], [7], [1000], [2**70]], ids=str)
@pytest.mark.parametrize(("path", "depth"), [("", 1), ("", 2), ("", 64), ("lib", 64), ("lib/deep/er", 2)])
def test_the_pages_joined_are_the_listing(store: Git, path: str, depth: int, limits: list[int]) -> None:
    joined = [row for page in pages(store, limits, rev="main", path=path, depth=depth) for row in rows(page)]
    assert joined == store.listing("main", path, depth)


@pytest.mark.parametrize(("extra", "truncated"), [(-1, True), (0, False), (1, False)])
def test_truncated_is_true_exactly_when_more_follow(store: Git, extra: int, truncated: bool) -> None:
    for path, depth in (("", 1), ("", 64), ("lib", 3)):
        limit = len(store.listing("main", path, depth)) + extra
        result = listed(store, rev="main", path=path, depth=depth, limit=limit)
        assert result["truncated"] is truncated
        assert ("cursor" in result) is truncated


NAMES = st.one_of(
    st.text(alphabet='ab.-0/é "\\\n', min_size=1, max_size=4).map(lambda name: name.replace("/", "_").encode()),
    st.binary(min_size=1, max_size=3).map(lambda name: name.replace(b"\0", b"0").replace(b"/", b"_")),
).filter(lambda name: name not in (b".", b".."))
KINDS = st.sampled_from([b"100644", b"100755", b"120000", b"160000"])
TREES: st.SearchStrategy[dict[bytes, Any]] = st.recursive(
    st.dictionaries(NAMES, KINDS, max_size=5),
    lambda inner: st.dictionaries(NAMES, KINDS | inner, max_size=6),
    max_leaves=12,
)


def flat(tree: dict[bytes, Any], prefix: bytes = b"") -> Iterator[tuple[bytes, bytes]]:
    for name, value in tree.items():
        if isinstance(value, dict):
            yield from flat(value, prefix + name + b"/")
        else:
            yield prefix + name, value


@pytest.fixture(scope="module")
def changing(tmp_path_factory: pytest.TempPathFactory) -> Git:
    return new(tmp_path_factory.mktemp("changing"), "--bare")


@settings(max_examples=50, deadline=None)
@given(tree=TREES, depth=st.integers(1, 5), limits=st.lists(st.integers(1, 6), min_size=1, max_size=4))
def test_any_tree_in_pages_of_any_size_is_what_git_lists(
    changing: Git, tree: dict[bytes, Any], depth: int, limits: list[int]
) -> None:
    lines = [b"reset refs/heads/main\ncommit refs/heads/main\ncommitter c <c@example.com> 0 +0000\ndata 0\n"]
    for path, mode in flat(tree):
        content = SUBMODULE + b" " if mode == b"160000" else b"inline "
        lines.append(b"M %s %s%s\n" % (mode, content, quoted(path)))
        if mode != b"160000":
            lines.append(b"data %d\n%s\n" % (len(path), path))
    changing.raw("fast-import", "--quiet", "--force", stdin=b"".join(lines))
    joined = [row for page in pages(changing, limits, rev="main", depth=depth) for row in rows(page)]
    assert joined == changing.listing("main", "", depth)


def test_a_page_reads_nothing_but_its_own_entries_and_the_directories_they_are_in(tmp_path: Path) -> None:
    git = new(tmp_path, "--bare")
    git("config", "fastimport.unpackLimit", "100000")
    stored(git, {b"%d/%d/%d" % (a, b, c): b"%d%d%d" % (a, b, c) for a in range(6) for b in range(5) for c in range(5)})
    expected = git.listing("main")
    assert len(expected) == 6 + 30 + 150
    start = next(number for number, row in enumerate(expected) if row[0] == b"4/2/3")
    cursor = listed(git, rev="main", depth=3, limit=start)["cursor"]
    page = expected[start : start + 6]
    assert [row[0] for row in page] == [b"4/2/3", b"4/2/4", b"4/3", b"4/3/0", b"4/3/1", b"4/3/2"]
    # Everything else becomes unreadable, the content of the entry that is looked at for `truncated` included.
    for name, _, _, id_ in expected:
        if name not in {row[0] for row in page} | {b"4", b"4/2"}:
            git.damage(id_)
    git("config", "test.touched", "yes")  # the store is opened anew, and nothing of it remembered
    result = listed(git, rev="main", depth=3, limit=6, cursor=cursor)
    assert rows(result["entries"]) == page
    assert result["truncated"]
    assert refusal(git, rev="main", depth=3, limit=7, cursor=cursor)[0] == "E_INTERNAL"


def sized(git: Git, room: int, **arguments: Any) -> tuple[int, dict[str, Any]]:
    """Bytes of the encoded result, and its `result`, in a session with this limit."""
    result = call(TOOL, {"rev": "main", **arguments}, None, Context(repository=str(git.directory), limit=room))
    whole = encode(result)
    found: dict[str, Any] = json.loads(whole)["structuredContent"]["result"]
    return len(whole), found


def test_a_page_over_the_sessions_limit_is_shortened_to_fit_and_goes_on(store: Git) -> None:
    everything = store.listing("main")
    full, _ = sized(store, 1 << 26, depth=64)
    for room in (full, full - 1, full - 300, full // 2, 3000, 1500):
        joined: list[tuple[bytes, str, int | None, str]] = []
        cursor: dict[str, str] = {}
        while True:
            size, result = sized(store, room, depth=64, **cursor)
            assert size <= room or len(result["entries"]) == 1
            joined += rows(result["entries"])
            if not result["truncated"]:
                break
            cursor = {"cursor": result["cursor"]}
        assert joined == everything


def test_a_shortened_page_is_as_full_as_it_can_be(tmp_path: Path) -> None:
    git = new(tmp_path, "--bare")
    stored(git, {b"%04d-%s" % (number, b"\x01" * (number % 40)): b"x" for number in range(600)})
    for room in (20_000, 50_000, 100_000):
        size, result = sized(git, room, limit=2**70)
        assert room - 1500 < size <= room
        assert result["truncated"]


@pytest.mark.parametrize("room", [0, 1, 500])
def test_one_entry_always_stays_even_in_the_smallest_session(store: Git, room: int) -> None:
    _, result = sized(store, room, depth=64)
    assert len(result["entries"]) == 1
    assert result["truncated"]
