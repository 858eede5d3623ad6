"""Workers: what hangs, dies, fails or waits, and what of it another call ever sees (wire contract, section 6)."""

from __future__ import annotations

import errno
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.walk.client import Stream, text_of, trial
from tests.walk.conftest import Start
from tests.walk.running import Running, alive, as_root, descriptors, eventually

# Seconds that a call of this module's gateway may take.
TIMEOUT = 3
# The most workers of one account (README, "Settings and limits"), and how many calls may wait for one.
MOST, QUEUE = 32, 10_000


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    settings = {"timeouts": {"tool": TIMEOUT}, "limits": {"rate": 0, "in_flight": 20_000}}
    running = Running(tmp_path_factory.mktemp("workers") / "gateway", settings)
    yield running
    running.disconnect()
    assert running.stop() == 0


@pytest.fixture
def fifo(open_directory: Path) -> Iterator[Path]:
    """Whoever opens it to read waits."""
    path = open_directory / "fifo"
    os.mkfifo(path)
    path.chmod(0o644)
    yield path
    path.unlink()


@pytest.fixture
def removable(open_directory: Path) -> Iterator[Path]:
    """A directory that a tool could remove."""
    parent = open_directory / "parent"
    parent.mkdir()
    parent.chmod(0o777)
    path = parent / "removable"
    path.mkdir()
    yield path
    if path.exists():
        path.rmdir()
    parent.rmdir()


def reached(fifo: Path) -> int:
    """A descriptor to write into the FIFO, once a tool is stuck in it; it stays stuck until this is closed."""
    opened: list[int] = []

    def somebody_reads() -> bool:
        try:
            opened.append(os.open(fifo, os.O_WRONLY | os.O_NONBLOCK))
        except OSError as error:
            if error.errno != errno.ENXIO:  # nobody reads
                raise
            return False
        return True

    assert eventually(somebody_reads), "no tool has opened the FIFO"
    return opened[0]


def readers(gateway: Running, fifo: Path) -> set[int]:
    """The workers that have the FIFO open (as root)."""
    return {pid for pid in gateway.workers if str(fifo) in descriptors(pid).values()}


def batch(size: int, do: str, **arguments: Any) -> list[dict[str, Any]]:
    return [trial(number, do, **arguments) for number in range(size)]


def others_answer(stream: Stream, what: str) -> None:
    """20 calls, one after the other, and how long they took."""
    took = []
    for number in range(20):
        begun = time.monotonic()
        assert stream.call("tools/call", trial(number, "answer")["params"], number)["result"]
        took.append((time.monotonic() - begun) * 1000)
    took.sort()
    print(f"beside {what}: 20 calls, median {took[10]:.1f} ms, slowest {took[-1]:.1f} ms")


def still_waiting(stream: Stream) -> bool:
    """Whether no call of the stream was answered until now: answers come in the order of their completion."""
    assert stream.post({"jsonrpc": "2.0", "id": "now", "method": "ping"}).status == 202
    return bool(stream.message()["id"] == "now")


# Timeout


def test_a_tool_stuck_in_a_fifo_times_out_while_20_other_calls_are_answered(
    gateway: Running, alice: str, bob: str, fifo: Path
) -> None:
    stuck, other = gateway.stream(alice), gateway.stream(bob)
    stuck.post(trial("stuck", "fifo", path=str(fifo)))
    held = reached(fifo)
    others_answer(other, "1 stuck call")
    assert still_waiting(stuck)
    assert stuck.message() == {
        "jsonrpc": "2.0",
        "id": "stuck",
        "result": {
            "content": [{"type": "text", "text": "timed out after 3 seconds - the call was stopped"}],
            "isError": True,
        },
    }
    os.close(held)


def test_12_stuck_calls_at_once_do_not_stop_others(gateway: Running, alice: str, bob: str, fifo: Path) -> None:
    stuck, other = gateway.stream(alice), gateway.stream(bob)
    usual = len(gateway.at_rest())
    for call in batch(12, "fifo", path=str(fifo)):
        stuck.post(call)
    held = reached(fifo)
    assert text_of(other.call("tools/call", trial("first", "answer")["params"], "first")) == "done"
    before = set(gateway.workers)
    others_answer(other, "12 stuck calls")
    assert len(set(gateway.workers) - before) < 10  # what stands in for the stuck ones serves more than one call
    assert still_waiting(stuck)
    answers = [stuck.message() for _ in range(12)]
    assert {answer["id"] for answer in answers} == set(range(12))
    assert {text_of(answer) for answer in answers} == {"timed out after 3 seconds - the call was stopped"}
    assert len(gateway.at_rest()) == usual
    os.close(held)


@pytest.mark.parametrize(("seconds", "text"), [(0.5, "0.5"), (1.0, "1")])
def test_the_time_is_told_as_a_person_would_write_it(start: Start, seconds: float, text: str) -> None:
    gateway = start({"timeouts": {"tool": seconds}})
    answer = gateway.stream(gateway.token()).call("tools/call", trial(1, "sleep", seconds=60)["params"])
    assert text_of(answer) == f"timed out after {text} seconds - the call was stopped"


def test_a_call_that_waits_for_a_worker_all_its_time_times_out_too(gateway: Running, alice: str, fifo: Path) -> None:
    stream = gateway.stream(alice)
    assert stream.post(batch(MOST + 8, "fifo", path=str(fifo))).status == 202
    answers = stream.message()
    assert [text_of(answer) for answer in answers] == ["timed out after 3 seconds - the call was stopped"] * (MOST + 8)
    gateway.at_rest()


# Cancellation


def test_a_cancelled_call_is_never_answered_and_its_worker_gives_way_to_a_new_one(
    gateway: Running, alice: str, fifo: Path
) -> None:
    stream = gateway.stream(alice)
    before = set(gateway.at_rest())
    stream.post(trial("stuck", "fifo", path=str(fifo)))
    held = reached(fifo)
    assert stream.post(cancelled("stuck")).status == 202
    assert eventually(lambda: len(before - set(gateway.workers)) == 1)
    (gone,) = before - set(gateway.workers)
    assert not alive(gone)
    assert len(set(gateway.at_rest()) - before) == 1
    assert text_of(stream.call("tools/call", trial(2, "answer")["params"], 2)) == "done"
    os.close(held)


def test_a_call_that_is_cancelled_while_it_waits_never_runs(gateway: Running, alice: str, removable: Path) -> None:
    stream = gateway.stream(alice)
    for call in batch(60, "sleep", seconds=0.08):
        stream.post(call)
    stream.post(trial("queued", "die_once", path=str(removable)))  # would remove the directory
    stream.post(cancelled("queued"))
    assert sorted(stream.message()["id"] for _ in range(60)) == list(range(60))
    assert text_of(stream.call("tools/call", trial("later", "answer")["params"], "later")) == "done"
    assert removable.is_dir()


@pytest.mark.parametrize(
    "params",
    [
        None,
        {},
        [],
        ["running"],
        {"requestId": "unknown"},
        {"requestId": None},
        {"requestId": True},
        {"requestId": 1.0},
        {"requestId": "1"},
        {"requestId": [1]},
        {"requestId": {"requestId": 1}},
        {"requestId": 10**40},
        {"id": 1},
        {"reason": "none"},
    ],
)
def test_a_cancellation_that_names_no_running_call_is_harmless(gateway: Running, alice: str, params: Any) -> None:
    stream = gateway.stream(alice)
    stream.post(trial(1, "sleep", seconds=0.1))
    notification = {"jsonrpc": "2.0", "method": "notifications/cancelled"}
    assert stream.post(notification if params is None else notification | {"params": params}).status == 202
    answer = stream.message()
    assert (answer["id"], text_of(answer)) == (1, "done")


def test_an_answered_call_can_be_cancelled_without_harm(gateway: Running, alice: str) -> None:
    stream = gateway.stream(alice)
    before = gateway.at_rest()
    for number in range(20):
        assert stream.call("tools/call", trial(number, "answer")["params"], number)["result"]
        assert stream.post(cancelled(number)).status == 202
    assert stream.call("ping")["result"] == {}
    assert gateway.at_rest() == before


def test_a_cancelled_call_of_a_batch_leaves_the_answers_of_the_others(gateway: Running, alice: str, fifo: Path) -> None:
    stream = gateway.stream(alice)
    stream.post([trial("stuck", "fifo", path=str(fifo)), trial("quick", "answer")])
    held = reached(fifo)
    stream.post(cancelled("stuck"))
    (answer,) = stream.message()
    assert (answer["id"], text_of(answer)) == ("quick", "done")
    os.close(held)


def cancelled(identifier: Any) -> dict[str, Any]:
    return {
        "jsonrpc": "2.0",
        "method": "notifications/cancelled",
        "params": {"requestId": identifier, "reason": "of a test"},
    }


# Death


def test_a_tool_that_dies_every_time_is_an_error_result_and_others_go_on(gateway: Running, alice: str) -> None:
    stream = gateway.stream(alice)
    stream.post(trial("other", "sleep", seconds=1))
    stream.post(trial("dying", "die"))
    dying, other = stream.message(), stream.message()
    assert dying == {
        "jsonrpc": "2.0",
        "id": "dying",
        "result": {
            "content": [
                {
                    "type": "text",
                    "text": "the process that ran trial/run ended before it answered, twice - try a smaller request; "
                    "the gateway's log says more",
                }
            ],
            "isError": True,
        },
    }
    assert (other["id"], text_of(other)) == ("other", "done")
    gateway.at_rest()


def test_a_call_whose_worker_dies_is_repeated_once_and_answered(gateway: Running, alice: str, removable: Path) -> None:
    answer = gateway.stream(alice).call("tools/call", trial(1, "die_once", path=str(removable))["params"])
    assert text_of(answer) == str(removable)
    assert not removable.exists()


@as_root
def test_a_call_whose_worker_is_killed_is_answered_by_another(gateway: Running, alice: str, fifo: Path) -> None:
    stream = gateway.stream(alice)
    before = set(gateway.at_rest())
    stream.post(trial("killed", "fifo", path=str(fifo)))
    held = reached(fifo)
    assert eventually(lambda: len(readers(gateway, fifo)) == 1)
    (killed,) = readers(gateway, fifo)
    assert killed in before
    os.kill(killed, signal.SIGKILL)
    assert eventually(lambda: len(readers(gateway, fifo) - {killed}) == 1)
    os.close(held)
    answer = stream.message()
    assert (answer["id"], text_of(answer)) == ("killed", str(fifo))


def test_idle_workers_that_are_killed_are_replaced(gateway: Running, alice: str) -> None:
    stream = gateway.stream(alice)
    before = gateway.at_rest()
    for pid in before:
        os.kill(pid, signal.SIGKILL)
        assert text_of(stream.call("tools/call", trial(pid, "answer")["params"], pid)) == "done"
    assert eventually(lambda: not set(before) & set(gateway.workers))
    assert len(gateway.at_rest()) == len(before)


def test_all_idle_workers_killed_at_once_do_not_cost_a_call(gateway: Running, alice: str) -> None:
    stream = gateway.stream(alice)

    def settled() -> bool:
        """Whether the workers are those that the gateway has known for some calls: no new one is on its way."""
        before = gateway.at_rest()
        for number in range(5):
            assert stream.call("tools/call", trial(number, "answer")["params"], number)["result"]
        return gateway.at_rest() == before

    for number in range(5):
        assert eventually(settled)
        for pid in gateway.workers:
            os.kill(pid, signal.SIGKILL)
        assert text_of(stream.call("tools/call", trial(number, "answer")["params"], number)) == "done"
    gateway.at_rest()


def test_a_worker_whose_call_leaves_a_thread_behind_is_replaced(gateway: Running, alice: str, fifo: Path) -> None:
    stream = gateway.stream(alice)
    before = set(gateway.at_rest())
    assert stream.call("tools/call", trial(1, "linger", path=str(fifo))["params"])["result"]
    assert eventually(lambda: len(before - set(gateway.workers)) == 1)
    assert len(set(gateway.at_rest()) - before) == 1
    assert text_of(stream.call("tools/call", trial(2, "answer")["params"], 2)) == "done"


def test_a_bug_of_a_tool_is_an_internal_error_whose_text_is_in_the_log_alone(gateway: Running, alice: str) -> None:
    before = gateway.at_rest()
    assert gateway.stream(alice).call("tools/call", trial(1, "bug")["params"]) == {
        "jsonrpc": "2.0",
        "id": 1,
        "error": {"code": -32603, "message": "Internal error"},
    }
    assert "AssertionError: a bug of the tool, with" in gateway.log
    assert gateway.at_rest() == before  # a bug is no reason to end a worker


# Queue


def test_hundreds_of_calls_of_one_identity_do_not_hold_up_another_s(gateway: Running, alice: str, bob: str) -> None:
    many, one = gateway.stream(alice), gateway.stream(bob)
    for _ in range(5):
        assert many.post(batch(100, "sleep", seconds=0.02)).status == 202
    begun = time.monotonic()
    assert text_of(one.call("tools/call", trial("one", "answer")["params"], "one")) == "done"
    took = (time.monotonic() - begun) * 1000
    many.post({"jsonrpc": "2.0", "id": "now", "method": "ping"})
    batches_before = 0
    while isinstance(many.message(), list):
        batches_before += 1
    print(
        f"one call beside 500 queued ones of another identity: {took:.1f} ms, {batches_before} of 5 batches before it"
    )
    assert batches_before <= 2
    for _ in range(5 - batches_before):
        assert len(many.message()) == 100


def test_a_session_has_its_number_of_calls_and_no_more(start: Start, fifo: Path) -> None:
    gateway = start({"limits": {"in_flight": 3}})
    stream, other = (gateway.stream(gateway.token()) for _ in range(2))
    for number in range(3):
        assert stream.post(trial(number, "fifo", path=str(fifo))).status == 202
    response = stream.post(trial("4th", "answer"))
    assert (response.status, response.body, response.header("Retry-After")) == (503, b"Busy\n", "1")
    refusal = stream.message()
    assert (refusal["id"], refusal["error"]["message"]) == ("4th", "Busy")
    assert stream.call("ping")["result"] == {}
    assert other.tool("trial/run", do="answer")["content"]
    os.close(reached(fifo))


def test_past_the_queue_calls_are_busy_until_there_is_room(start: Start, fifo: Path) -> None:
    """bob holds every worker there may be, alice fills the queue; when she leaves, carol's call has its place, though
    no worker has come free meanwhile."""
    gateway = start({"limits": {"rate": 0, "in_flight": 20_000}})
    many, stuck, late = (gateway.stream(gateway.token(name)) for name in ("alice", "bob", "carol"))
    for call in batch(MOST + 8, "fifo", path=str(fifo)):
        stuck.post(call)
    assert eventually(lambda: len(gateway.workers) == MOST)
    accepted = 0
    while (response := many.post(batch(100, "answer"))).status == 202:
        accepted += 100
        assert accepted < 2 * QUEUE
    assert accepted >= QUEUE - MOST
    assert (response.status, response.body, response.header("Retry-After")) == (503, b"Busy\n", "1")
    assert {answer["error"]["message"] for answer in many.message()} == {"Busy"}
    assert late.post(trial("late", "answer")).status == 503
    assert late.message()["error"]["message"] == "Busy"
    assert late.call("ping")["result"] == {}
    many.close()
    assert eventually(lambda: late.post(trial("late", "answer")).status == 202, 5)
    stuck.close()
    while "error" in (answer := late.message()):
        assert answer["error"]["message"] == "Busy"
    assert text_of(answer) == "done"
    gateway.at_rest()
