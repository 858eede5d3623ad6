"""How a POST reaches the session that holds the stream, wherever that is.

`LocalBus` serves one process. Another process' sessions would be found by the same protocol.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

from gateway.auth import Identity
from gateway.jsonrpc import Batch, Message
from gateway.session import Delivery, Session


class Inbox(Protocol):
    """The receiving end of one session."""

    identity: Identity

    def deliver(self, message: Message | Batch, identity: Identity) -> Delivery:
        """Hands a message over; the answer says whether the session took it."""

    def refuse(self, message: Message | Batch, why: str) -> None:
        """Has each call of a message that is not accepted answered on the stream."""


class Bus(Protocol):
    """Session ids to inboxes."""

    def find(self, session_id: str) -> Inbox | None:
        """The open session of that id; who may use it is the caller's check."""


class LocalBus:
    """The sessions of this process."""

    def __init__(self) -> None:
        self._sessions: dict[str, Session] = {}

    @contextmanager
    def holding(self, session: Session) -> Iterator[None]:
        """Within it the session can be found."""
        self._sessions[session.id] = session
        try:
            yield
        finally:
            del self._sessions[session.id]

    def find(self, session_id: str) -> Session | None:
        session = self._sessions.get(session_id)
        return None if session is None or session.outbox.closed else session

    def __iter__(self) -> Iterator[Session]:
        return iter(list(self._sessions.values()))

    def __len__(self) -> int:
        return len(self._sessions)
