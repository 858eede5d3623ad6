"""Cursors of `read_tree`: where a listing goes on, as text that is opaque, URL-safe and checks itself.

A cursor is not a secret and grants nothing: workers of one gateway, and gateways behind one address, share no key, so
the check is a plain digest that finds alterations, not forgeries. Whoever computes one of their own reads a commit of
this store, which its full id as `rev` gives as well, and at worst starts at an odd offset in it. An offset where no
entry can be is refused.
"""

from __future__ import annotations

import sys
from base64 import urlsafe_b64decode, urlsafe_b64encode
from hashlib import blake2b
from typing import Annotated, Final

import msgspec

from tools._store import Fault

# Of the check and of the two bindings: 2**-96 and 2**-64 that an accident goes unseen.
_CHECK_BYTES: Final = 12
_BINDING_BYTES: Final = 8
# Keeps these digests apart from all others; a change of the format below changes the number.
_PURPOSE: Final = b"read_tree/1"


class Place(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """Where a listing goes on.

    commit    the id of the commit that is listed, as bytes
    rev       digest of the revision text of the first page
    path      digest of the directory listed
    depth     levels listed
    position  of the next entry: its offset in the tree object of the directory listed, or the offset there of the
              directory that holds it, then the offset in that, and so on. Trees never change, so offsets name
              entries for ever, and a directory can be entered in the middle.
    """

    commit: Annotated[bytes, msgspec.Meta(min_length=20, max_length=20)]
    rev: bytes
    path: bytes
    depth: int
    position: tuple[Annotated[int, msgspec.Meta(ge=0, le=sys.maxsize)], ...]


def binding(text: str) -> bytes:
    """What stands for a revision text or a path in a cursor."""
    return blake2b(text.encode(), digest_size=_BINDING_BYTES, person=_PURPOSE).digest()


def write(place: Place) -> str:
    body = msgspec.msgpack.encode(place)
    return urlsafe_b64encode(_check(body) + body).rstrip(b"=").decode("ascii")


def read(text: str, path: str, depth: int) -> Place:
    """The place that a cursor names. Raises Fault E_INVALID_ARG for one that was altered, is no cursor of this tool,
    or belongs to a listing of another path or depth."""
    place = _decoded(text)
    if place is None or write(place) != text:  # the second: other spellings of the same bytes
        raise Fault(
            "E_INVALID_ARG",
            "cursor is not one that read_tree gave, or it was altered - pass it back exactly as it came, "
            "or leave it out to start again",
        )
    if place.path != binding(path):
        raise Fault("E_INVALID_ARG", "cursor belongs to another path - repeat the path of its page, or leave it out")
    if place.depth != depth:
        raise Fault(
            "E_INVALID_ARG",
            f"cursor belongs to a listing of depth {place.depth}, not {depth} - repeat that depth, or leave it out",
        )
    return place


def _decoded(text: str) -> Place | None:
    try:
        data = urlsafe_b64decode(text.encode("ascii") + b"=" * (-len(text) % 4))
        check, body = data[:_CHECK_BYTES], data[_CHECK_BYTES:]
        return msgspec.msgpack.decode(body, type=Place) if check == _check(body) else None
    except ValueError:  # not ASCII, not base64, not this shape: binascii.Error and msgspec's errors are ValueErrors
        return None


def _check(body: bytes) -> bytes:
    return blake2b(body, digest_size=_CHECK_BYTES, person=_PURPOSE).digest()
