"""The frames on their way to one client: order, slices, size, waiting and the end."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine

import pytest

from gateway.session import SLICE, Outbox


def run(test: Coroutine[None, None, None]) -> None:
    """Runs a test's coroutine with a bound on its waits."""

    async def bounded() -> None:
        async with asyncio.timeout(20):
            await test

    asyncio.run(bounded())


async def chunks(outbox: Outbox) -> list[bytes]:
    """Everything until the outbox ends, as a client takes it."""
    return [chunk async for chunk in outbox]


async def settled() -> None:
    """Lets every task that can go on do so."""
    for _ in range(5):
        await asyncio.sleep(0)


@pytest.mark.parametrize(
    ("frames", "sizes"),
    [
        pytest.param([], [], id="nothing"),
        pytest.param([b"a"], [1], id="one small"),
        pytest.param([b"a", b"bc", b"def"], [6], id="small ones go together"),
        pytest.param([b"a" * SLICE], [SLICE], id="exactly one slice"),
        pytest.param([b"a" * (SLICE + 1)], [SLICE, 1], id="one byte over"),
        pytest.param([b"a" * (3 * SLICE + 7)], [SLICE, SLICE, SLICE, 7], id="large"),
        pytest.param([b"a" * (SLICE - 1), b"b", b"c"], [SLICE, 1], id="together up to a slice"),
        pytest.param([b"a" * (SLICE - 1), b"bc"], [SLICE - 1, 2], id="a frame that fits is not cut"),
        pytest.param(
            [b"a", b"b" * (SLICE + 5), b"c"], [1, SLICE, 6], id="the rest of a large one takes small ones along"
        ),
    ],
)
def test_frames_come_whole_and_in_order_in_writes_of_a_slice_at_most(frames: list[bytes], sizes: list[int]) -> None:
    async def test() -> None:
        outbox = Outbox(10_000_000)
        for frame in frames:
            outbox.put(frame)
        assert outbox.size == sum(map(len, frames))
        outbox.close()
        taken = await chunks(outbox)
        assert [len(chunk) for chunk in taken] == sizes
        assert b"".join(taken) == b"".join(frames)
        assert all(type(chunk) is bytes for chunk in taken)
        assert outbox.size == 0
        assert outbox.idle

    run(test())


def test_what_is_being_written_still_counts() -> None:
    async def test() -> None:
        outbox = Outbox(10)
        outbox.put(b"12345")
        outbox.put(b"67890")
        assert outbox.full
        assert await anext(outbox) == b"1234567890"
        assert (outbox.size, outbox.full, outbox.idle) == (10, True, False)
        outbox.put(b"x")
        assert outbox.size == 11
        assert await anext(outbox) == b"x"
        assert (outbox.size, outbox.full) == (1, False)
        outbox.close()
        with pytest.raises(StopAsyncIteration):
            await anext(outbox)
        assert outbox.size == 0

    run(test())


def test_a_large_frame_is_freed_slice_by_slice() -> None:
    async def test() -> None:
        outbox = Outbox(10)
        outbox.put(b"a" * (2 * SLICE))
        await anext(outbox)
        assert outbox.size == 2 * SLICE
        await anext(outbox)
        assert outbox.size == SLICE
        outbox.close()
        assert await chunks(outbox) == []
        assert outbox.size == 0

    run(test())


def test_a_reader_waits_for_the_next_frame() -> None:
    async def test() -> None:
        outbox = Outbox(10)
        reader = asyncio.create_task(chunks(outbox))
        for frame in (b"one", b"two"):
            await settled()
            assert not reader.done()
            outbox.put(frame)
        await settled()
        outbox.close()
        assert await reader == [b"one", b"two"]

    run(test())


def test_frames_put_while_the_reader_waits_go_out_together() -> None:
    async def test() -> None:
        outbox = Outbox(10)
        reader = asyncio.create_task(chunks(outbox))
        await settled()
        for frame in (b"a", b"b", b"c"):
            outbox.put(frame)
        outbox.close()
        assert await reader == [b"abc"]

    run(test())


def test_closing_writes_what_is_there_and_takes_nothing_more() -> None:
    async def test() -> None:
        outbox = Outbox(10)
        outbox.put(b"last")
        outbox.close()
        assert outbox.closed
        outbox.put(b"late")
        assert outbox.size == 4
        assert await chunks(outbox) == [b"last"]
        assert await chunks(outbox) == []

    run(test())


def test_closing_ends_a_reader_that_waits() -> None:
    async def test() -> None:
        outbox = Outbox(10)
        reader = asyncio.create_task(chunks(outbox))
        await settled()
        outbox.close()
        outbox.close()
        assert await reader == []

    run(test())


def test_a_reader_that_was_cancelled_can_be_followed_by_another() -> None:
    async def test() -> None:
        outbox = Outbox(10)
        reader = asyncio.create_task(chunks(outbox))
        await settled()
        reader.cancel()
        await asyncio.wait([reader])
        outbox.put(b"kept")
        outbox.close()
        assert await chunks(outbox) == [b"kept"]

    run(test())


def test_room_returns_at_once_below_the_limit() -> None:
    async def test() -> None:
        outbox = Outbox(10)
        outbox.put(b"123456789")
        await outbox.room()

    run(test())


def test_room_wakes_all_who_wait_once_the_bytes_are_written() -> None:
    async def test() -> None:
        outbox = Outbox(10)
        outbox.put(b"1234567890")
        waiting = [asyncio.create_task(outbox.room()) for _ in range(3)]
        await settled()
        assert await anext(outbox) == b"1234567890"
        await settled()
        assert not any(task.done() for task in waiting)  # handed over is not yet written
        reader = asyncio.ensure_future(anext(outbox))
        await asyncio.gather(*waiting)
        reader.cancel()
        await asyncio.wait([reader])

    run(test())


def test_who_finds_the_room_taken_again_waits_on() -> None:
    async def test() -> None:
        outbox = Outbox(10)
        outbox.put(b"1234567890")

        async def fill() -> None:
            await outbox.room()
            outbox.put(b"abcdefghij")

        fillers = [asyncio.create_task(fill()) for _ in range(3)]
        await settled()
        taken = [await anext(outbox)]
        for _ in range(3):
            taken.append(await anext(outbox))
            await settled()
            assert outbox.size == 10
        assert taken == [b"1234567890"] + [b"abcdefghij"] * 3
        await asyncio.gather(*fillers)

    run(test())


def test_who_stops_waiting_for_room_is_in_nobodys_way() -> None:
    async def test() -> None:
        outbox = Outbox(1)
        outbox.put(b"x")
        first, second = (asyncio.create_task(outbox.room()) for _ in range(2))
        await settled()
        first.cancel()
        await asyncio.wait([first])
        outbox.close()
        assert await chunks(outbox) == [b"x"]
        await second

    run(test())
