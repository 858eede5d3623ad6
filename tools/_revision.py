"""Revision text -> commit: the forms that `read_tree` takes, resolved as gitrevisions(7) resolves them."""

from __future__ import annotations

import os
import re
from typing import Final

import msgspec
import pygit2
from pygit2.enums import ObjectType

from tools._store import Fault, Store
from tools._text import shown

# libgit2 here reads SHA-1 stores only (a SHA-256 store is refused on opening).
ID_DIGITS: Final = 40
# Shorter prefixes are refused even when unique today (seed: at least 12 hex digits).
PREFIX_DIGITS: Final = 12
# Ids that a message about an ambiguous prefix lists at most.
_CANDIDATES: Final = 8

# gitrevisions(7), "<refname>": the first that exists is taken.
_REF_RULES: Final = ("", "refs/", "refs/tags/", "refs/heads/", "refs/remotes/")

_HEX: Final = re.compile("[0-9a-fA-F]+")
_PARTS: Final = re.compile("([^~]+)(?:~([0-9]+))?", re.DOTALL)
# git-check-ref-format(1), what the rules on single tokens below leave over.
_NO_REF: Final = re.compile(r"[\x00-\x20\x7f*?\[\\]|^/|/$|//|(?:^|/)\.|\.lock(?:/|$)|\.$", re.DOTALL)

# Parts of git's syntax that are not taken, and what to do instead.
_REFUSED: Final = (
    ("^", "write `~N` for the N-th first-parent ancestor, or give the id of the commit"),
    ("@{", "reflogs and upstreams are not looked up; give a ref or an id"),
    (":", "give only the revision here and the directory as `path`"),
    ("..", "give one revision, not a range"),
)
_FORMS: Final = (
    f"give a branch, a tag, a remote branch, HEAD, a full id or at least {PREFIX_DIGITS} digits of one, "
    "optionally followed by ~N"
)


class Revision(msgspec.Struct, frozen=True):
    """A revision as asked: `text` whole, `name` without the ancestor part, `back` first-parent steps from there."""

    text: str
    name: str
    back: int


def parse(text: str) -> Revision:
    """The parts of a revision. Raises Fault E_INVALID_ARG for everything that is not one of the forms taken."""
    if not text:
        raise Fault("E_INVALID_ARG", f"rev is empty - {_FORMS}")
    for token, instead in _REFUSED:
        if token in text:
            raise Fault("E_INVALID_ARG", f"rev '{shown(text)}' contains '{token}', which is not taken - {instead}")
    if text == "@":
        raise Fault("E_INVALID_ARG", "rev '@' is not taken - write HEAD")
    parts = _PARTS.fullmatch(text)
    if parts is None:
        raise Fault("E_INVALID_ARG", f"rev '{shown(text)}' is not taken - after '~' write one number, once, at the end")
    name, back = parts.groups()
    if _NO_REF.search(name):
        raise Fault("E_INVALID_ARG", f"rev '{shown(text)}' can be neither a ref name nor an id - {_FORMS}")
    # 18 digits are more steps than any history has; int() refuses numbers of more than 4,300 digits.
    return Revision(text, name, int((back or "0").lstrip("0")[:18] or "0"))


def resolve(revision: Revision, store: Store) -> pygit2.Commit:
    """The commit that a revision names now. Raises Fault: E_NOT_FOUND, E_AMBIGUOUS, E_INVALID_ARG for an object that
    is no commit and for a prefix that is too short, E_INTERNAL for a damaged store."""
    named = _named(revision, store)
    id_, kind = _untagged(named, f"'{shown(revision.name)}'", store)
    if kind != ObjectType.COMMIT:
        through = "" if id_ == named else f"tag {named} of "
        raise Fault(
            "E_INVALID_ARG",
            f"rev '{shown(revision.text)}' names {through}the {kind.name.lower()} {id_}, not a commit - "
            "give a revision that has a commit",
        )
    commit = store.read(id_, f"'{shown(revision.name)}'", pygit2.Commit)
    for step in range(revision.back):
        if not commit.parent_ids:
            there = "this shallow store holds" if store.repository.is_shallow else "it has"
            raise Fault(
                "E_NOT_FOUND",
                f"rev '{shown(revision.text)}' does not exist: from '{shown(revision.name)}' {there} "
                f"only {step} first-parent ancestors",
            )
        commit = store.read(commit.parent_ids[0], f"the parent of commit {commit.id}", pygit2.Commit)
    return commit


def _untagged(id_: str, what: str, store: Store) -> tuple[str, ObjectType]:
    """The object that a chain of annotated tags ends at, and its kind. A blob is not read for that."""
    while True:
        kind = store.kind(id_)
        if kind is None:
            raise store.missing(what, id_)
        if kind != ObjectType.TAG:
            return id_, kind
        what, id_ = f"the target of tag {id_}", str(store.read(id_, what, pygit2.Tag).target)


def _named(revision: Revision, store: Store) -> str:
    """The id of the object that is named. A full id wins over a ref, a ref over a prefix."""
    name = revision.name
    digits = len(name) if _HEX.fullmatch(name) else 0
    if digits == ID_DIGITS:
        if store.kind(name.lower()) is None:
            raise Fault("E_NOT_FOUND", f"rev '{shown(revision.text)}': the store has no object of this id")
        return name.lower()
    target = _ref_target(name, store)
    if target is not None:
        return target
    if PREFIX_DIGITS <= digits < ID_DIGITS:
        return _prefixed(name.lower(), revision, store)
    if 0 < digits < PREFIX_DIGITS:
        raise Fault(
            "E_INVALID_ARG",
            f"rev '{shown(revision.text)}' is no ref of this store, and {digits} digits are too few for an id - "
            f"give at least {PREFIX_DIGITS}",
        )
    raise Fault("E_NOT_FOUND", _unknown(revision, store))


def _unknown(revision: Revision, store: Store) -> str:
    if store.repository.head_is_unborn:
        unborn = store.repository.lookup_reference("HEAD").target
        if revision.name == "HEAD" or str(unborn) in (revision.name, f"refs/heads/{revision.name}"):
            return f"rev '{shown(revision.text)}' has no commit yet: branch {unborn} is unborn"
    return f"rev '{shown(revision.text)}' names no branch, tag, remote branch or commit of this store - {_FORMS}"


def _ref_target(name: str, store: Store) -> str | None:
    for full in (*(rule + name for rule in _REF_RULES), f"refs/remotes/{name}/HEAD"):
        try:
            # Through fsdecode, since pygit2 encodes names as file names: the bytes are UTF-8 whatever the locale.
            target = store.repository.lookup_reference(os.fsdecode(full.encode())).resolve().target
        except (KeyError, ValueError):  # not there, a symbolic ref to nothing, or too long to be a name
            continue
        except (pygit2.GitError, OSError):
            # Files beside HEAD that hold no id (COMMIT_EDITMSG) are no refs; elsewhere it is damage.
            if "/" in full or full == "HEAD":
                raise
            continue
        if isinstance(target, pygit2.Oid):  # `resolve` has followed the symbolic ones, whose target is a name
            return str(target)
    return None


def _prefixed(prefix: str, revision: Revision, store: Store) -> str:
    try:
        return str(store.repository.expand_id(prefix))
    except pygit2.AmbiguousError:
        pass
    except KeyError:
        raise Fault("E_NOT_FOUND", _unknown(revision, store)) from None
    # One object in several packs comes several times.
    same = sorted({str(id_) for id_ in store.odb if str(id_).startswith(prefix)})
    # As git does where a commit is wanted, other objects with the same first digits do not count.
    commits = [id_ for id_ in same if _untagged(id_, f"'{prefix}'", store)[1] == ObjectType.COMMIT]
    if len(commits) == 1:
        return commits[0]
    raise Fault(
        "E_AMBIGUOUS",
        f"rev '{shown(revision.text)}' is the start of several ids - give more digits: "
        f"{', '.join((commits or same)[:_CANDIDATES])}",
    )
