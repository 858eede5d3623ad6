"""`rev` of `read_tree`: the forms that are taken, resolved as git resolves them, and every refusal."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.tools.read_tree_stores import Git, listed, new, refusal, resolved


@pytest.fixture(scope="module")
def history(tmp_path_factory: pytest.TempPathFactory) -> Git:
    """Six commits on main with a merge, and refs of every kind."""
    git = new(tmp_path_factory.mktemp("history"))
    for step in range(4):
        git.write("file", b"%d\n" % step)
        git.commit(f"step {step}")
    git("branch", "release/1.2", "HEAD~1")
    git("branch", "deep/er/still", "HEAD~2")
    git("branch", "zweig/größe-ß", "HEAD~1")
    git("checkout", "-q", "-b", "side", "HEAD~2")
    git.write("other", b"x\n")
    git.commit("side")
    git("checkout", "-q", "main")
    git("merge", "-q", "--no-ff", "-m", "merge", "side")
    git.write("file", b"last\n")
    git.commit("last")
    git("tag", "light", "HEAD~2")
    git("tag", "-a", "-m", "t", "v1", "HEAD~1")
    git("tag", "-a", "-m", "t", "nested", "v1")
    # One name in three places, at three commits: tags win over heads, heads over remotes.
    git("update-ref", "refs/tags/same", "HEAD~3")
    git("update-ref", "refs/heads/same", "HEAD~2")
    git("update-ref", "refs/remotes/same", "HEAD~1")
    git("update-ref", "refs/heads/both", "HEAD~2")
    git("update-ref", "refs/remotes/both", "HEAD~1")
    git("update-ref", "refs/remotes/origin/main", "HEAD~1")
    git("update-ref", "refs/remotes/origin/topic", "HEAD~2")
    git("symbolic-ref", "refs/remotes/origin/HEAD", "refs/remotes/origin/topic")
    git("symbolic-ref", "refs/heads/alias", "refs/heads/release/1.2")
    git("update-ref", "refs/notes/x", "HEAD~2")
    git("update-ref", "refs/heads/tags/odd", "HEAD~1")
    git("update-ref", "refs/heads/deadbeef", "HEAD~1")
    git("update-ref", "ORIG_HEAD", "HEAD~1")
    # A branch whose name is the start of another commit's id, and one whose name is a whole id.
    git("update-ref", f"refs/heads/{git('rev-parse', 'HEAD')[:14]}", "HEAD~1")
    git("update-ref", f"refs/heads/{git('rev-parse', 'HEAD')}", "HEAD~1")
    git("pack-refs", "--all")
    git("branch", "loose", "HEAD~1")
    return git


@pytest.mark.parametrize(
    "rev",
    [
        "main",
        "HEAD",
        "heads/main",
        "refs/heads/main",
        "release/1.2",
        "heads/release/1.2",
        "deep/er/still",
        "zweig/größe-ß",
        "loose",
        "light",
        "tags/light",
        "refs/tags/light",
        "v1",
        "nested",
        "refs/tags/nested",
        "same",
        "heads/same",
        "remotes/same",
        "both",
        "origin",
        "origin/main",
        "origin/topic",
        "remotes/origin/main",
        "refs/remotes/origin/main",
        "alias",
        "notes/x",
        "refs/notes/x",
        "tags/odd",
        "deadbeef",
        "ORIG_HEAD",
        "main~0",
        "main~1",
        "main~2",
        "main~5",
        "HEAD~3",
        "v1~1",
        "nested~2",
        "release/1.2~1",
        "origin/main~1",
        "main~0000000000000000000000000000001",
    ],
)
def test_a_revision_is_the_commit_that_git_finds(history: Git, rev: str) -> None:
    expected = history("rev-parse", "--verify", "-q", f"{rev}^{{commit}}")
    assert resolved(history, rev) == expected
    assert listed(history, rev=rev)["entries"][0]["id"] == history("rev-parse", f"{expected}:file")


@pytest.mark.parametrize("digits", [12, 13, 20, 39, 40])
@pytest.mark.parametrize("back", ["", "~0", "~1"])
def test_an_id_or_the_start_of_one_is_taken_in_either_case(history: Git, digits: int, back: str) -> None:
    commit = history("rev-parse", "HEAD~1")
    expected = history("rev-parse", f"{commit}{back}")
    assert resolved(history, commit[:digits] + back) == expected
    assert resolved(history, commit[:digits].upper() + back) == expected


@pytest.mark.parametrize("digits", [12, 40])
def test_the_id_of_an_annotated_tag_leads_to_its_commit(history: Git, digits: int) -> None:
    for tag in ("v1", "nested"):
        assert resolved(history, history("rev-parse", tag)[:digits]) == history("rev-parse", "HEAD~1")


def test_a_full_id_wins_over_a_ref_and_a_ref_over_a_prefix(history: Git) -> None:
    head, before = history("rev-parse", "HEAD", "HEAD~1").split()
    assert resolved(history, head) == head
    assert resolved(history, head[:14]) == before
    assert resolved(history, head[:15]) == head


def test_a_detached_head_is_head(history: Git, tmp_path: Path) -> None:
    clone = tmp_path / "clone"
    history("clone", "-q", ".", str(clone))
    git = Git(clone)
    git("checkout", "-q", "--detach", "HEAD~2")
    assert resolved(git, "HEAD") == history("rev-parse", "main~2")
    assert resolved(git, "HEAD~1") == history("rev-parse", "main~3")


SYNTAX = [
    ("", "empty"),
    ("@", "write HEAD"),
    ("main^", "contains '^'"),
    ("main^2", "contains '^'"),
    ("main^{tree}", "contains '^'"),
    ("^main", "contains '^'"),
    ("main@{1}", "contains '@{'"),
    ("@{-1}", "contains '@{'"),
    ("main@{upstream}", "contains '@{'"),
    (":/last", "contains ':'"),
    (":file", "contains ':'"),
    ("main:file", "contains ':'"),
    ("main..side", "contains '..'"),
    ("main...side", "contains '..'"),
    ("../main", "contains '..'"),
    ("main~", "after '~'"),
    ("main~~", "after '~'"),
    ("main~1~1", "after '~'"),
    ("main~-1", "after '~'"),
    ("main~x", "after '~'"),
    ("main~ 1", "after '~'"),
    ("main~\u0661", "after '~'"),
    ("~1", "after '~'"),
    ("main\0", "neither a ref name nor an id"),
    ("main\n", "neither a ref name nor an id"),
    (" main", "neither a ref name nor an id"),
    ("main ", "neither a ref name nor an id"),
    ("ma*n", "neither a ref name nor an id"),
    ("/main", "neither a ref name nor an id"),
    ("main/", "neither a ref name nor an id"),
    ("release//1.2", "neither a ref name nor an id"),
    ("ma\\in", "neither a ref name nor an id"),
    ("refs/heads/.x", "neither a ref name nor an id"),
    ("main.lock", "neither a ref name nor an id"),
]


@pytest.mark.parametrize(("rev", "words"), SYNTAX, ids=[repr(rev) for rev, _ in SYNTAX])
def test_the_rest_of_gits_syntax_is_refused_with_a_way_on(history: Git, rev: str, words: str) -> None:
    code, message = refusal(history, rev=rev)
    assert code == "E_INVALID_ARG"
    assert words in message
    assert " - " in message
    assert message.isprintable()


@pytest.mark.parametrize(
    "rev",
    [
        "nope",
        "nope~1",
        "release",
        "refs/heads",
        "heads/nope",
        "origin/nope",
        "config",
        "description",
        "COMMIT_EDITMSG",
        "-main",
        "v1-1-gabcdef012345",
        "é",
        "1234567890abcdef",
        "0" * 12,
        "0" * 39,
        "0" * 40,
        "f" * 40,
        "0" * 41,
        "0" * 64,
        "x" * 5000,
        "x/" * 3000 + "x",
    ],
    ids=lambda rev: rev[:20],
)
def test_what_nothing_is_called_is_not_found(history: Git, rev: str) -> None:
    code, message = refusal(history, rev=rev)
    assert code == "E_NOT_FOUND"
    assert rev[:20] in message
    assert len(message) < 600


@pytest.mark.parametrize("digits", [1, 4, 7, 11])
def test_the_start_of_an_id_that_is_too_short_says_how_many_digits_it_takes(history: Git, digits: int) -> None:
    code, message = refusal(history, rev=history("rev-parse", "HEAD")[:digits])
    assert code == "E_INVALID_ARG"
    assert f"{digits} digits are too few" in message
    assert "at least 12" in message


@pytest.mark.parametrize("rev", ["main~6", "main~1000000", "HEAD~99999999999999999999", "v1~" + "9" * 5000])
def test_an_ancestor_beyond_the_first_commit_is_not_found_and_says_how_many_there_are(history: Git, rev: str) -> None:
    code, message = refusal(history, rev=rev)
    assert code == "E_NOT_FOUND"
    count = 4 if rev.startswith("v1") else 5
    assert f"only {count} first-parent ancestors" in message


def test_a_ref_or_an_id_of_a_tree_or_a_blob_says_what_it_names(history: Git) -> None:
    blob, tree = history("rev-parse", "main:file", "main^{tree}").split()
    history("tag", "-f", "to-blob", blob)
    history("tag", "-f", "-a", "-m", "t", "to-tree", tree)
    for rev, kind, id_ in (
        (blob, "blob", blob),
        (tree, "tree", tree),
        (tree[:12], "tree", tree),
        ("to-blob", "blob", blob),
        ("to-tree", "tree", tree),
        ("to-tree~1", "tree", tree),
    ):
        code, message = refusal(history, rev=rev)
        assert code == "E_INVALID_ARG"
        assert f"the {kind} {id_}, not a commit" in message


def test_a_revision_that_moves_is_seen_at_the_next_call(tmp_path: Path) -> None:
    git = new(tmp_path)
    first = git.commit()
    assert resolved(git, "main") == first
    second = git.commit()
    assert resolved(git, "main") == second
    assert resolved(git, "main~1") == first
    git("pack-refs", "--all")
    assert resolved(git, "main") == second
    git("update-ref", "refs/heads/main", first)
    assert resolved(git, "main") == first
    git("branch", "later")
    assert resolved(git, "later") == first
    git("update-ref", "-d", "refs/heads/later")
    assert refusal(git, rev="later")[0] == "E_NOT_FOUND"


@pytest.mark.parametrize("rev", ["HEAD", "main", "refs/heads/main", "HEAD~1"])
def test_a_branch_without_a_commit_says_so(tmp_path: Path, rev: str) -> None:
    code, message = refusal(new(tmp_path), rev=rev)
    assert code == "E_NOT_FOUND"
    assert "refs/heads/main is unborn" in message


def test_a_symbolic_ref_to_nothing_is_passed_over_as_git_does(tmp_path: Path) -> None:
    git = new(tmp_path)
    commit = git.commit()
    git("symbolic-ref", "refs/tags/name", "refs/heads/gone")
    git("branch", "name")
    assert git("rev-parse", "-q", "--verify", "name") == commit
    assert resolved(git, "name") == commit


def commit_body(seconds: int) -> bytes:
    """A commit of the empty tree that differs from others in the author's time."""
    tree = b"4b825dc642cb6eb9a060e54bf8d69288fbee4904"
    return b"tree %s\nauthor a <a@b> %d +0000\ncommitter a <a@b> 0 +0000\n\n" % (tree, seconds)


# Found by trying 32 million of each.
TWO_COMMITS = (1013536343, 1007406917, "c0f1184389c5")
COMMIT_AND_BLOB = (1002620545, 1026847929, "51117dec8d55")


@pytest.mark.parametrize("packed", [False, True], ids=["loose", "packed"])
def test_a_prefix_of_two_commits_is_ambiguous_and_lists_them(tmp_path: Path, packed: bool) -> None:
    git = new(tmp_path)
    git.object("tree", b"")
    first, second, prefix = TWO_COMMITS
    ids = sorted(git.object("commit", commit_body(seconds)) for seconds in (first, second))
    for id_ in ids:
        git("update-ref", f"refs/heads/b{id_}", id_)
    if packed:
        git("gc", "-q")
    assert {id_[:12] for id_ in ids} == {prefix}
    code, message = refusal(git, rev=prefix)
    assert code == "E_AMBIGUOUS"
    assert f"{ids[0]}, {ids[1]}" in message
    assert "give more digits" in message
    for id_ in ids:
        assert resolved(git, id_[:20]) == id_


@pytest.mark.parametrize("packed", [False, True], ids=["loose", "packed"])
def test_a_prefix_of_one_commit_and_a_blob_is_the_commit_as_for_git(tmp_path: Path, packed: bool) -> None:
    git = new(tmp_path)
    git.object("tree", b"")
    seconds, number, prefix = COMMIT_AND_BLOB
    commit, blob = git.object("commit", commit_body(seconds)), git.object("blob", b"%010d\n" % number)
    git("update-ref", "refs/heads/b", commit)
    git("tag", "t", blob)
    if packed:
        git("gc", "-q")
    assert {commit[:12], blob[:12]} == {prefix}
    assert git("rev-parse", "--verify", f"{prefix}^{{commit}}") == commit
    assert resolved(git, prefix) == commit
