"""`tools._paths`: what may be opened, and what is refused with which words."""

from __future__ import annotations

import contextlib
import os
import socket
import stat
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tools import Context
from tools._paths import Malformed, Reach, Refused, below, checked, hidden_identities, locate, open_directory, reopen


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """open/{file,inner/file,to-secret -> ../secret,to-file -> file} and secret/{key,inner/}, beside each other."""
    (tmp_path / "open" / "inner").mkdir(parents=True)
    (tmp_path / "open" / "file").write_text("open")
    (tmp_path / "open" / "inner" / "file").write_text("inner")
    (tmp_path / "secret" / "inner").mkdir(parents=True)
    (tmp_path / "secret" / "key").write_text("secret")
    (tmp_path / "open" / "to-secret").symlink_to("../secret")
    (tmp_path / "open" / "to-file").symlink_to("file")
    return tmp_path


def content(path: Path | str, context: Context) -> str:
    located = locate(str(path), context)
    try:
        with open(reopen(located), encoding="utf-8") as file:
            return file.read()
    finally:
        os.close(located)


@pytest.mark.parametrize(
    ("path", "sentence"),
    [
        ("", "path is empty - give an absolute path, such as /var/log"),
        ("etc/hosts", "path etc/hosts is relative - give an absolute path, such as /etc/hosts"),
        ("./x", "path ./x is relative - give an absolute path, such as /./x"),
        ("~/x", "path ~/x is relative - give an absolute path, such as /~/x"),
        ("/etc/pass\0wd", "path /etc/pass\\x00wd contains a NUL character - no file name can hold one"),
        ("/\ud800", "path /\\ud800 contains half a surrogate pair - it has no UTF-8 form"),
    ],
)
def test_a_string_that_is_no_absolute_path_is_refused_with_the_reason(path: str, sentence: str) -> None:
    with pytest.raises(Malformed) as refusal:
        checked(path)
    assert str(refusal.value) == sentence


def test_a_path_reaches_the_kernel_as_utf8_and_otherwise_as_it_is() -> None:
    assert checked("//a/../Grüße/") == "//a/../Grüße/".encode()


@settings(deadline=None)
@given(st.text(st.characters()))
def test_any_string_is_a_path_or_refused(path: str) -> None:
    with contextlib.suppress(Malformed):
        assert checked(path).startswith(b"/")


@pytest.mark.parametrize(
    ("spelling", "text"),
    [
        ("open/file", "open"),
        ("open//inner/../file", "open"),
        ("open/to-file", "open"),
        ("open/to-secret/key", "secret"),
        ("open/to-secret/../open/file", "open"),
    ],
)
def test_links_and_dots_mean_what_the_kernel_says(place: Path, spelling: str, text: str) -> None:
    assert content(f"{place}/{spelling}", Context()) == text
    assert content(f"{place}/{spelling}", Context(roots=(str(place),))) == text


@pytest.mark.parametrize(
    ("spelling", "allowed"),
    [
        ("open", True),
        ("open/", True),
        ("open/file", True),
        ("open/inner/file", True),
        ("open/inner/../to-file", True),
        ("secret", False),
        ("secret/key", False),
        ("open/to-secret", False),
        ("open/to-secret/key", False),
        ("open/../secret/key", False),
        (".", False),
        ("", False),
        ("opened", False),
    ],
)
def test_only_what_lies_below_a_root_is_opened_however_it_is_spelled(place: Path, spelling: str, allowed: bool) -> None:
    (place / "opened").mkdir()
    context = Context(roots=(str(place / "nowhere"), str(place / "open")))
    if allowed:
        os.close(locate(f"{place}/{spelling}", context))
    else:
        with pytest.raises(Refused, match="outside what may be read here - ask for something below") as refusal:
            locate(f"{place}/{spelling}", context)
        assert f"{place}/open" in str(refusal.value)


def test_a_root_may_be_named_by_a_link_and_with_a_slash_at_its_end(place: Path) -> None:
    (place / "link").symlink_to("open")
    for root in ("link", "link/", "open/", "secret/../open"):
        assert content(place / "open" / "file", Context(roots=(f"{place}/{root}",))) == "open"
        with pytest.raises(Refused):
            locate(f"{place}/secret/key", Context(roots=(f"{place}/{root}",)))


def test_no_root_at_all_opens_nothing(place: Path) -> None:
    for path in ("/", str(place / "open" / "file")):
        with pytest.raises(Refused):
            locate(path, Context(roots=()))


@pytest.mark.parametrize("roots", ["/", "place"])
@pytest.mark.parametrize(
    "spelling",
    ["secret", "secret/", "secret/key", "secret/inner", "open/to-secret/key", "open/../secret/key", "secret/missing"],
)
def test_the_gateways_own_directory_is_never_opened_however_it_is_spelled(
    place: Path, spelling: str, roots: str
) -> None:
    context = Context(roots=(roots if roots == "/" else str(place),), hidden=(str(place / "secret"),))
    with pytest.raises(Refused, match="inside the gateway's own configuration, which is never shown"):
        locate(f"{place}/{spelling}", context)
    with pytest.raises(Refused):
        open_directory(f"{place}/{spelling}", context)
    assert content(place / "open" / "file", context) == "open"


def test_a_hidden_directory_that_a_link_names_or_that_is_not_there_hides_only_itself(place: Path) -> None:
    context = Context(hidden=(str(place / "open" / "to-secret"), str(place / "nowhere")))
    assert content(place / "open" / "file", context) == "open"
    with pytest.raises(Refused):
        locate(str(place / "secret" / "key"), context)


def test_outside_the_roots_nobody_learns_what_exists(place: Path) -> None:
    context = Context(roots=(str(place / "open"),))
    sentences = set()
    for path in (f"{place}/secret/key", f"{place}/secret/kez", f"{place}/open/to-secret/kez", f"{place}/secret/key/x"):
        with pytest.raises(Refused) as refusal:
            locate(path, context)
        sentences.add(str(refusal.value).replace(path, "PATH"))
    assert len(sentences) == 1
    with pytest.raises(FileNotFoundError):
        locate(f"{place}/open/missing", context)


def test_a_process_directory_leads_to_nothing_that_its_path_does_not(place: Path) -> None:
    context = Context(hidden=(str(place / "secret"),))
    with open(place / "secret" / "key", "rb") as key, pytest.raises(Refused):
        locate(f"/proc/self/fd/{key.fileno()}", context)
    with pytest.raises(Refused):
        locate(f"/proc/self/root{place}/secret/key", context)


def test_a_pipe_has_no_place_and_is_below_no_root() -> None:
    reading, writing = os.pipe()
    try:
        os.close(locate(f"/proc/self/fd/{reading}", Context(hidden=("/nowhere",))))
        with pytest.raises(Refused):
            locate(f"/proc/self/fd/{reading}", Context(roots=("/proc",)))
    finally:
        os.close(reading)
        os.close(writing)


def test_a_file_deleted_meanwhile_still_counts_as_where_it_was(place: Path) -> None:
    with open(place / "secret" / "key", "rb") as key:
        (place / "secret" / "key").unlink()
        with pytest.raises(Refused):
            locate(f"/proc/self/fd/{key.fileno()}", Context(hidden=(str(place / "secret"),)))


@contextlib.contextmanager
def bound(source: Path, target: Path) -> Iterator[None]:
    target.mkdir()
    if subprocess.run(["mount", "--bind", source, target], check=False, capture_output=True).returncode:
        pytest.skip("no right to mount here")
    try:
        yield
    finally:
        subprocess.run(["umount", target], check=True)


@pytest.mark.parametrize("spelling", ["bound", "bound/key", "bound/inner"])
def test_a_bind_mount_shows_the_gateways_own_directory_no_more_than_its_path_does(place: Path, spelling: str) -> None:
    with bound(place / "secret", place / "open" / "bound"):
        with pytest.raises(Refused):
            locate(f"{place}/open/{spelling}", Context(hidden=(str(place / "secret"),)))
        assert content(place / "open" / "bound" / "key", Context()) == "secret"


NAMES = ["open", "open/file", "open/inner", "open/inner/file", "open/missing", "secret", "secret/inner", "secret/key"]


@pytest.mark.parametrize(
    ("roots", "hidden", "opened"),
    [
        (["."], [], "open open/file open/inner open/inner/file secret secret/inner secret/key"),
        (["."], ["secret/inner", "open/file"], "open open/inner open/inner/file secret secret/key"),
        (["."], ["secret"], "open open/file open/inner open/inner/file"),
        (["open/inner", "secret/key"], [], "open/inner open/inner/file secret/key"),
        (["open/file", "secret"], ["secret/inner"], "open/file secret secret/key"),
    ],
)
def test_a_call_that_opens_many_paths_answers_each_as_if_it_were_the_only_one(
    place: Path, roots: list[str], hidden: list[str], opened: str
) -> None:
    context = Context(
        roots=tuple(str(place / root) for root in roots), hidden=tuple(str(place / name) for name in hidden)
    )
    for order in (NAMES, NAMES[::-1], NAMES[3:] + NAMES[:3], NAMES * 2):
        reach = Reach(context)
        outcomes = {name: outcome(reach, f"{place}/{name}") for name in order}
        assert " ".join(sorted(name for name, found in outcomes.items() if found == "opened")) == opened
        assert outcomes["open/missing"] == ("FileNotFoundError" if roots == ["."] else "Refused")


def outcome(reach: Reach, path: str) -> str:
    try:
        os.close(reach.locate(path))
    except (Refused, OSError) as error:
        return type(error).__name__
    return "opened"


def test_nothing_is_waited_for_and_nothing_touched_when_a_path_is_located(place: Path) -> None:
    os.mkfifo(place / "fifo")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(place / "socket"))
        for name, kind in (("fifo", stat.S_ISFIFO), ("socket", stat.S_ISSOCK), ("open", stat.S_ISDIR)):
            located = locate(str(place / name), Context())
            assert kind(os.fstat(located).st_mode)
            os.close(located)
    located = locate(str(place / "fifo"), Context())
    os.close(reopen(located))  # no writer: only O_NONBLOCK returns from this
    os.close(located)


@pytest.mark.parametrize(
    ("spelling", "error"),
    [
        ("missing", FileNotFoundError),
        ("open/file", NotADirectoryError),
        ("open/file/", NotADirectoryError),
        ("open/file/x", NotADirectoryError),
        ("dangling", FileNotFoundError),
        ("x" * 256, OSError),
        ("x/" * 2048, OSError),
        ("loop", OSError),
    ],
)
def test_what_is_no_directory_fails_as_open_does_and_leaves_no_descriptor_behind(
    place: Path, spelling: str, error: type[OSError]
) -> None:
    (place / "dangling").symlink_to("missing")
    (place / "loop").symlink_to("loop")
    before = os.listdir("/proc/self/fd")
    for context in (Context(), Context(roots=(str(place),), hidden=("/nowhere",))):
        with pytest.raises(error):
            open_directory(f"{place}/{spelling}", context)
    assert os.listdir("/proc/self/fd") == before


def test_a_directory_is_opened_through_a_link_too(place: Path) -> None:
    for name in ("secret", "open/to-secret", "open/to-secret/"):
        directory = open_directory(f"{place}/{name}", Context())
        assert sorted(os.listdir(directory)) == ["inner", "key"]
        os.close(directory)


def test_hidden_directories_are_known_by_what_they_are(place: Path) -> None:
    status = (place / "secret").stat()
    context = Context(hidden=(str(place / "open" / "to-secret"), str(place / "missing")))
    assert hidden_identities(context) == {(status.st_dev, status.st_ino)}


@pytest.mark.parametrize(
    ("path", "directory", "is_below"),
    [
        ("/a", "/a", True),
        ("/a/b", "/a", True),
        ("/ab", "/a", False),
        ("/a", "/a/b", False),
        ("/a", "/", True),
        ("/", "/", True),
    ],
)
def test_below_goes_by_whole_components(path: str, directory: str, is_below: bool) -> None:
    assert below(path, directory) is is_below
