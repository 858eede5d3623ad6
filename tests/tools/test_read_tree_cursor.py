"""Cursors of `read_tree`: bound to commit, path and depth, and refused when they are anything else."""

from __future__ import annotations

import re
import string
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.tools.read_tree_stores import Git, ask, listed, new, refusal, resolved, rows
from tools import _cursor


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Git:
    git = new(tmp_path_factory.mktemp("cursor"))
    for name in ("a", "b", "c", "lib/a", "lib/b", "lib/c", "src/a", "src/b"):
        git.write(name, name.encode())
    git.commit("first")
    git("branch", "same")
    git.write("d", b"d")
    git.commit("second")
    git("branch", "other")
    return git


@pytest.fixture(scope="module")
def cursor(store: Git) -> str:
    found: str = listed(store, rev="main", depth=2, limit=3)["cursor"]
    return found


def test_a_cursor_is_url_safe_and_short(cursor: str) -> None:
    assert re.fullmatch("[A-Za-z0-9_-]{40,120}", cursor)


def test_a_cursor_given_twice_gives_the_same_page(store: Git, cursor: str) -> None:
    pages = [listed(store, rev="main", depth=2, limit=2, cursor=cursor) for _ in range(2)]
    assert pages[0] == pages[1]
    assert rows(pages[0]["entries"]) == store.listing("main", "", 2)[3:5]


def test_a_listing_stays_with_the_commit_it_began_with(tmp_path: Path) -> None:
    git = new(tmp_path)
    for number in range(6):
        git.write(f"{number}", b"old")
    began = git.commit()
    before = git.listing("main", "", 1)
    first = listed(git, rev="main", limit=2)
    (tmp_path / "3").unlink()
    git.write("2a", b"new")
    git.commit()
    second = ask(git, rev="main", limit=2, cursor=first["cursor"]).structured
    assert second is not None
    assert rows(first["entries"] + second["result"]["entries"]) == before[:4]
    assert second["meta"]["resolved"] == {"main": began}
    # The branch is forced back, packed, deleted: the commit is what counts.
    git("checkout", "-q", "--detach")
    git("branch", "-q", "-D", "main")
    third = listed(git, rev="main", limit=2, cursor=second["result"]["cursor"])
    assert rows(third["entries"]) == before[4:]
    assert refusal(git, rev="main")[0] == "E_NOT_FOUND"


def test_another_revision_text_for_the_same_commit_goes_on_with_it(store: Git, cursor: str) -> None:
    expected = listed(store, rev="main", depth=2, cursor=cursor)
    commit = resolved(store, "main")
    for rev in (commit, commit[:12], "HEAD", "heads/main", "other"):
        assert listed(store, rev=rev, depth=2, cursor=cursor) == expected


@pytest.mark.parametrize("rev", ["same", "main~1"])
def test_a_revision_of_another_commit_is_refused(store: Git, cursor: str, rev: str) -> None:
    code, message = refusal(store, rev=rev, depth=2, cursor=cursor)
    assert code == "E_INVALID_ARG"
    assert f"another revision than '{rev}'" in message


def test_a_revision_that_is_wrong_by_itself_is_refused_as_ever(store: Git, cursor: str) -> None:
    assert refusal(store, rev="nope", depth=2, cursor=cursor)[0] == "E_NOT_FOUND"
    assert refusal(store, rev="main^", depth=2, cursor=cursor)[0] == "E_INVALID_ARG"


@pytest.mark.parametrize("depth", [1, 3, 64])
def test_another_depth_is_refused(store: Git, cursor: str, depth: int) -> None:
    code, message = refusal(store, rev="main", depth=depth, cursor=cursor)
    assert code == "E_INVALID_ARG"
    assert f"a listing of depth 2, not {depth}" in message


@pytest.mark.parametrize("path", ["lib", "src", "nope"])
def test_another_path_is_refused(store: Git, cursor: str, path: str) -> None:
    code, message = refusal(store, rev="main", depth=2, path=path, cursor=cursor)
    assert code == "E_INVALID_ARG"
    assert "another path" in message


def test_spellings_of_one_path_and_any_limit_are_the_same_listing(store: Git) -> None:
    found = listed(store, rev="main", path="lib", limit=1)["cursor"]
    for path, limit in (("lib", 1), ("lib/", 2), ("lib", 2**70)):
        result = listed(store, rev="main", path=path, limit=limit, cursor=found)
        assert rows(result["entries"]) == store.listing("main", "lib", 1)[1 : 1 + limit]


ALPHABET = string.ascii_letters + string.digits + "-_"


def test_a_cursor_with_any_one_character_changed_is_refused(store: Git, cursor: str) -> None:
    for place, was in enumerate(cursor):
        for change in (ALPHABET[(ALPHABET.index(was) + 1) % 64], ALPHABET[(ALPHABET.index(was) + 32) % 64], ""):
            altered = cursor[:place] + change + cursor[place + 1 :]
            code, message = refusal(store, rev="main", depth=2, cursor=altered)
            assert (code, "altered" in message) == ("E_INVALID_ARG", True)


def test_what_is_no_cursor_is_refused(store: Git, cursor: str) -> None:
    parts = [cursor[:-1], cursor[4:], cursor * 2, cursor.swapcase(), " " + cursor]
    longer = [cursor + more for more in ("=", "==", "A", "\n", "é", "\0")]
    for text in ("", "x", "null", "A" * 100_000, *parts, *longer):
        code, message = refusal(store, rev="main", depth=2, cursor=text)
        assert code == "E_INVALID_ARG"
        assert "leave it out to start again" in message


@settings(max_examples=200, deadline=None)
@given(text=st.text(alphabet=ALPHABET, max_size=120) | st.text(max_size=20))
def test_no_text_that_we_did_not_give_is_taken(store: Git, text: str) -> None:
    assert refusal(store, rev="main", cursor=text)[0] == "E_INVALID_ARG"


def forged(store: Git, position: tuple[int, ...], commit: bytes | None = None) -> str:
    """A cursor as somebody who has read our source could make it, for the root at depth 2."""
    commit = bytes.fromhex(resolved(store, "main")) if commit is None else commit
    return _cursor.write(_cursor.Place(commit, _cursor.binding("main"), _cursor.binding(""), 2, position))


@pytest.mark.parametrize(
    "position",
    [(10**6,), (-1,), (2**63,), (1, 0), (0, 0), (0, 0, 0), (10**6, 0), (-5, 0), tuple(range(100))],
    ids=str,
)
def test_a_forged_place_that_does_not_exist_is_refused(store: Git, position: tuple[int, ...]) -> None:
    code, message = refusal(store, rev="main", depth=2, cursor=forged(store, position))
    assert code == "E_INVALID_ARG"
    assert "start again" in message


def test_a_forged_place_that_exists_shows_what_is_there_anyway(store: Git) -> None:
    assert listed(store, rev="main", depth=2, cursor=forged(store, ())) == listed(store, rev="main", depth=2)
    assert listed(store, rev="main", depth=2, cursor=forged(store, (0,))) == listed(store, rev="main", depth=2)


@pytest.mark.parametrize("what", [b"\x11" * 20, b"", b"\x11" * 3, b"\x11" * 32, "blob", "tree"], ids=repr)
def test_a_cursor_of_a_commit_that_the_store_does_not_have_is_refused(store: Git, what: bytes | str) -> None:
    if isinstance(what, str):
        what = bytes.fromhex(store("rev-parse", {"blob": "main:a", "tree": "main^{tree}"}[what]))
    code, message = refusal(store, rev="main", depth=2, cursor=forged(store, (), what))
    assert code == "E_INVALID_ARG"
    assert "leave it out to start again" in message


def test_a_cursor_from_another_store_is_refused(cursor: str, tmp_path: Path) -> None:
    other = new(tmp_path)
    other.write("x", b"x")
    other.commit()
    code, message = refusal(other, rev="main", depth=2, cursor=cursor)
    assert code == "E_INVALID_ARG"
    assert "this store does not have" in message
