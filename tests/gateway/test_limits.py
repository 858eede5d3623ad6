"""The token bucket (wire contract, section 4 row 7) and the count of streams, by a clock that the test turns."""

from __future__ import annotations

import pytest

from gateway.auth import Identity
from gateway.limits import Rate, Streams

ALICE = Identity("ssegate", "alice", 4e9, "")
BOB = Identity("ssegate", "bob", 4e9, "")


class Clock:
    def __init__(self) -> None:
        self.time = 5000.0

    def __call__(self) -> float:
        return self.time


@pytest.mark.parametrize(
    ("rate", "burst", "steps"),
    [
        # steps: (seconds since the step before, messages, what `take` says)
        pytest.param(50, 3, [(0, 1, 0), (0, 1, 0), (0, 1, 0), (0, 1, 1)], id="a burst, then a second to wait"),
        pytest.param(50, 1, [(0, 1, 0), (0.02, 1, 0), (0.02, 1, 0), (0.01, 1, 1), (0.01, 1, 0)], id="steady"),
        pytest.param(1, 2, [(0, 2, 0), (0.5, 1, 1), (0.5, 1, 0), (0, 1, 1)], id="half a token is none"),
        pytest.param(0.1, 1, [(0, 1, 0), (0, 1, 10), (3, 1, 7), (6, 1, 1), (1, 1, 0)], id="slower than one a second"),
        pytest.param(1, 5, [(0, 5, 0), (1000, 5, 0), (0, 1, 1)], id="never more than the burst is saved up"),
        pytest.param(1, 5, [(0, 3, 0), (0, 3, 1), (0, 2, 0)], id="a refusal takes nothing"),
        pytest.param(2, 10, [(0, 10, 0), (0, 10, 5), (5, 10, 0)], id="a batch costs its messages"),
        pytest.param(2, 10, [(0, 100, 0), (0, 1, 1), (5, 100, 0)], id="a batch over the burst costs a full bucket"),
        pytest.param(2, 10, [(0, 1, 0), (0, 100, 1), (0.5, 100, 0)], id="and waits for a full bucket"),
        pytest.param(1, 1, [(0, 1, 0), (0, 0, 0)], id="nothing costs nothing"),
        pytest.param(0, 1, [(0, 1, 0)] * 1000, id="rate 0 is no limit"),
    ],
)
def test_a_bucket_gives_and_refuses(rate: float, burst: int, steps: list[tuple[float, int, int]]) -> None:
    clock = Clock()
    bucket = Rate(rate, burst, clock)
    said = []
    for pause, messages, _ in steps:
        clock.time += pause
        said.append(bucket.take(ALICE, messages))
    assert said == [wait for _, _, wait in steps]


def test_who_waits_as_long_as_told_is_let_in_however_often_it_asks_before() -> None:
    clock = Clock()
    clock.time = 0.0
    bucket = Rate(0.1, 1, clock)
    assert bucket.take(ALICE) == 0
    assert bucket.take(ALICE) == 10
    for _ in range(9):
        clock.time += 1
        assert bucket.take(ALICE) > 0
    clock.time += 1
    assert bucket.take(ALICE) == 0


def test_each_identity_has_its_own_bucket() -> None:
    bucket = Rate(1, 1, Clock())
    assert bucket.take(ALICE) == 0
    assert bucket.take(BOB) == 0
    assert bucket.take(Identity("elsewhere", "alice", 4e9, "")) == 0
    # Another token of the same person is no other identity.
    assert bucket.take(Identity("ssegate", "alice", 5e9, "new")) == 1


def test_forgetting_full_buckets_changes_no_answer() -> None:
    clock = Clock()
    bucket = Rate(1, 2, clock)
    assert bucket.take(ALICE, 2) == 0
    clock.time += 1
    bucket.forget_full()
    assert bucket.take(ALICE, 2) == 1
    clock.time += 1
    bucket.forget_full()
    assert bucket.take(ALICE, 2) == 0


def test_streams_are_counted_in_all_and_for_each_identity() -> None:
    streams = Streams(most=3, most_per_identity=2)
    assert not streams.full()
    streams.add(ALICE)
    assert not streams.full_for(ALICE)
    streams.add(ALICE)
    assert streams.full_for(ALICE)
    assert streams.full_for(Identity("ssegate", "alice", 5e9, "new"))
    assert not streams.full_for(BOB)
    assert not streams.full()
    streams.add(BOB)
    assert streams.full()
    assert streams.total == 3
    streams.remove(ALICE)
    assert not streams.full()
    assert not streams.full_for(ALICE)
    streams.remove(ALICE)
    streams.remove(BOB)
    assert streams.total == 0
