"""Git stores for the tests of `read_tree`, made by the machine's git, and what that git lists in them."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

from tools._tool import Context, Result, call
from tools.read_tree import read_tree

TOOL = read_tree

ENVIRONMENT = {
    "PATH": os.environ["PATH"],
    "HOME": "/nonexistent",
    "LC_ALL": "C.UTF-8",
    "GIT_CONFIG_GLOBAL": "/dev/null",
    "GIT_CONFIG_SYSTEM": "/dev/null",
    "GIT_AUTHOR_NAME": "A",
    "GIT_AUTHOR_EMAIL": "a@example.com",
    "GIT_COMMITTER_NAME": "C",
    "GIT_COMMITTER_EMAIL": "c@example.com",
}

# What a caller sees of one entry: name, kind, size (None: no such member), id.
Row = tuple[bytes, str, int | None, str]


class Git:
    """The machine's git in one directory."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def raw(self, *arguments: str | bytes, stdin: bytes = b"") -> bytes:
        # safe.directory: some tests hand a store to another account, and git must still list it.
        command = ["git", "-c", "safe.directory=*", "-c", "protocol.file.allow=always", *arguments]
        return subprocess.run(
            command, cwd=self.directory, env=ENVIRONMENT, input=stdin, check=True, capture_output=True
        ).stdout

    def __call__(self, *arguments: str | bytes, stdin: bytes = b"") -> str:
        return self.raw(*arguments, stdin=stdin).decode().strip()

    def write(self, name: str, content: bytes) -> None:
        file = self.directory / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content)

    def commit(self, message: str = "c") -> str:
        """Commits everything in the work tree; the new commit's id."""
        self("add", "-A")
        self("commit", "-q", "--allow-empty", "-m", message)
        return self("rev-parse", "HEAD")

    def object(self, kind: str, content: bytes) -> str:
        """Writes any object, malformed ones too; its id."""
        return self("hash-object", "-w", "-t", kind, "--literally", "--stdin", stdin=content)

    def commit_of(self, tree: str, *parents: str) -> str:
        return self("commit-tree", tree, *(part for parent in parents for part in ("-p", parent)), "-m", "c")

    def loose(self, id_: str) -> Path:
        """Where a loose object's file is."""
        inside = self.directory / ".git"
        return (inside if inside.exists() else self.directory) / "objects" / id_[:2] / id_[2:]

    def damage(self, id_: str, content: bytes = b"damaged") -> None:
        """Overwrites a loose object's file."""
        self.loose(id_).chmod(0o600)
        self.loose(id_).write_bytes(content)

    def listing(self, rev: str, path: str = "", depth: int = 64) -> list[Row]:
        """`git ls-tree -l` of a directory, for a depth over 1 with `-r -t`, cut at that depth."""
        recursion = ["-r", "-t"] if depth > 1 else []
        lines = self.raw("ls-tree", "-z", "-l", *recursion, f"{rev}:{path}").split(b"\0")[:-1]
        return [row for row in map(_row, lines) if row[0].count(b"/") < depth]


def new(directory: Path, *options: str) -> Git:
    directory.mkdir(parents=True, exist_ok=True)
    git = Git(directory)
    git("init", "-q", "-b", "main", *options)
    return git


def _row(line: bytes) -> Row:
    facts, name = line.split(b"\t", 1)
    mode, type_, id_, size = facts.split()
    kind = {b"tree": "dir", b"commit": "submodule"}.get(type_, "symlink" if mode == b"120000" else "file")
    return name, kind, None if size == b"-" else int(size), id_.decode()


def ask(store: Path | Git | str | None, **arguments: Any) -> Result:
    """One call as a client makes it."""
    if isinstance(store, Git):
        store = store.directory
    return call(TOOL, arguments, None, Context(repository=None if store is None else str(store)))


def listed(store: Path | Git, **arguments: Any) -> dict[str, Any]:
    """The `result` of a call that must succeed."""
    result = ask(store, **arguments)
    assert result.structured is not None
    assert result.structured["ok"], result.structured["error"]
    found: dict[str, Any] = result.structured["result"]
    return found


def refusal(store: Path | Git | str | None, **arguments: Any) -> tuple[str, str]:
    """Code and message of a call that must fail."""
    result = ask(store, **arguments)
    assert result.structured is not None
    assert not result.structured["ok"], result.text[:500]
    error = result.structured["error"]
    return error["code"], error["message"]


def resolved(store: Path | Git, rev: str) -> str:
    """The full id that a revision is resolved to."""
    result = ask(store, rev=rev)
    assert result.structured is not None
    assert result.structured["ok"], result.structured["error"]
    ids: dict[str, str] = result.structured["meta"]["resolved"]
    assert list(ids) == [rev]
    return ids[rev]


def rows(entries: list[dict[str, Any]]) -> list[Row]:
    """Entries of a result in the form of `Git.listing`, names by their exact bytes."""
    return [
        (
            bytes.fromhex(entry["name_hex"]) if "name_hex" in entry else entry["name"].encode(),
            entry["kind"],
            entry.get("size"),
            entry["id"],
        )
        for entry in entries
    ]


def pages(store: Path | Git, limits: list[int], **arguments: Any) -> list[list[dict[str, Any]]]:
    """All pages of a listing, read with these limits in turn, over and over."""
    found: list[list[dict[str, Any]]] = []
    cursor: dict[str, str] = {}
    while True:
        limit = limits[len(found) % len(limits)]
        result = listed(store, limit=limit, **cursor, **arguments)
        found.append(result["entries"])
        if not result["truncated"]:
            assert "cursor" not in result
            return found
        assert len(result["entries"]) == limit
        cursor = {"cursor": result["cursor"]}
