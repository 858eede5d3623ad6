"""How much an identity may ask for: a token bucket for messages, counts for streams.

The `limits` package has windows but no token bucket, and a window lets through twice its rate at its edge.
"""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable

from gateway.auth import Identity

Key = tuple[str, str]


def key(identity: Identity) -> Key:
    return identity.issuer, identity.subject


class Rate:
    """A token bucket for each identity: `rate` tokens a second, `burst` at most. rate 0: no limit."""

    def __init__(self, rate: float, burst: int, now: Callable[[], float] = time.monotonic) -> None:
        self._rate = rate
        self._burst = burst
        self._now = now
        self._buckets: dict[Key, tuple[float, float]] = {}

    def take(self, identity: Identity, messages: int = 1) -> int:
        """0 when that many messages may pass; else the whole seconds to wait (`Retry-After`), and none is taken.
        A batch larger than `burst` costs a full bucket: it could never pass otherwise."""
        if self._rate == 0:
            return 0
        cost = min(messages, self._burst)
        now = self._now()
        level, since = self._buckets.get(key(identity), (float(self._burst), now))
        level = min(self._burst, level + (now - since) * self._rate)
        if level < cost:  # nothing is written down: many small sums would round the promised moment away
            return max(1, math.ceil((cost - level) / self._rate))
        self._buckets[key(identity)] = level - cost, now
        return 0

    def forget_full(self) -> None:
        """Drops buckets that are full again: they are as good as new."""
        now = self._now()
        full = [k for k, (level, since) in self._buckets.items() if level + (now - since) * self._rate >= self._burst]
        for k in full:
            del self._buckets[k]


class Streams:
    """Counts open streams, in all and for each identity."""

    def __init__(self, most: int, most_per_identity: int) -> None:
        self._most = most
        self._most_per_identity = most_per_identity
        self._open: Counter[Key] = Counter()
        self.total = 0

    def full(self) -> bool:
        return self.total >= self._most

    def full_for(self, identity: Identity) -> bool:
        return self._open.get(key(identity), 0) >= self._most_per_identity

    def add(self, identity: Identity) -> None:
        self._open[key(identity)] += 1
        self.total += 1

    def remove(self, identity: Identity) -> None:
        self.total -= 1
        self._open[key(identity)] -= 1
        if not self._open[key(identity)]:
            del self._open[key(identity)]
