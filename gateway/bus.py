"""How a POST reaches the session that holds the stream.

This bus serves one process. One for several would answer `find` with an inbox that passes messages on: `identity`,
`deliver` and `refuse` are all that a POST needs of a session.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from gateway.session import Session


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
