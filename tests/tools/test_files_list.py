"""`files/list` against the machine's own `ls`, byte for byte."""

from __future__ import annotations

import itertools
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.tools._fuse import mounted
from tests.tools._unprivileged import NOBODY, answer, public_directory
from tests.tools.ls_reference import FILES_LIST, acl, entries, flags_of, ls, result, text
from tools import Context
from tools.ls.marks import Marks

NS = 1_000_000_000
HALF_A_YEAR = 15_778_476

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="makes devices, gives files away and mounts: only root may")


@pytest.fixture(params=["disk", "memory"])
def place(request: pytest.FixtureRequest) -> Iterator[Path]:
    """An empty directory on the disk's file system, and one on tmpfs."""
    parent = tempfile.gettempdir() if request.param == "disk" else "/dev/shm"
    directory = Path(tempfile.mkdtemp(prefix="ssegate-test-", dir=parent))
    directory.chmod(0o755)
    # One level down: `..` is listed too, and what lies in the shared directories above changes at any time.
    tree = directory / "tree"
    tree.mkdir(mode=0o700)
    yield tree
    shutil.rmtree(directory)


# The trees of the grid. Each is made in an empty directory.


def empty(_tree: Path) -> None:
    """`total 0` and nothing else."""


def everyday(tree: Path) -> None:
    now = time.time_ns()
    for number, name in enumerate(["b.txt", "a.txt", "B", "_", ".hidden", "..odd", "z z", "-l", "é", "日本", "a", "~"]):
        (tree / name).write_bytes(b"x" * number * 700)
        os.utime(tree / name, ns=(now, now - number // 2 * 40 * 24 * 3600 * NS))
    for name in ("dir", ".dot", "Zdir"):
        (tree / name).mkdir()
    (tree / "dir" / "sub").mkdir()
    for name, target in {
        "to-file": "b.txt",
        "to-dir": "dir",
        "to-parent": "..",
        "dangling": "no such thing",
        "loop": "loop",
        "absolute": "/usr",
        "to-link": "to-dir",
        "slashed": "dir/sub//",
        "into-file": "b.txt/x",
    }.items():
        (tree / name).symlink_to(target)
    os.link(tree / "a", tree / "hard link")


def modes(tree: Path) -> None:
    for mode in (0, 0o4644, 0o4755, 0o2644, 0o2755, 0o1644, 0o1755, 0o1754, 0o7777, 0o7000, 0o421, 0o124):
        (tree / f"file-{mode:04o}").touch()
        (tree / f"file-{mode:04o}").chmod(mode)
        (tree / f"dir-{mode:04o}").mkdir()
        (tree / f"dir-{mode:04o}").chmod(mode)
    os.mkfifo(tree / "fifo")
    with socket.socket(socket.AF_UNIX) as listener:
        here = os.open(tree, os.O_PATH)
        listener.bind(f"/proc/self/fd/{here}/socket")
        os.close(here)


def raw_names(tree: Path) -> None:
    base = os.fsencode(tree)
    for name in (
        b"new\nline",
        b"tab\t",
        b"\x01\x1b[31m\x7f",
        b"\xff\xfe",
        b"cut \xe3\x81",
        b"\xed\xa0\x80 surrogate",
        b"\xc2\x85\xe2\x80\xa8 breaks",
        b"quote\"'\\",
        b" lead",
        b"trail ",
        b"*",
        "e\u0301 𝒳".encode(),
        b"n" * 255,
    ):
        with open(base + b"/" + name, "wb"):
            pass
        os.symlink(name[:-1] + b"\xf0\x9f -> \n", base + b"/" + name[:250] + b".ln")


def owners(tree: Path) -> None:
    """Names of different widths, ids without one, and both beside each other."""
    for uid, gid in ((0, 0), (1, 1), (NOBODY, NOBODY), (4_000_000_000, 5), (12345, 54321), (33, 4_294_967_294)):
        (tree / f"{uid}-{gid}").touch()
        os.chown(tree / f"{uid}-{gid}", uid, gid)


def nameless(tree: Path) -> None:
    owners(tree)
    for path in tree.iterdir():
        os.chown(path, os.lstat(path).st_size + 77_777, 5_000_000)
    os.chown(tree, 7, 7)


def devices(tree: Path) -> None:
    for name, kind, major, minor in (
        ("null", 0o020666, 1, 3),
        ("disk", 0o060660, 7, 0),
        ("far", 0o060600, 259, 1_048_575),
        ("tty", 0o020620, 4095, 64),
    ):
        os.mknod(tree / name, kind, os.makedev(major, minor))
    (tree / "file").write_bytes(b"x" * 5)


def devices_beside_a_large_file(tree: Path) -> None:
    devices(tree)
    os.truncate(tree / "file", 123_456_789_012)


def sizes(tree: Path) -> None:
    """Sparse files at each edge of the rounding of `-h`."""
    kilo = 1024
    for power in range(4):  # ext4 ends at 16 TiB
        unit = kilo**power
        for size in (1, 9, 10, 99, 100, 999, 1000, 1023):
            for step in (-1, 0, 1, unit // 20, unit // 10 + 1, unit - 1):
                (tree / f"{power}-{size}-{step}").touch()
                os.truncate(tree / f"{power}-{size}-{step}", size * unit + step)
    (tree / "blocks").write_bytes(b"x" * 1_234_567)


def labels(tree: Path) -> None:
    for name in ("plain", "labelled", "unlabeled", "both", "acl"):
        (tree / name).touch()
    (tree / "dir").mkdir()
    (tree / "default").mkdir()
    (tree / "plain default").mkdir()
    (tree / "link").symlink_to("acl")
    for name, label in {"labelled": b"u:r:t:s0\0", "unlabeled": b"unlabeled", "both": b"x\0", "link": b"y\0"}.items():
        os.setxattr(tree / name, "security.selinux", label, follow_symlinks=False)
    for name in ("both", "acl"):
        os.setxattr(tree / name, "system.posix_acl_access", acl((1234, 4)))
    os.setxattr(tree / "default", "system.posix_acl_default", acl((1234, 4)))
    os.setxattr(tree / "plain default", "system.posix_acl_default", acl())


def only_labels(tree: Path) -> None:
    for name in ("plain", "labelled"):
        (tree / name).touch()
    os.setxattr(tree / "labelled", "security.selinux", b"u:r:t:s0\0")


def all_labelled(tree: Path) -> None:
    """As with SELinux at work: the directory has a label as well."""
    labels(tree)
    os.setxattr(tree, "security.selinux", b"u:r:t:s0\0")


def times(tree: Path) -> None:
    now = int(time.time())
    for name, second, ns in (
        ("now", now, 0),
        ("in an hour", now + 3600, 0),
        ("in a year", now + 2 * HALF_A_YEAR, 0),
        ("just recent", now - HALF_A_YEAR + 30, 0),
        ("just old", now - HALF_A_YEAR - 1, 999_999_999),
        ("yesterday", now - 86_400, 1),
        ("yesterday and a ns", now - 86_400, 2),
        ("yesterday, earlier", now - 86_400, 0),
        ("1970", 0, 0),
        ("before 1970", -1, 999_999_999),
        ("1901", -2_147_483_648, 0),
        ("2038", 2_147_483_648, 0),
        ("2100", 4_102_444_800, 0),
        ("2446", 15_000_000_000, 5),
        ("1937", -1_025_740_800 + 1172, 0),
        ("1972", 63_593_069, 0),
        ("1972 and a second", 63_593_070, 0),
        ("summer", now // 31_556_952 * 31_556_952 + 182 * 86_400, 0),
    ):
        (tree / name).touch()
        os.utime(tree / name, ns=(0, second * NS + ns))


def thousands(tree: Path) -> None:
    """More than one block of getdents(2)."""
    for number in range(2500):
        (tree / f"some name of a file that is not short {number * 7919 % 2500}").touch()


TREES: list[Any] = [
    empty,
    everyday,
    modes,
    raw_names,
    times,
    sizes,
    pytest.param(owners, marks=as_root),
    pytest.param(nameless, marks=as_root),
    pytest.param(devices, marks=as_root),
    pytest.param(devices_beside_a_large_file, marks=as_root),
    pytest.param(labels, marks=as_root),
    pytest.param(only_labels, marks=as_root),
    pytest.param(all_labelled, marks=as_root),
]

LONG = [
    dict(zip(("all", "human_readable", "numeric_ids", "reverse", "dirs_first", "sort"), choice, strict=True))
    for choice in itertools.product(*[[False, True]] * 5, ["name", "size", "time"])
]
SHORT = [
    dict(zip(("long", "all", "reverse", "dirs_first", "sort"), (False, *choice), strict=True))
    for choice in itertools.product(*[[False, True]] * 3, ["name", "size", "time"])
]


def differences(path: Path | str, grid: list[dict[str, Any]]) -> list[Any]:
    """[(arguments, the tool's text, ls's)] where the two are not equal."""
    found = [(arguments, text(path, **arguments), ls(path, *flags_of(arguments))) for arguments in grid]
    return [row for row in found if row[1] != row[2]]


@pytest.mark.parametrize("make", TREES)
def test_every_set_of_options_gives_what_ls_prints(make: Callable[[Path], None], place: Path) -> None:
    make(place)
    # All 120 sets where most of them matter; for the rest a step that shares no factor with the options' counts.
    grid = LONG + SHORT if make is everyday else (LONG + SHORT)[::5]
    assert differences(place, grid) == []


@pytest.mark.parametrize(
    "path",
    ["/dev", "/etc", "/usr/bin", "/sys", "/sys/block", f"/proc/{os.getpid()}/ns", "/proc/sys/kernel", "/dev/shm"],
)
@pytest.mark.parametrize("arguments", [{"all": True}, {"dirs_first": True, "sort": "time"}])
def test_the_machines_own_directories_read_as_ls_reads_them(path: str, arguments: dict[str, Any]) -> None:
    for _ in range(50):  # they may change between the two: then once more
        before, ours, after = ls(path, *flags_of(arguments)), text(path, **arguments), ls(path, *flags_of(arguments))
        if before == after:
            assert ours == before
            return
    pytest.fail(f"{path} never stood still")


def test_the_magic_links_of_a_process_are_shown_with_their_targets(tmp_path: Path) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=gone) as process:
        gone.rmdir()
        for below in ("", "/fd", "/ns", "/task"):
            for arguments in ({"human_readable": True}, {"dirs_first": True}):
                path = f"/proc/{process.pid}{below}"
                assert text(path, **arguments) == ls(path, *flags_of(arguments))


def test_a_large_directory_is_whole_and_tells_how_far_it_is(tmp_path: Path) -> None:
    thousands(tmp_path)
    told: list[tuple[int, int | None, str]] = []
    listing = result(tmp_path, Context(progress=lambda *step: told.append(step)), all=True).text
    assert listing == ls(tmp_path, "-la")
    assert told == [(2048, 2502, "entries read"), (2502, 2502, "entries read")]


@given(
    names=st.lists(
        st.binary(min_size=1, max_size=20).filter(lambda name: not {0, 0x2F} & set(name) and name not in (b".", b"..")),
        max_size=12,
        unique=True,
    ),
    sort=st.sampled_from(["name", "size", "time"]),
    reverse=st.booleans(),
)
@settings(max_examples=30, deadline=None)
def test_any_bytes_that_can_be_a_name_are_listed_as_ls_lists_them(names: list[bytes], sort: str, reverse: bool) -> None:
    with tempfile.TemporaryDirectory() as place:
        for number, name in enumerate(names):
            with open(os.fsencode(place) + b"/" + name, "wb") as file:
                file.write(b"x" * (number % 3))
        arguments = {"all": True, "sort": sort, "reverse": reverse}
        assert text(place, **arguments) == ls(place, *flags_of(arguments))


@as_root
@pytest.mark.parametrize("make", [labels, all_labelled])
def test_kernels_that_list_attributes_only_by_path_give_the_same_marks(
    make: Callable[[Path], None], place: Path
) -> None:
    """Before Linux 6.13 there is no listxattrat(2)."""
    make(place)
    descriptor = os.open(place, os.O_RDONLY)
    marks = Marks(descriptor)
    marks._has_listxattrat = False
    status = {path.name: os.lstat(path) for path in place.iterdir()}
    found = {name: marks.of(name.encode(), of.st_mode, of.st_dev) for name, of in status.items()}
    os.close(descriptor)
    shown = [line.split()[0][10:] for line in ls(place, "-l").splitlines()[1:]]
    assert [found[name] for name in sorted(found)] == shown


# Dates


@pytest.fixture
def zone(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], None]]:
    """Sets the zone of this process for the test."""

    def set_zone(name: str) -> None:
        monkeypatch.setenv("TZ", name)
        time.tzset()

    yield set_zone
    monkeypatch.undo()
    time.tzset()


ZONES = [
    "UTC",
    "Europe/Berlin",
    "America/St_Johns",
    "Asia/Kathmandu",
    "Pacific/Kiritimati",
    "Africa/Monrovia",  # an offset with seconds until 1972
    "Europe/Amsterdam",  # and until 1937
    "right/Europe/London",  # counts leap seconds
    "XXX-01:02:03",
    "Nowhere/Unknown",
]


@pytest.mark.parametrize("name", ZONES)
def test_dates_stand_in_the_servers_zone(name: str, tmp_path: Path, zone: Callable[[str], None]) -> None:
    times(tmp_path)
    for minute in range(0, 40 * 525_960, 97_331):  # across forty years of summer times
        (tmp_path / str(minute)).touch()
        os.utime(tmp_path / str(minute), (0, minute * 60 + minute % 60))
    zone(name)
    assert text(tmp_path, sort="time") == ls(tmp_path, "-lt")


@pytest.mark.parametrize("name", ZONES)
def test_modified_is_the_same_instant_as_the_files(name: str, tmp_path: Path, zone: Callable[[str], None]) -> None:
    times(tmp_path)
    zone(name)
    for entry in entries(tmp_path):
        told = subprocess.run(
            ["date", "--date", entry["modified"], "+%s"], capture_output=True, check=True, text=True, env={"TZ": "UTC"}
        ).stdout
        leap_seconds = 60 if name.startswith("right/") else 0  # such a zone's clock is not POSIX's
        assert abs(int(told) - os.lstat(tmp_path / entry["name"]).st_mtime_ns // NS) <= leap_seconds


def test_modified_has_the_offset_of_its_own_season(zone: Callable[[str], None]) -> None:
    zone("Europe/Berlin")
    with tempfile.TemporaryDirectory(dir="/dev/shm") as place:  # ext4 begins in 1901
        for name, second in {"a": 1_700_000_000, "b": 1_720_000_000, "c": -3_000_000_000}.items():
            Path(place, name).touch()
            os.utime(Path(place, name), (second, second))
        assert [entry["modified"] for entry in entries(place)] == [
            "2023-11-14T23:13:20+01:00",
            "2024-07-03T11:46:40+02:00",
            "1874-12-07T19:33:00+00:53",  # the local mean time of Berlin was 53 min 28 s ahead
        ]


def test_years_beyond_four_digits_and_beyond_the_calendar_are_shown_as_ls_shows_them() -> None:
    with tempfile.TemporaryDirectory(dir="/dev/shm") as place:
        for second in (
            -62_135_596_801,
            -62_201_779_200 * 2,
            253_402_300_800,
            10**16,
            67_768_036_191_676_800,
            2**63 - 1,
        ):
            path = Path(place, str(second))
            path.touch()
            os.utime(path, (0, second))
        assert text(place) == ls(place, "-l")
        assert {entry["modified"] for entry in entries(place)} == {None}


# Owners


ACCOUNTS = """
import json, os, sys
from tests.tools.ls_reference import entries, ls, text
from tools.ls import owners

place, passwd, group = sys.argv[1:]
same = [text(place) == ls(place, "-l"), text(place, numeric_ids=True) == ls(place, "-ln")]
names = [(entry["owner"], entry["group"]) for entry in entries(place)]
before = owners._user(5005, 0.0)
with open(passwd, "a") as file:
    file.write("late:x:5005:5005::/:/bin/sh\\n")
print(json.dumps([same, names, [str(before), str(owners._user(5005, 0.0)), str(owners._user(5005, 1.0))]]))
"""


@as_root
def test_names_are_padded_to_the_width_they_show_and_new_accounts_appear(tmp_path: Path) -> None:
    """In a mount namespace of its own, where /etc/passwd and /etc/group are ours."""
    accounts = ("root", "ユーザー", "müller", "e\u0301a", "a-rather-long-account-name")
    listed, passwd, group = tmp_path / "listed", tmp_path / "passwd", tmp_path / "group"
    listed.mkdir()
    lines = [f"{name}:x:{5000 + number}:5000::/:/bin/sh\n" for number, name in enumerate(accounts)]
    passwd.write_text("".join(lines))
    group.write_text("".join(f"{name}:x:{6000 + number}:\n" for number, name in enumerate(reversed(accounts))))
    for number in range(6):
        (listed / str(number)).touch()
        os.chown(listed / str(number), 5000 + number, 6000 + number)
    mounts = 'mount --bind "$2" /etc/passwd && mount --bind "$3" /etc/group && exec "$4" -c "$5" "$1" "$2" "$3"'
    done = subprocess.run(
        ["unshare", "-m", "sh", "-c", mounts, "sh", listed, passwd, group, sys.executable, ACCOUNTS],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    same, names, late = json.loads(done.stdout)
    assert same == [True, True]
    assert names == [*[list(pair) for pair in zip(accounts, reversed(accounts), strict=True)], ["5005", "6005"]]
    assert late == ["None", "None", "b'late'"]


# What may not be read


@as_root
@pytest.mark.parametrize("arguments", [{"all": True}, {"sort": "size"}, {"long": False, "dirs_first": True}])
def test_a_directory_that_may_be_read_but_not_searched_shows_question_marks(arguments: dict[str, Any]) -> None:
    with public_directory() as place:
        everyday(place)
        modes(place)
        devices(place)
        place.chmod(0o744)
        told = answer("files/list", {"path": str(place), **arguments})
        assert told["content"][0]["text"] == ls(place, *flags_of(arguments), uid=NOBODY)


@as_root
def test_what_lstat_does_not_tell_is_null_and_the_type_is_the_directorys() -> None:
    with public_directory() as place:
        devices(place)
        (place / "sub").mkdir()
        place.chmod(0o744)
        told = answer("files/list", {"path": str(place), "output_format": "json", "dirs_first": True})
        listing = told["structuredContent"]["entries"]
        assert [(entry["name"], entry["type"], entry["mode"]) for entry in listing] == [
            ("sub", "dir", "d?????????"),
            ("disk", "block", "b?????????"),
            ("far", "block", "b?????????"),
            ("file", "file", "-?????????"),
            ("null", "char", "c?????????"),
            ("tty", "char", "c?????????"),
        ]
        unknown = ("mode_octal", "links", "owner", "group", "uid", "gid", "size", "modified")
        assert all([entry[member] for member in unknown] == [None] * 8 for entry in listing)


@as_root
def test_a_link_that_may_not_be_read_is_shown_without_a_target() -> None:
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        path = f"/proc/{process.pid}"
        assert " exe -> /" in text(path)
        told = answer("files/list", {"path": path})["content"][0]["text"]
        assert told == ls(path, "-l", uid=NOBODY)
        assert [line for line in told.splitlines() if line.endswith(" exe")]
        listing = answer("files/list", {"path": path, "output_format": "json"})["structuredContent"]["entries"]
        assert next(entry for entry in listing if entry["name"] == "exe")["target"] is None


@as_root
def test_a_directory_that_may_not_be_read_is_a_sentence() -> None:
    with public_directory() as place:
        (place / "closed").mkdir(mode=0o711)
        (place / "shut").mkdir(mode=0o700)
        (place / "shut" / "inner").mkdir()
        for path in (place / "closed", place / "shut" / "inner"):
            told = answer("files/list", {"path": str(path)})
            assert told["isError"] is True
            assert told["content"][0]["text"] == (
                f"cannot list {path}: Permission denied - the account of this session may not read it"
            )


def test_a_file_is_not_a_directory_and_its_parent_is_the_way(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "link").symlink_to("file")
    for name in ("file", "file/", "fifo", "link"):
        answered = result(f"{tmp_path}/{name}")
        assert answered.is_error is True
        assert answered.text == (
            f"not a directory: {tmp_path}/{name} - list its parent, {tmp_path}, to see it with its size and date"
        )


def test_a_missing_path_is_a_sentence_with_the_systems_words(tmp_path: Path) -> None:
    (tmp_path / "dangling").symlink_to("nowhere")
    (tmp_path / "loop").symlink_to("loop")
    for name in ("missing", "dangling", "new\nline"):
        answered = result(tmp_path / name)
        assert answered.is_error is True
        shown = f"{tmp_path}/{name}".replace("\n", "\\n")
        assert answered.text == (
            f"cannot list {shown}: No such file or directory - list its parent, {tmp_path}, to see what is there"
        )
    assert result(tmp_path / "loop").text == f"cannot list {tmp_path}/loop: Too many levels of symbolic links"
    assert result("/" + "n" * 256).text.endswith(": File name too long")


@pytest.mark.parametrize(
    ("path", "words"), [("", "empty"), ("etc", "relative"), ("./etc", "relative"), ("/etc\0/x", "NUL")]
)
def test_a_path_that_is_not_absolute_is_refused(path: str, words: str) -> None:
    answered = result(path)
    assert answered.is_error is True
    assert words in answered.text


def test_a_link_to_a_directory_is_entered_and_dots_and_slashes_mean_what_the_kernel_says(tmp_path: Path) -> None:
    everyday(tmp_path)
    assert text(tmp_path / "to-dir") == ls(tmp_path / "dir", "-l")
    assert text(f"{tmp_path}//to-dir/../") == ls(tmp_path, "-l")


def test_only_what_lies_below_the_callers_roots_is_listed(tmp_path: Path) -> None:
    for name in ("granted", "other", "keys"):
        (tmp_path / name).mkdir()
    context = Context(roots=(str(tmp_path / "granted"), str(tmp_path / "keys")), hidden=(str(tmp_path / "keys"),))
    assert result(tmp_path / "granted", context).text == "total 0\n"
    assert "outside what may be read" in result(tmp_path / "other", context).text
    assert "never shown" in result(tmp_path / "keys", context).text


def test_root_calls_are_refused_until_they_are_configured() -> None:
    answered = result("/etc", privileged=True)
    assert answered.is_error is True
    assert "root calls are not configured on this gateway" in answered.text


# Entries that come and go


def test_entries_that_vanish_while_they_are_listed_are_no_error(tmp_path: Path) -> None:
    for number in range(300):
        (tmp_path / f"stays-{number}").touch()
    stop = threading.Event()

    def come_and_go() -> None:
        while not stop.is_set():
            for number in range(50):
                (tmp_path / f"goes-{number}").touch()
            for number in range(50):
                (tmp_path / f"goes-{number}").unlink()

    thread = threading.Thread(target=come_and_go)
    thread.start()
    try:
        for _ in range(40):
            lines = text(tmp_path, all=True).splitlines()
            assert sum("stays-" in line for line in lines) == 300
            assert all(line[0] in "-dt" for line in lines)
            assert all(entry["type"] in ("file", "dir") for entry in entries(tmp_path))
    finally:
        stop.set()
        thread.join()


def test_a_directory_removed_while_it_is_open_is_empty(tmp_path: Path) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    descriptor = os.open(gone, os.O_RDONLY)
    gone.rmdir()
    assert text(f"/proc/self/fd/{descriptor}") == ls(f"/proc/{os.getpid()}/fd/{descriptor}", "-l") == "total 0\n"
    os.close(descriptor)


@as_root
@pytest.mark.parametrize("arguments", [{"all": True}, {"long": False, "dirs_first": True}])
def test_a_file_system_that_tells_no_types_and_lists_no_attributes_is_read_as_ls_reads_it(
    tmp_path: Path, arguments: dict[str, Any]
) -> None:
    with mounted(tmp_path) as server:
        assert server is not None
        path = tmp_path / "types"
        assert text(path, **arguments) == ls(path, *flags_of(arguments))


# The structured formats

KEYS = [
    *("name", "name_hex", "type", "mode", "mode_octal", "links", "owner", "group", "uid", "gid", "size"),
    *("device", "modified", "is_dir", "target", "target_hex"),
]


@pytest.fixture
def one_of_each(tmp_path: Path, zone: Callable[[str], None]) -> Path:
    """A directory whose every structured value is known."""
    zone("Asia/Kathmandu")
    tmp_path = tmp_path / "one"  # `..` is listed too, and pytest's own directory grows
    tmp_path.mkdir()
    (tmp_path / "dir").mkdir(mode=0o750)
    (tmp_path / "file").write_bytes(b"x" * 1500)
    (tmp_path / "file").chmod(0o4755)
    (tmp_path / "link").symlink_to(os.fsdecode(b"\xff\n"))
    os.mknod(tmp_path / "null", 0o020644, os.makedev(1, 3))
    (tmp_path / ".dot\n").write_bytes(b"")
    os.chown(tmp_path / "file", 4_000_000, 0)
    os.setxattr(tmp_path / "file", "system.posix_acl_access", acl((1234, 4)))
    (tmp_path / "file").chmod(0o4754)
    for path in tmp_path.iterdir():
        os.utime(path, (0, 1_700_000_000), follow_symlinks=False)
    return tmp_path


@as_root
def test_json_is_an_array_of_entries_with_their_members_in_the_documented_order(one_of_each: Path) -> None:
    answered = result(one_of_each, output_format="json", all=True)
    assert answered.structured is not None
    listing = answered.structured["entries"]
    assert json.loads(answered.text) == listing
    for entry in listing:
        assert list(entry) == [key for key in KEYS if key in entry]
    assert [entry["name"] for entry in listing] == [".", "..", ".dot\n", "dir", "file", "link", "null"]
    common = {"links": 1, "owner": "root", "group": "root", "uid": 0, "gid": 0, "modified": "2023-11-15T03:58:20+05:45"}
    assert listing[4] == common | {
        "name": "file",
        "type": "file",
        "mode": "-rwsr-xr--+",
        "mode_octal": "4754",
        "owner": "4000000",
        "uid": 4_000_000,
        "size": 1500,
        "is_dir": False,
    }
    assert listing[5] == common | {
        "name": "link",
        "type": "symlink",
        "mode": "lrwxrwxrwx",
        "mode_octal": "0777",
        "size": 2,
        "is_dir": False,
        "target": "\ufffd\n",
        "target_hex": "ff0a",
    }
    assert listing[6] == common | {
        "name": "null",
        "type": "char",
        "mode": "crw-r--r--",
        "mode_octal": "0644",
        "size": 0,
        "device": "1, 3",
        "is_dir": False,
    }


@as_root
def test_a_table_has_four_aligned_columns_and_one_line_an_entry(one_of_each: Path) -> None:
    assert result(one_of_each, output_format="table", dirs_first=True, human_readable=True).text == (
        "MODIFIED                    NAME   SIZE   IS_DIR\n"
        "2023-11-15T03:58:20+05:45   dir    4.0K   true\n"
        "2023-11-15T03:58:20+05:45   file   1.5K   false\n"
        "2023-11-15T03:58:20+05:45   link   2      false\n"
        "2023-11-15T03:58:20+05:45   null   0      false\n"
    )
    (one_of_each / "日本").touch()
    lines = result(one_of_each, output_format="table", all=True).text.splitlines()
    assert [line.split("   ")[1].rstrip() for line in lines[3:]] == [".dot\\n", "dir", "file", "link", "null", "日本"]
    assert lines[-1].split("   ", 1)[1] == "日本     0      false"  # two characters, four columns, as wide as `.dot`


@as_root
def test_wide_shows_every_column(one_of_each: Path) -> None:
    lines = result(one_of_each, output_format="wide", numeric_ids=True).text.splitlines()
    assert [line.split() for line in lines][0:4:3] == [
        [key.upper() for key in KEYS if not key.endswith("_hex")],
        [
            *("link", "symlink", "lrwxrwxrwx", "0777", "1", "0", "0", "0", "0", "2", "-"),
            *("2023-11-15T03:58:20+05:45", "false", "\ufffd\\n"),
        ],
    ]
    assert " 1, 3 " in lines[4]


@pytest.mark.parametrize("output_format", ["json", "yaml", "table", "wide"])
def test_every_format_honours_all_sort_reverse_and_dirs_first(output_format: str, tmp_path: Path) -> None:
    everyday(tmp_path)
    for arguments in SHORT:
        names = ls(tmp_path, *flags_of(arguments)).splitlines()
        listing = entries(tmp_path, **{**arguments, "long": True, "output_format": output_format})
        assert [entry["name"] for entry in listing] == names


def test_yaml_of_any_name_is_read_alike_by_readers_of_1_1_and_1_2(tmp_path: Path) -> None:
    from ruamel.yaml import YAML

    raw_names(tmp_path)
    for name in ("yes", "no", "0644", "1:30", "~", "null", "2024-01-01", "1e3", "#", "- x", "a: b", "\ufeff", "\uffff"):
        (tmp_path / name).touch()
    answered = result(tmp_path, output_format="yaml", all=True)
    assert answered.structured is not None
    for version in ((1, 1), (1, 2)):
        reader = YAML(typ="safe", pure=True)
        reader.version = version
        assert reader.load(answered.text) == answered.structured["entries"]


def test_an_empty_directory_is_an_empty_list_in_every_format(tmp_path: Path) -> None:
    assert result(tmp_path, output_format="json").text == "[]"
    assert result(tmp_path, output_format="yaml").text == "[]\n"
    assert result(tmp_path, output_format="table").text == "MODIFIED   NAME   SIZE   IS_DIR\n"
    assert text(tmp_path) == "total 0\n"
    assert text(tmp_path, long=False) == ""


def test_sizes_beyond_2_to_the_53_are_exact() -> None:
    with tempfile.TemporaryDirectory(dir="/dev/shm") as place:
        for size in (2**53 + 1, 2**63 - 1, 10 * 2**60 - 1, 1023 * 2**50 + 1):
            Path(place, str(size)).touch()
            os.truncate(Path(place, str(size)), min(size, 2**63 - 4096))
        assert [entry["size"] for entry in entries(place)] == [
            os.lstat(path).st_size for path in sorted(Path(place).iterdir())
        ]
        for arguments in ({}, {"human_readable": True}):
            assert text(place, **arguments) == ls(place, *flags_of(arguments))


# The descriptor


def test_the_descriptor_declares_ten_arguments_that_are_all_described() -> None:
    descriptor = FILES_LIST.descriptor("files/list")
    schema = descriptor["inputSchema"]
    assert list(schema["properties"]) == [
        *("path", "all", "long", "human_readable", "sort", "reverse", "dirs_first", "numeric_ids"),
        *("output_format", "privileged"),
    ]
    assert schema["required"] == ["path"]
    assert set(schema["properties"]["sort"]["enum"]) == {"name", "size", "time"}
    assert set(schema["properties"]["output_format"]["enum"]) == {"text", "json", "yaml", "table", "wide"}
    assert all(argument["description"] for argument in schema["properties"].values())
    assert "outputSchema" not in descriptor  # text has no structured content, so none would hold for every success
    assert (descriptor["tools_group"], descriptor["linuxctl_verb"]) == ("files", "list")
    assert "list_dir" in descriptor["description"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"sort": "date"}, ["'sort'", "'date'", "name", "size", "time"]),
        ({"output_format": "xml"}, ["'output_format'", "'xml'", "text", "json", "yaml", "table", "wide"]),
        ({"all": 1}, ["'all'", "boolean", "integer"]),
        ({"long": "yes"}, ["'long'", "boolean", "string"]),
        ({"reverse": None}, ["'reverse'", "boolean", "null"]),
        ({"path": 5}, ["'path'", "string", "integer"]),
    ],
)
def test_an_argument_that_does_not_fit_is_named_with_what_is_allowed(
    arguments: dict[str, Any], words: list[str]
) -> None:
    answered = result(**{"path": "/", **arguments})
    assert answered.is_error is True
    assert [word for word in words if word not in answered.text] == []
