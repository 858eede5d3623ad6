"""The store behind `read_tree`: every form of repository, stores that come and go, and damaged ones."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import jsonschema
import pytest

from tests.tools.read_tree_stores import ENVIRONMENT, TOOL, Git, ask, listed, new, refusal, resolved, rows
from tools._tool import Context, call

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="takes root to become another account")


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Git:
    """Three commits of a few files in an ordinary repository."""
    made = new(tmp_path_factory.mktemp("template") / "store")
    for step in range(3):
        made.write("file", b"%d\n" % step)
        made.write("lib/leaf", b"leaf %d\n" % step)
        made.commit()
    return made


@pytest.fixture
def git(template: Git, tmp_path: Path) -> Git:
    """A copy of it for one test."""
    shutil.copytree(template.directory, tmp_path / "store")
    return Git(tmp_path / "store")


def agrees(store: Path | Git, reference: Git, rev: str = "main") -> bool:
    """Whether a store is listed as git lists the reference."""
    return rows(listed(store, rev=rev, depth=64)["entries"]) == reference.listing(rev)


def test_a_work_tree_its_git_directory_and_a_bare_store_are_the_same(git: Git, tmp_path: Path) -> None:
    git("clone", "-q", "--bare", ".", str(tmp_path / "bare.git"))
    for store in (git.directory, git.directory / ".git", tmp_path / "bare.git", f"{git.directory}/"):
        assert agrees(Path(store), git)
    (tmp_path / "link").symlink_to(git.directory)
    assert agrees(tmp_path / "link", git)


def test_a_worktree_has_its_own_head_and_the_shared_objects(git: Git, tmp_path: Path) -> None:
    git("worktree", "add", "-q", "--detach", str(tmp_path / "wt"), "HEAD~1")
    worktree = Git(tmp_path / "wt")
    assert (tmp_path / "wt/.git").is_file()
    assert agrees(worktree, worktree, "HEAD")
    assert resolved(worktree, "HEAD") == git("rev-parse", "main~1")
    assert resolved(worktree, "main") == git("rev-parse", "main")
    worktree("checkout", "-q", "--detach", "main")
    assert resolved(worktree, "HEAD") == git("rev-parse", "main")
    git("gc", "-q")
    assert agrees(worktree, worktree, "HEAD")


def test_a_submodule_is_a_store_by_itself(git: Git, tmp_path: Path) -> None:
    outer = new(tmp_path / "outer")
    outer("submodule", "--quiet", "add", str(git.directory), "sub")
    outer.commit()
    assert agrees(outer, outer)
    assert agrees(tmp_path / "outer/sub", git)


def test_refs_and_objects_may_be_packed_at_any_time(git: Git) -> None:
    for step in range(4):
        assert agrees(git, git)
        git("gc", "-q", "--prune=now")
        assert agrees(git, git)
        git.write(f"new{step}", b"n%d" % step)
        git.commit()
    git("repack", "-q", "-a", "-d", "-f")
    assert agrees(git, git)
    assert agrees(git, git, "main~4")


def test_a_pack_that_somebody_else_adds_is_seen(git: Git, tmp_path: Path) -> None:
    git("clone", "-q", ".", str(tmp_path / "clone"))
    clone = Git(tmp_path / "clone")
    assert agrees(clone, git)
    for step in range(120):  # more than git unpacks on fetching
        git.write(f"many/{step}", b"%d" % step)
    git.commit()
    clone("fetch", "-q")
    assert agrees(clone, clone, "origin/main")
    assert resolved(clone, "origin/main") == git("rev-parse", "main")


def test_a_shallow_store_ends_where_it_was_cut_until_it_is_deepened(git: Git, tmp_path: Path) -> None:
    git("clone", "-q", "--depth", "2", f"file://{git.directory}", str(tmp_path / "shallow"))
    shallow = Git(tmp_path / "shallow")
    assert agrees(shallow, git)
    assert agrees(shallow, git, "main~1")
    code, message = refusal(shallow, rev="main~2")
    assert code == "E_NOT_FOUND"
    assert "this shallow store holds only 1 first-parent ancestors" in message
    shallow("fetch", "-q", "--unshallow")
    assert agrees(shallow, git, "main~2")


def test_objects_of_alternates_are_found_also_of_one_that_is_added_later(git: Git, tmp_path: Path) -> None:
    git("clone", "-q", "--bare", "--shared", ".", str(tmp_path / "shared.git"))
    assert agrees(tmp_path / "shared.git", git)
    late = new(tmp_path / "late.git", "--bare")
    assert refusal(late, rev=git("rev-parse", "main"))[0] == "E_NOT_FOUND"
    (tmp_path / "late.git/objects/info/alternates").write_text(f"{git.directory}/.git/objects\n")
    assert resolved(late, git("rev-parse", "main")) == git("rev-parse", "main")


def test_a_partial_clone_is_listed_without_the_sizes_it_does_not_have(git: Git, tmp_path: Path) -> None:
    git("config", "uploadpack.allowFilter", "true")
    git("clone", "-q", "--bare", "--filter=blob:none", f"file://{git.directory}", str(tmp_path / "partial.git"))
    (tmp_path / "partial.git/config").write_text(
        (tmp_path / "partial.git/config").read_text() + '[extensions]\n\tpartialClone = "origin"\n'
    )
    found = listed(tmp_path / "partial.git", rev="main", depth=2)["entries"]
    assert rows(found) == [(name, kind, None, id_) for name, kind, _, id_ in git.listing("main")]
    assert list(found[0]) == ["name", "kind", "id"]


@needs_root
def test_a_store_of_another_account_is_read(git: Git) -> None:
    for directory, _, files in os.walk(git.directory):
        for name in (".", *files):
            os.chown(os.path.join(directory, name), 12345, 12345)
    assert agrees(git, git)


@needs_root
def test_a_store_that_the_account_may_not_read_is_no_repository_to_it(git: Git) -> None:
    git.directory.chmod(0o700)
    assert agrees(git, git)
    os.seteuid(65534)
    try:
        code, message = refusal(git, rev="main")
    finally:
        os.seteuid(0)
    assert code == "E_NOT_A_REPO"
    assert str(git.directory) in message
    assert agrees(git, git)


def test_without_a_repository_the_message_says_how_to_get_one() -> None:
    code, message = refusal(None, rev="main")
    assert code == "E_NOT_A_REPO"
    assert "set `repository`" in message
    assert "start the gateway inside a git repository" in message
    result = ask(None, rev="main")
    assert result.structured is not None
    assert result.structured["meta"]["repo"] is None


def no_repository(kind: str, directory: Path) -> Path:
    directory.mkdir()
    git = new(directory / "repo")
    git.commit()
    match kind:
        case "empty directory":
            return directory
        case "directory inside a work tree":
            (directory / "repo/inside").mkdir()
            return directory / "repo/inside"
        case "objects directory":
            return directory / "repo/.git/objects"
        case "file":
            (directory / "file").write_bytes(b"x")
            return directory / "file"
        case ".git file that leads nowhere":
            (directory / ".git").write_text("gitdir: /nonexistent/x\n")
            return directory
        case ".git file of something else":
            (directory / ".git").write_bytes(b"\0garbage")
            return directory
        case "no HEAD":
            (directory / "repo/.git/HEAD").unlink()
            return directory / "repo"
        case "broken config":
            (directory / "repo/.git/config").write_bytes(b"[core\nx")
            return directory / "repo"
        case "unknown extension":
            git("config", "core.repositoryformatversion", "1")
            git("config", "extensions.refStorage", "reftable")
            return directory / "repo"
        case "unknown version":
            git("config", "core.repositoryformatversion", "9")
            return directory / "repo"
        case _:
            return directory / "missing"


@pytest.mark.parametrize(
    "kind",
    [
        "empty directory",
        "directory inside a work tree",
        "objects directory",
        "file",
        ".git file that leads nowhere",
        ".git file of something else",
        "no HEAD",
        "broken config",
        "unknown extension",
        "unknown version",
        "missing",
    ],
)
def test_what_is_no_repository_is_named(tmp_path: Path, kind: str) -> None:
    store = no_repository(kind, tmp_path / "place")
    code, message = refusal(store, rev="main")
    assert code == "E_NOT_A_REPO"
    assert str(store) in message
    assert "`repository`" in message
    assert TOOL.output_schema is not None
    jsonschema.validate(ask(store, rev="main").structured, TOOL.output_schema)


def test_a_sha_256_store_is_refused_with_that_reason(tmp_path: Path) -> None:
    git = new(tmp_path, "--object-format=sha256")
    commit = git.commit()
    assert len(commit) == 64
    for rev in ("main", commit):
        code, message = refusal(git, rev=rev)
        assert code == "E_NOT_A_REPO"
        assert "SHA-256" in message


def test_a_relative_path_is_refused() -> None:
    code, message = refusal("some/store", rev="main")
    assert code == "E_NOT_A_REPO"
    assert "relative" in message


def test_a_store_that_was_moved_away_works_again_when_it_is_back(git: Git, tmp_path: Path) -> None:
    for _ in range(2):
        assert agrees(git, git)
        git.directory.rename(tmp_path / "away")
        code, message = refusal(git.directory, rev="main")
        assert code == "E_NOT_A_REPO"
        assert f"{git.directory} does not exist" in message
        (tmp_path / "away").rename(git.directory)
    assert agrees(git, git)


def test_a_store_that_was_deleted_and_made_anew_is_the_new_one(git: Git, tmp_path: Path) -> None:
    git("clone", "-q", "--bare", ".", str(tmp_path / "copy.git"))
    assert agrees(git, git)
    shutil.rmtree(git.directory / ".git")
    assert refusal(git, rev="main")[0] == "E_NOT_A_REPO"
    for step in range(3):
        shutil.rmtree(git.directory)
        other = new(git.directory)
        other.write("other", b"other %d" % step)
        other.commit()
        assert agrees(other, other)
    shutil.rmtree(git.directory)
    Git(tmp_path)("clone", "-q", "copy.git", "store")
    assert agrees(git, git)


def test_a_store_whose_head_or_objects_go_and_come_back_works_again(git: Git, tmp_path: Path) -> None:
    for part in (".git/HEAD", ".git/objects", ".git/refs", ".git"):
        assert agrees(git, git)
        (git.directory / part).rename(tmp_path / "part")
        assert refusal(git, rev="main")[0] == "E_NOT_A_REPO"
        (tmp_path / "part").rename(git.directory / part)
    assert agrees(git, git)


def test_two_stores_in_turn_are_never_mixed_up(git: Git, tmp_path: Path) -> None:
    other = new(tmp_path / "other")
    other.write("other", b"o")
    other.commit()
    for _ in range(3):
        assert agrees(git, git)
        assert agrees(other, other)


def test_a_store_in_a_directory_whose_name_is_not_utf_8_is_read(git: Git, tmp_path: Path) -> None:
    place = os.fsdecode(os.fsencode(tmp_path) + b"/caf\xe9")
    git.directory.rename(place)
    result = ask(place, rev="main")
    assert result.structured is not None
    assert result.structured["ok"]
    assert result.structured["meta"]["repo"] == f"{tmp_path}/caf\ufffd"
    shutil.rmtree(place)
    code, message = refusal(place, rev="main")
    assert code == "E_NOT_A_REPO"
    assert "caf\ufffd does not exist" in message


@pytest.mark.parametrize(
    ("roots", "hidden", "words"),
    [
        (("/",), (), None),
        (("{store}",), (), None),
        (("{parent}",), ("{store}x",), None),
        (("/nonexistent", "{parent}"), ("/nonexistent",), None),
        (("/usr",), (), "outside what may be read here (/usr)"),
        (("{store}/lib",), (), "outside what may be read here"),
        (("/",), ("{parent}",), "inside the gateway's own configuration"),
        (("{store}",), ("{store}",), "inside the gateway's own configuration"),
    ],
)
def test_a_store_outside_the_roots_or_inside_the_hidden_is_refused(
    git: Git, roots: tuple[str, ...], hidden: tuple[str, ...], words: str | None
) -> None:
    def filled(paths: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(path.format(store=git.directory, parent=git.directory.parent) for path in paths)

    assert agrees(git, git)  # and is open when a call with other rights comes
    context = Context(roots=filled(roots), hidden=filled(hidden), repository=str(git.directory))
    result = call(TOOL, {"rev": "main"}, None, context)
    assert result.structured is not None
    assert result.structured["ok"] is (words is None)
    if words is not None:
        assert result.structured["error"]["code"] == "E_NOT_A_REPO"
        assert words in result.structured["error"]["message"]


def test_a_git_file_does_not_lead_out_of_the_roots(git: Git, tmp_path: Path) -> None:
    git("worktree", "add", "-q", str(tmp_path / "wt"))
    for way in (tmp_path / "wt", tmp_path / "link"):
        if not way.exists():
            way.symlink_to(git.directory)
        result = call(TOOL, {"rev": "main"}, None, Context(roots=(str(way),), repository=str(way)))
        assert result.structured is not None
        # A root that is a link stands for the place it leads to, as for every path.
        assert result.structured["ok"] is way.is_symlink()


def id_of(git: Git, rev: str) -> str:
    return git("rev-parse", rev)


def damaged_blob(git: Git) -> str:
    id_ = id_of(git, "main:file")
    git.damage(id_)
    return id_


def empty_blob_file(git: Git) -> str:
    git.damage(id_of(git, "main:file"), b"")
    return id_of(git, "main:file")


def damaged_tree(git: Git) -> str:
    id_ = id_of(git, "main^{tree}")
    git.damage(id_)
    return id_


def missing_tree(git: Git) -> str:
    id_ = id_of(git, "main^{tree}")
    git.loose(id_).unlink()
    return id_


def damaged_directory(git: Git) -> str:
    id_ = id_of(git, "main:lib")
    git.damage(id_)
    return id_


def missing_directory(git: Git) -> str:
    id_ = id_of(git, "main:lib")
    git.loose(id_).unlink()
    return id_


def damaged_commit(git: Git) -> str:
    id_ = id_of(git, "main")
    git.damage(id_)
    return id_


def missing_commit(git: Git) -> str:
    id_ = id_of(git, "main")
    git.loose(id_).unlink()
    return id_


def truncated_tree(git: Git) -> str:
    id_ = id_of(git, "main^{tree}")
    git.damage(id_, git.loose(id_).read_bytes()[:-7])
    return id_


def truncated_directory(git: Git) -> str:
    id_ = id_of(git, "main:lib")
    git.damage(id_, git.loose(id_).read_bytes()[:20])
    return id_


def truncated_commit(git: Git) -> str:
    id_ = id_of(git, "main")
    git.damage(id_, git.loose(id_).read_bytes()[:2])
    return id_


def two_question_marks(git: Git) -> str:
    """What libgit2 takes for a format of loose objects that git gave up long ago."""
    id_ = id_of(git, "main^{tree}")
    git.damage(id_, b"??")
    return id_


def truncated_blob(git: Git) -> str:
    id_ = id_of(git, "main:file")
    git.damage(id_, git.loose(id_).read_bytes()[:3])
    return id_


def truncated_in_an_alternate(git: Git) -> str:
    id_ = id_of(git, "main^{tree}")
    (git.directory / ".git/objects").rename(git.directory / ".git/other")
    for name in ("info", "pack"):
        (git.directory / ".git/objects" / name).mkdir(parents=True)
    (git.directory / ".git/objects/info/alternates").write_text("# one\n\n../other\n")
    file = git.directory / ".git/other" / id_[:2] / id_[2:]
    file.chmod(0o600)
    file.write_bytes(file.read_bytes()[:-7])
    return id_


def another_object_in_its_place(git: Git) -> str:
    """A file with the content of one object under the name of another."""
    id_, other = id_of(git, "main:lib"), id_of(git, "main^{tree}")
    git.damage(id_, git.loose(other).read_bytes())
    return id_


def broken_ref(git: Git) -> str:
    (git.directory / ".git/refs/heads/main").write_bytes(b"no id\n")
    return "refs/heads/main"


def empty_ref(git: Git) -> str:
    (git.directory / ".git/refs/heads/main").write_bytes(b"")
    return "refs/heads/main"


def directory_that_is_a_blob(git: Git) -> str:
    blob = id_of(git, "main:file")
    tree = git.object("tree", b"40000 lib\0" + bytes.fromhex(blob))
    git("update-ref", "refs/heads/main", git.object("commit", commit_text(tree)))
    return blob


def tree_of_a_commit_that_is_a_blob(git: Git) -> str:
    blob = id_of(git, "main:file")
    git("update-ref", "refs/heads/main", git.object("commit", commit_text(blob)))
    return blob


def malformed_tree(git: Git) -> str:
    tree = git.object("tree", b"100644 file\0too short")
    git("update-ref", "refs/heads/main", git.object("commit", commit_text(tree)))
    return "malformed at byte 0"


def malformed_commit(git: Git) -> str:
    commit = git.object("commit", b"nonsense")
    (git.directory / ".git/refs/heads/main").write_text(f"{commit}\n")
    return commit


def tag_of_nothing(git: Git) -> str:
    tag = git.object("tag", b"object %s\ntype commit\ntag main\ntagger a <a@b> 0 +0000\n\nt\n" % (b"1" * 40))
    (git.directory / ".git/refs/tags/main").write_text(f"{tag}\n")
    return "1" * 40


def damaged_pack(git: Git) -> str:
    git("gc", "-q")
    pack = next((git.directory / ".git/objects/pack").glob("*.pack"))
    pack.chmod(0o600)
    content = pack.read_bytes()
    pack.write_bytes(content[:12] + bytes(len(content) - 32) + content[-20:])
    return str(git.directory)


def commit_text(tree: str) -> bytes:
    return b"tree %s\nauthor a <a@b> 0 +0000\ncommitter a <a@b> 0 +0000\n\n" % tree.encode()


DAMAGES = [
    damaged_blob,
    empty_blob_file,
    damaged_tree,
    missing_tree,
    damaged_directory,
    missing_directory,
    damaged_commit,
    missing_commit,
    truncated_tree,
    truncated_directory,
    truncated_commit,
    truncated_blob,
    two_question_marks,
    truncated_in_an_alternate,
    another_object_in_its_place,
    broken_ref,
    empty_ref,
    directory_that_is_a_blob,
    tree_of_a_commit_that_is_a_blob,
    malformed_tree,
    malformed_commit,
    tag_of_nothing,
    damaged_pack,
]


@pytest.mark.timeout(20)
@pytest.mark.parametrize("damage", DAMAGES, ids=lambda damage: damage.__name__)
def test_damage_is_named_and_the_tool_goes_on(git: Git, template: Git, damage: Callable[[Git], str]) -> None:
    name = damage(git)
    code, message = refusal(git, rev="main", depth=2)
    assert code == "E_INTERNAL"
    assert name in message
    assert f"the store {git.directory} is damaged" in message
    assert "git fsck" in message
    assert "Traceback" not in message
    assert listed(template, rev="main", depth=2)["entries"]


def test_a_file_whose_content_is_missing_is_listed_without_a_size(git: Git) -> None:
    expected = git.listing("main")
    git.loose(id_of(git, "main:file")).unlink()
    found = rows(listed(git, rev="main", depth=2)["entries"])
    assert found == [(n, k, None if n == b"file" else s, i) for n, k, s, i in expected]


def test_damage_elsewhere_does_not_matter(git: Git) -> None:
    git.damage(id_of(git, "main~1:file"))
    git.damage(id_of(git, "main:lib"))
    assert rows(listed(git, rev="main")["entries"]) == git.listing("main", "", 1)


PROGRAM = """
import json, sys
import pygit2
from pygit2.enums import Option
from tools._tool import Context, call
from tools.read_tree import read_tree
checked = pygit2.option(Option.GET_OWNER_VALIDATION)
assert checked, "set at import"
for arguments in json.loads(sys.argv[2]):
    print(json.dumps(call(read_tree, arguments, None, Context(repository=sys.argv[1])).structured))
"""


def in_a_process(git: Git, calls: list[dict[str, str]], **environment: str) -> list[str]:
    """The texts of calls in a new interpreter with this environment."""
    root = Path(__file__).resolve().parents[2]
    command = [sys.executable, "-W", "error", "-c", PROGRAM, str(git.directory), json.dumps(calls)]
    done = subprocess.run(
        command, cwd=root, env={**ENVIRONMENT, "PYTHONPATH": str(root), **environment}, capture_output=True, check=False
    )
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout.decode().splitlines()


def test_no_configuration_outside_the_store_is_read_and_nothing_is_set_at_import(git: Git, tmp_path: Path) -> None:
    (tmp_path / "git").mkdir()
    for file in (".gitconfig", "git/config"):
        (tmp_path / file).write_bytes(b"[broken")
    (text,) = in_a_process(git, [{"rev": "main"}], HOME=str(tmp_path), XDG_CONFIG_HOME=str(tmp_path))
    assert json.loads(text)["ok"]


@pytest.mark.parametrize("locale", ["C", "C.UTF-8"])
def test_names_beyond_ascii_are_found_in_any_locale(git: Git, locale: str) -> None:
    git.write("größe/日本", b"x")
    git.commit()
    git("branch", "zweig-ß")
    calls = [{"rev": "zweig-ß"}, {"rev": "main", "path": "größe"}, {"rev": "nö"}, {"rev": "main", "path": "nö"}]
    texts = in_a_process(git, calls, LC_ALL=locale, PYTHONUTF8="0", PYTHONCOERCECLOCALE="0")
    assert [json.loads(text)["ok"] for text in texts] == [True, True, False, False]
