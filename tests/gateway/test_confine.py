"""Giving up rights, shown in forked children: nothing here can be tried in the test's own process."""

from __future__ import annotations

import fcntl
import json
import os
import pwd
import resource
import select
import signal
import subprocess
import traceback
from collections.abc import Callable, Iterable
from typing import Any

import pytest

from gateway import confine
from gateway.confine import Account, NotConfined, become, close_all_but, settle

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root has ids to give up")
NOBODY = "nobody"
# Where a child of these tests writes what it found.
REPORT = 59


def in_child(work: Callable[[], Any]) -> Any:
    """What `work` returns in a forked child, by way of JSON."""
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.dup2(writer, REPORT)
        try:
            answer = json.dumps({"answer": work()})
        except BaseException:  # noqa: BLE001 - the test that waits for it tells
            answer = json.dumps({"failure": traceback.format_exc()})
        os.write(REPORT, answer.encode())
        os._exit(0)
    os.close(writer)
    with open(reader, "rb") as pipe:
        answer = pipe.read().decode()
    os.waitpid(pid, 0)
    loaded = json.loads(answer)
    assert "failure" not in loaded, loaded["failure"]
    return loaded["answer"]


def status(*names: str) -> list[str]:
    """Lines of /proc/self/status, by their names (proc_pid_status(5))."""
    with open("/proc/self/status") as file:
        lines = dict(line.rstrip("\n").split(":\t", 1) for line in file if ":\t" in line)
    return [lines[name] for name in names]


def refused(*attempts: Callable[[], object]) -> list[bool]:
    """For each attempt whether the kernel refused it."""
    results = []
    for attempt in attempts:
        try:
            attempt()
        except PermissionError:
            results.append(True)
        else:
            results.append(False)
    return results


def groups_of(name: str) -> set[int]:
    printed = subprocess.run(["id", "-G", name], capture_output=True, check=True, text=True)
    return {int(group) for group in printed.stdout.split()}


def account_in_several_groups() -> str:
    return next((entry.pw_name for entry in pwd.getpwall() if len(groups_of(entry.pw_name)) > 1), NOBODY)


# Accounts


def test_an_account_is_what_passwd_says() -> None:
    ids = [
        int(subprocess.run(["id", option, NOBODY], capture_output=True, check=True, text=True).stdout)
        for option in ("-u", "-g")
    ]
    assert Account.named(NOBODY) == Account(NOBODY, *ids)
    assert Account.current().uid == os.getuid()


def test_an_unknown_account_is_a_key_error() -> None:
    with pytest.raises(KeyError):
        Account.named("no-such-account")


@needs_root
def test_an_account_without_a_name_goes_by_its_number() -> None:
    def work() -> Any:
        os.setgid(4_000_000)
        os.setuid(4_000_000)
        current = Account.current()
        return [current.name, current.uid, current.gid]

    assert in_child(work) == ["4000000", 4_000_000, 4_000_000]


# Ids


@needs_root
def test_become_takes_on_all_ids_and_leaves_no_way_back() -> None:
    account = Account.named(NOBODY)

    def work() -> Any:
        become(account, with_groups=False)
        return {
            "uid": status("Uid"),
            "gid": status("Gid"),
            "groups": os.getgroups(),
            "capabilities": status("CapPrm", "CapEff", "CapAmb"),
            "refused": refused(
                lambda: os.setuid(0),
                lambda: os.seteuid(0),
                lambda: os.setresuid(0, 0, 0),
                lambda: os.setgid(0),
                lambda: os.setegid(0),
                lambda: os.setgroups([0]),
                lambda: os.kill(1, 0),
                lambda: os.listdir("/proc/1/fd"),
            ),
        }

    assert in_child(work) == {
        "uid": ["\t".join([str(account.uid)] * 4)],
        "gid": ["\t".join([str(account.gid)] * 4)],
        "groups": [],
        "capabilities": ["0" * 16] * 3,
        "refused": [True] * 8,
    }


@needs_root
def test_become_takes_on_the_groups_of_the_account_where_asked() -> None:
    name = account_in_several_groups()
    account = Account.named(name)

    def work() -> Any:
        become(account, with_groups=True)
        return sorted(os.getgroups())

    assert in_child(work) == sorted(groups_of(name))


@needs_root
def test_a_process_that_is_not_root_keeps_its_ids_and_cannot_become_another() -> None:
    account, other = Account.named(NOBODY), Account("other", 4_000_000, 4_000_000)

    def work() -> Any:
        become(account, with_groups=False)
        become(account, with_groups=True)
        try:
            become(other, with_groups=False)
        except NotConfined as error:
            return [os.getuid(), str(error)]
        return None

    assert in_child(work) == [account.uid, "cannot become other: not started by root"]


@needs_root
def test_an_account_in_roots_group_is_not_confined() -> None:
    def work() -> Any:
        try:
            become(Account("half", 4_000_000, 0), with_groups=False)
        except NotConfined as error:
            return str(error)
        return None

    assert in_child(work) == "root's ids could be taken again after becoming half"


@pytest.mark.skipif(os.geteuid() == 0, reason="root may become anyone")
def test_without_root_only_the_own_account_can_be_become() -> None:
    become(Account.current(), with_groups=True)
    with pytest.raises(NotConfined, match=r"^cannot become nobody: not started by root$"):
        become(Account("nobody", 4_000_000, 4_000_000), with_groups=False)


# The last step


def test_settle_leaves_no_new_rights_no_core_no_place_and_a_strict_umask() -> None:
    def work() -> Any:
        os.umask(0)
        settle(os.getppid())
        return {
            "no_new_privs": status("NoNewPrivs"),
            "core": resource.getrlimit(resource.RLIMIT_CORE),
            "place": os.getcwd(),
            "umask": os.umask(0),
        }

    assert in_child(work) == {"no_new_privs": ["1"], "core": [0, 0], "place": "/", "umask": 0o077}


def test_settle_ends_a_child_whose_parent_is_gone_already() -> None:
    pid = os.fork()
    if pid == 0:
        settle(os.getpid())  # that is not its parent
        os._exit(99)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 1


@pytest.mark.parametrize("account", [None, pytest.param(NOBODY, marks=needs_root)])
def test_a_settled_child_dies_with_its_parent(account: str | None) -> None:
    """The kernel forgets the death signal when ids change: as another account it must hold as well."""
    reader, writer = os.pipe()
    parent = os.fork()
    if parent == 0:
        itself = os.getpid()
        if os.fork() == 0:
            if account is not None:
                become(Account.named(account), with_groups=False)
            settle(itself)
            os.write(writer, b"settled")
        signal.pause()
        os._exit(99)
    os.close(writer)
    with open(reader, "rb", buffering=0) as pipe:
        assert pipe.read(7) == b"settled"
        os.kill(parent, signal.SIGKILL)
        os.waitpid(parent, 0)
        # Only the child still holds the writing end: its death is the end of the pipe.
        readable, _, _ = select.select([pipe], [], [], 20)
        assert readable
        assert pipe.read(1) == b""


def test_a_right_that_the_kernel_does_not_know_is_an_error() -> None:
    with pytest.raises(NotConfined, match=r"^prctl\(99999\): Invalid argument$"):
        confine._prctl(99999, 1)


# Descriptors


def is_open(descriptor: int) -> bool:
    try:
        fcntl.fcntl(descriptor, fcntl.F_GETFD)
    except OSError:
        return False
    return True


@pytest.mark.parametrize(
    "kept",
    [
        pytest.param([], id="none"),
        pytest.param([60], id="the lowest"),
        pytest.param([69], id="the highest"),
        pytest.param([62, 65], id="some"),
        pytest.param([65, 62, 65], id="unsorted and twice"),
        pytest.param([61, 62, 63], id="a row"),
        pytest.param((number for number in (60, 69)), id="an iterator"),
        pytest.param([0], id="standard input, which is not closed anyway"),
        pytest.param([2, 64], id="standard error and one more"),
        pytest.param([80], id="one that is not open"),
    ],
)
def test_only_the_kept_descriptors_stay_open(kept: Iterable[int]) -> None:
    named = list(kept)

    def work() -> Any:
        source = os.open("/dev/null", os.O_RDONLY)
        for descriptor in (0, 1, 2, *range(60, 70)):
            os.dup2(source, descriptor)
        close_all_but(iter([*named, REPORT]))
        return [descriptor for descriptor in range(1000) if is_open(descriptor) and descriptor != REPORT]

    assert in_child(work) == sorted({0, 1, 2, *(number for number in named if 60 <= number < 70)})
