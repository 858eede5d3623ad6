"""`read_files_batch`: contents and errors, against the real file system and a FUSE one that may not answer."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from fcntl import F_SETLEASE, F_UNLCK, F_WRLCK, fcntl
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.tools._fuse import TEXT, mounted
from tests.tools._unprivileged import answer, public_directory
from tools import Context, _reading, load
from tools._tool import bounded, call

READ = load()["read_files_batch"]
MIB = 1024 * 1024


@pytest.fixture
def place() -> Iterator[Path]:
    with public_directory() as directory:
        yield directory


@pytest.fixture
def fuse(place: Path) -> Iterator[subprocess.Popen[bytes]]:
    """The FUSE file system of `_fuse` at `place`."""
    with mounted(place) as server:
        if server is None:
            pytest.skip("no right to mount a FUSE file system here")
        yield server


def results(paths: list[str] | list[Path], context: Context | None = None) -> Any:
    """The results by path; the whole is what the schema says, stands in the text too, and is within the limit."""
    context = context or Context()
    encoded = bounded(READ, call(READ, {"paths": [str(path) for path in paths]}, None, context), context)
    assert len(encoded) <= context.limit
    whole = json.loads(encoded)
    assert READ.output_schema is not None
    jsonschema.validate(whole["structuredContent"], READ.output_schema)
    assert json.loads(whole["content"][0]["text"]) == whole["structuredContent"]
    assert list(json.loads(whole["content"][0]["text"])["results"]) == list(whole["structuredContent"]["results"])
    assert "isError" not in whole
    return whole["structuredContent"]["results"]


def ok(content: str) -> dict[str, str]:
    return {"status": "ok", "content": content}


def error(code: str, message: str) -> dict[str, str]:
    return {"status": "error", "code": code, "message": message}


# What is delivered


def test_the_example_of_the_seed_gives_content_and_error_by_path(place: Path) -> None:
    (place / "index.ts").write_text("import { foo } from './foo.js';\n\nfoo();\n")
    index, utils = f"{place}/index.ts", f"{place}/utils.ts"
    assert results([index, utils]) == {
        index: ok("import { foo } from './foo.js';\n\nfoo();\n"),
        utils: error("not-found", f"File not found: {utils}"),
    }


def test_no_paths_give_no_results() -> None:
    result = call(READ, {"paths": []}, None, Context())
    assert result.structured == {"results": {}}
    assert result.text == '{"results":{}}'
    assert result.is_error is None


def test_results_stand_in_the_order_asked_each_path_once_and_as_it_was_written(place: Path) -> None:
    (place / "b").write_text("b")
    (place / "a").write_text("a")
    asked = [f"{place}/{name}" for name in ("b", "missing", "a", "./b", "b", "/a", "a", "missing")]
    found = results(asked)
    assert list(found) == [f"{place}/{name}" for name in ("b", "missing", "a", "./b", "/a")]
    assert [found[path]["status"] for path in found] == ["ok", "error", "ok", "ok", "ok"]


@pytest.mark.parametrize(
    ("written", "content"),
    [
        (b"", ""),
        (b"\n", "\n"),
        (b"no newline at the end", "no newline at the end"),
        (b"a\r\nb\rc\nd", "a\r\nb\rc\nd"),
        (b"\xef\xbb\xbfwith a BOM", "\ufeffwith a BOM"),
        (b"a\0b\x1a\x7f\x80"[:5], "a\0b\x1a\x7f"),
        ("Grüße 日本 \U0001f600".encode(), "Grüße 日本 \U0001f600"),
        ("\u2028\u2029\u0085\ufffe\uffff".encode(), "\u2028\u2029\u0085\ufffe\uffff"),
        (b'{"json": "\\u0041\\\\"}', '{"json": "\\u0041\\\\"}'),
    ],
)
def test_content_is_exact(place: Path, written: bytes, content: str) -> None:
    (place / "file").write_bytes(written)
    assert results([place / "file"]) == {f"{place}/file": ok(content)}


@pytest.mark.parametrize(
    ("written", "byte", "offset"),
    [
        (b"\xff", "ff", 0),
        (b"caf\xe9", "e9", 3),
        (b"\xfe\xff\0a", "fe", 0),
        (b"ok \xe6\x97", "e6", 3),
        (b"\xc0\x80", "c0", 0),
        (b"\xed\xa0\x80", "ed", 0),
        (b"\xf4\x90\x80\x80", "f4", 0),
        (b"a" * 100_000 + b"\x80", "80", 100_000),
        (b"\x89PNG\r\n\x1a\n", "89", 0),
    ],
)
def test_bytes_that_are_not_utf8_are_an_error_that_says_where(
    place: Path, written: bytes, byte: str, offset: int
) -> None:
    (place / "file").write_bytes(written)
    assert results([place / "file"]) == {
        f"{place}/file": error("fs-error", f"Not UTF-8 text: byte 0x{byte} at offset {offset}: {place}/file")
    }


@settings(max_examples=150, deadline=None)
@given(st.binary(max_size=200) | st.text(st.characters(codec="utf-8")).map(str.encode))
@example(b"\xe2\x82")
def test_any_bytes_are_delivered_exactly_or_refused_at_the_right_offset(written: bytes) -> None:
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory, "file")
        path.write_bytes(written)
        found = results([path])[str(path)]
    if found["status"] == "ok":
        assert found["content"].encode() == written
    else:
        offset = int(found["message"].split(" at offset ")[1].split(":")[0])
        written[:offset].decode("utf-8")  # all before it is text, and there no character begins
        for end in range(offset + 1, offset + 5):
            with pytest.raises(UnicodeDecodeError):
                written[offset:end].decode("utf-8")


# What is not delivered


@pytest.mark.parametrize(
    ("spelling", "code", "sentence"),
    [
        ("missing", "not-found", "File not found: PATH"),
        ("missing/below", "not-found", "File not found: PATH"),
        ("dangling", "not-found", "File not found: PATH"),
        ("directory", "not-a-file", "Not a file but a directory: PATH"),
        ("directory/", "not-a-file", "Not a file but a directory: PATH"),
        ("to-directory", "not-a-file", "Not a file but a directory: PATH"),
        ("fifo", "not-a-file", "Not a file but a FIFO: PATH"),
        ("to-fifo", "not-a-file", "Not a file but a FIFO: PATH"),
        ("socket", "not-a-file", "Not a file but a socket: PATH"),
        ("file/", "fs-error", "Not a directory: PATH"),
        ("file/below", "fs-error", "Not a directory: PATH"),
        ("loop", "fs-error", "Too many levels of symbolic links: PATH"),
        ("x" * 256, "fs-error", "File name too long: PATH"),
        ("x/" * 2100, "fs-error", "File name too long: PATH"),
    ],
)
def test_a_failure_has_the_code_of_the_seed_names_the_path_and_leaves_the_others_alone(
    place: Path, spelling: str, code: str, sentence: str
) -> None:
    (place / "file").write_text("text")
    (place / "directory").mkdir()
    os.mkfifo(place / "fifo")
    for link, target in {"dangling": "no", "loop": "loop", "to-fifo": "fifo", "to-directory": "directory"}.items():
        (place / link).symlink_to(target)
    path = f"{place}/{spelling}"
    shown = path if len(path) <= 200 else path[:199] + "…"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(place / "socket"))
        assert results([path, f"{place}/file"]) == {
            path: error(code, sentence.replace("PATH", shown)),
            f"{place}/file": ok("text"),
        }


@pytest.mark.parametrize(
    ("path", "sentence"),
    [
        ("", "path is empty - give an absolute path, such as /var/log"),
        ("etc/hosts", "path etc/hosts is relative - give an absolute path, such as /etc/hosts"),
        ("/etc/pass\0wd", "path /etc/pass\\x00wd contains a NUL character - no file name can hold one"),
    ],
)
def test_a_string_that_is_no_absolute_path_is_not_found_and_the_message_says_why(path: str, sentence: str) -> None:
    assert results([path]) == {path: error("not-found", sentence)}


def test_devices_are_not_read() -> None:
    kind = "Not a file but a character device: "
    assert results(["/dev/null", "/dev/zero"]) == {
        path: error("not-a-file", kind + path) for path in ("/dev/null", "/dev/zero")
    }


def test_links_to_files_are_followed_however_often(place: Path) -> None:
    (place / "file").write_text("text")
    (place / "one").symlink_to("file")
    (place / "two").symlink_to(place / "one")
    assert results([place / "two"]) == {f"{place}/two": ok("text")}


def test_a_file_that_may_not_be_read_is_an_error_with_the_words_of_the_system(place: Path) -> None:
    for name, mode in (("closed", 0o000), ("write-only", 0o222), ("open", 0o444)):
        (place / name).write_text("text")
        (place / name).chmod(mode)
    (place / "shut").mkdir()
    (place / "shut" / "file").write_text("text")
    (place / "shut").chmod(0o600 if os.getuid() == 0 else 0o000)
    paths = [f"{place}/{name}" for name in ("closed", "write-only", "shut/file", "open")]
    assert answer("read_files_batch", {"paths": paths})["structuredContent"]["results"] == {
        **{path: error("fs-error", f"Permission denied: {path}") for path in paths[:3]},
        paths[3]: ok("text"),
    }


def test_files_of_proc_and_sys_which_tell_no_true_size_are_read_to_their_end() -> None:
    paths = [
        "/proc/version",
        "/proc/sys/kernel/ostype",
        "/sys/kernel/mm/transparent_hugepage/enabled",
        "/proc/filesystems",
    ]
    paths = [path for path in paths if os.path.exists(path)]
    by_cat = {path: subprocess.run(["cat", path], capture_output=True, check=True).stdout.decode() for path in paths}
    assert results(paths) == {path: ok(content) for path, content in by_cat.items()}
    assert by_cat["/proc/version"]


def test_a_proc_file_longer_than_one_read_is_whole() -> None:
    content = results(["/proc/self/smaps"])["/proc/self/smaps"]["content"]
    assert len(content) > 65536
    assert content.endswith("\n")
    assert content.count("VmFlags:") == content.count("\nSize:")


@pytest.mark.parametrize(("path", "words"), [("/proc/self/mem", "Input/output error"), ("/proc/kcore", "")])
def test_files_of_proc_that_are_no_text_are_an_error(path: str, words: str) -> None:
    found = results([path])[path]
    assert found["status"] == "error"
    assert found["code"] in ("fs-error", "not-found")
    assert words in found["message"]


def test_a_file_that_another_program_has_leased_is_read_when_it_gives_it_up(place: Path) -> None:
    (place / "leased").write_text("text")
    holder = os.open(place / "leased", os.O_RDWR)
    told = []

    def give_up(_signal: int, _frame: object) -> None:
        told.append(True)
        fcntl(holder, F_SETLEASE, F_UNLCK)

    before = signal.signal(signal.SIGIO, give_up)
    try:
        fcntl(holder, F_SETLEASE, F_WRLCK)
        assert results([place / "leased"]) == {f"{place}/leased": ok("text")}
        assert told
    finally:
        signal.signal(signal.SIGIO, before)
        os.close(holder)


# What may be seen


def test_outside_the_roots_and_in_the_gateways_own_directory_nothing_is_read(place: Path) -> None:
    for name in ("open/file", "open/gate/token", "shut/file"):
        (place / name).parent.mkdir(parents=True, exist_ok=True)
        (place / name).write_text(name)
    (place / "open" / "out").symlink_to("../shut/file")
    (place / "open" / "token").symlink_to("gate/token")
    context = Context(roots=(f"{place}/open",), hidden=(f"{place}/open/gate",))
    found = results(
        [f"{place}/{name}" for name in ("open/file", "open/out", "open/token", "shut/no", "open/no")], context
    )
    outside = "path PATH is outside what may be read here - ask for something below " + f"{place}/open"
    own = "path PATH is inside the gateway's own configuration, which is never shown"
    assert found == {
        f"{place}/open/file": ok("open/file"),
        f"{place}/open/out": error("fs-error", outside.replace("PATH", f"{place}/open/out")),
        f"{place}/open/token": error("fs-error", own.replace("PATH", f"{place}/open/token")),
        f"{place}/shut/no": error("fs-error", outside.replace("PATH", f"{place}/shut/no")),
        f"{place}/open/no": error("not-found", f"File not found: {place}/open/no"),
    }


# Limits


def test_a_file_of_ten_mebibytes_is_read_and_one_byte_more_is_refused_with_size_and_limit(place: Path) -> None:
    (place / "just").write_bytes(b"x" * (10 * MIB))
    (place / "more").write_bytes(b"x" * (10 * MIB + 1))
    os.truncate(place / "more", 10 * MIB + 1)
    found = results([place / "just", place / "more"])
    assert found[f"{place}/just"] == ok("x" * (10 * MIB))
    assert found[f"{place}/more"] == error(
        "fs-error", f"File of 10,485,761 bytes is over the limit of 10,485,760 bytes for one file: {place}/more"
    )


def test_when_the_result_is_full_files_that_do_not_fit_are_refused_and_all_that_fit_are_delivered(place: Path) -> None:
    for name, size in (("a", 30_000), ("b", 30_000), ("c", 50_000), ("d", 100), ("e", 30_000), ("f", 10)):
        (place / name).write_bytes(b"x" * size)
    found = results([place / name for name in "abcdef"], Context(limit=128_000))
    assert [found[path]["status"] for path in found] == ["ok", "ok", "error", "ok", "error", "ok"]
    for name, refused in (("c", "50,000"), ("e", "30,000")):
        assert found[f"{place}/{name}"] == error(
            "fs-error",
            f"Not delivered: with its {refused} bytes the result would pass this session's limit of 128,000 bytes "
            "- ask for fewer files in one call",
        )


CHARACTERS = st.sampled_from(["a", '"', "\\", "\n", "\0", "\x7f", "é", "日", "\U0001f600", "\u2028"])
FILES = st.lists(st.text(CHARACTERS, max_size=300) | st.none(), max_size=12)


@settings(max_examples=150, deadline=None)
@given(FILES, st.integers(0, 12_000), st.integers(0, 40))
def test_a_result_with_refused_files_is_within_the_limit_and_delivers_all_that_could_be(
    texts: list[str | None], beyond: int, padding: int
) -> None:
    with tempfile.TemporaryDirectory() as directory:
        paths = [f"{directory}/{'n' * padding}{number}" for number in range(len(texts))]
        for path, text in zip(paths, texts, strict=True):
            if text is not None:
                Path(path).write_text(text, encoding="utf-8", newline="")

        def size(found: dict[str, Any]) -> int:
            text = json.dumps({"results": found}, ensure_ascii=False, separators=(",", ":"))
            whole = {"content": [{"type": "text", "text": text}], "structuredContent": {"results": found}}
            return len(json.dumps(whole, separators=(",", ":")))

        def refused(count: int, limit: int) -> dict[str, str]:
            return error(
                "fs-error",
                f"Not delivered: with its {count:,} bytes the result would pass this session's limit of {limit:,} "
                "bytes - ask for fewer files in one call",
            )

        limit = size({path: refused(10 * MIB, 99_999) for path in paths}) + beyond
        found = results(paths, Context(limit=limit))
        for number, (path, text) in enumerate(zip(paths, texts, strict=True)):
            if found[path]["status"] == "ok":
                assert found[path]["content"] == text
            elif text is not None:
                assert found[path] == refused(len(text.encode()), limit)
                # It would not have fitted, with room kept to refuse whatever came after it.
                instead = dict(found) | {later: refused(10 * MIB, limit) for later in paths[number:]}
                assert size(instead | {path: ok(text)}) > limit


def test_a_limit_too_small_even_for_refusals_is_an_error_that_says_the_way_out(place: Path) -> None:
    context = Context(limit=1000)
    paths = [f"{place}/{number}" for number in range(100)]
    whole = json.loads(bounded(READ, call(READ, {"paths": paths}, None, context), context))
    assert whole["isError"] is True
    assert whole["content"][0]["text"].endswith("limit of 1,000 bytes - ask for fewer or smaller files in one call")


def test_many_big_files_take_no_more_memory_and_time_than_what_fits(place: Path) -> None:
    (place / "big").write_bytes(b"x" * (10 * MIB))
    for number in range(300):
        os.link(place / "big", place / f"big-{number}")
    begun = time.process_time()
    found = results([place / f"big-{number}" for number in range(300)], Context(limit=50 * MIB))
    assert time.process_time() - begun < 10  # reading all 3 GB and measuring them takes more
    assert [found[path]["status"] for path in found] == ["ok"] * 2 + ["error"] * 298


# Many, slow and hanging files


def test_a_thousand_files_are_read_in_one_call(place: Path) -> None:
    for number in range(1000):
        (place / f"{number}").write_text(f"file {number}\n" * (number % 50))
    found = results([place / f"{number}" for number in range(1000)])
    assert found == {f"{place}/{number}": ok(f"file {number}\n" * (number % 50)) for number in range(1000)}


@pytest.mark.usefixtures("fuse")
def test_files_that_never_answer_delay_only_themselves(place: Path, tmp_path: Path) -> None:
    (tmp_path / "local").write_text("local")
    hanging = [f"{place}/{name}" for name in ("hang-1", "deaf-1", "hang-2", "deaf-2", "hang-3")]
    paths = [hanging[0], f"{place}/text", *hanging[1:], f"{place}/broken", str(tmp_path / "local")]
    begun = time.monotonic()
    found = results(paths, Context(deadline=begun + 3))
    assert time.monotonic() - begun < 3
    assert list(found) == paths
    for path in hanging:
        assert found[path]["code"] == "fs-error"
        assert found[path]["message"].startswith("No answer from the file within 1.")
        assert found[path]["message"].endswith(f" s: {path}")
    assert found[f"{place}/text"] == ok(TEXT.decode())
    assert found[f"{place}/broken"] == error("fs-error", f"Input/output error: {place}/broken")
    assert found[str(tmp_path / "local")] == ok("local")


@pytest.mark.usefixtures("fuse")
def test_more_hanging_files_than_there_are_readers_do_not_keep_the_others_from_being_read(
    place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_reading, "FILE_SECONDS", 0.5)
    (tmp_path / "local").write_text("local")
    hanging = [f"{place}/hang-{number}" for number in range(40)]
    found = results([*hanging, str(tmp_path / "local")], Context(deadline=time.monotonic() + 20))
    assert {found[path]["status"] for path in hanging} == {"error"}
    assert found[str(tmp_path / "local")] == ok("local")


@pytest.mark.usefixtures("fuse")
def test_calls_after_one_with_hanging_files_are_answered_as_ever(place: Path, tmp_path: Path) -> None:
    (tmp_path / "local").write_text("local")
    results([f"{place}/hang-1", f"{place}/hang-2"], Context(deadline=time.monotonic() + 0.2))
    for _ in range(20):
        assert results([tmp_path / "local"]) == {str(tmp_path / "local"): ok("local")}


def test_a_slow_file_is_waited_for_while_the_others_are_read(
    place: Path, fuse: subprocess.Popen[bytes], tmp_path: Path
) -> None:
    for number in range(50):
        (tmp_path / f"{number}").write_text(f"{number}")
    local = [str(tmp_path / f"{number}") for number in range(50)]
    accessed: list[int] = []

    def progress(done: int, total: int | None, _message: str) -> None:
        assert total == 52
        accessed.append(done)
        if done == 1:
            assert fuse.stdin is not None
            fuse.stdin.write(b"answer now\n")
            fuse.stdin.flush()

    paths = [f"{place}/text", f"{place}/late", *local]
    found = results(paths, Context(progress=progress))
    assert list(found) == paths
    assert found[f"{place}/late"] == ok(TEXT.decode())
    assert [found[path] for path in local] == [ok(f"{number}") for number in range(50)]
    assert accessed == list(range(1, 53))


@pytest.mark.usefixtures("fuse")
@pytest.mark.parametrize("brisk", [_reading._BRISK, sys.maxsize])
def test_with_a_hanging_file_first_what_fits_is_still_decided_in_the_order_asked(
    place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, brisk: int
) -> None:
    monkeypatch.setattr(_reading, "_BRISK", brisk)  # as if every file had to be waited for: all readers are at work
    for number in range(60):
        (tmp_path / f"{number}").write_bytes(b"x" * (100_000 if number % 6 else 10))
    paths = [f"{place}/hang-1", *(str(tmp_path / f"{number}") for number in range(60))]
    found = results(paths, Context(limit=2_100_000, deadline=time.monotonic() + 2))
    # 10 of the large ones fit, numbers 1 to 5 and 7 to 11, and all the small ones.
    delivered = [number < 12 or number % 6 == 0 for number in range(60)]
    assert [found[path]["status"] for path in paths] == ["error"] + ["ok" if each else "error" for each in delivered]


@pytest.mark.usefixtures("fuse")
def test_a_call_whose_time_is_over_answers_at_once(place: Path) -> None:
    begun = time.monotonic()
    found = results([f"{place}/hang-1", f"{place}/hang-2"], Context(deadline=begun - 1))
    assert {each["code"] for each in found.values()} == {"fs-error"}
    assert time.monotonic() - begun < 5


def test_a_process_with_files_that_never_answer_ends_as_soon_as_the_kernel_lets_them_go(place: Path) -> None:
    script = (
        "import sys, time; from tools import Context, load; from tools._tool import call\n"
        "context = Context(deadline=time.monotonic() + 0.4)\n"
        "print(call(load()['read_files_batch'], {'paths': sys.argv[1:]}, None, context).text, flush=True)"
    )
    with mounted(place) as server:
        if server is None:
            pytest.skip("no right to mount a FUSE file system here")
        process = subprocess.Popen(
            [sys.executable, "-c", script, f"{place}/hang-1"],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=Path(__file__).parents[2],
        )
        assert process.stdout is not None
        assert b"No answer from the file" in process.stdout.readline()
    _, complaints = process.communicate(timeout=20)
    assert (process.returncode, complaints) == (0, b"")


def test_without_a_thread_to_be_had_files_are_read_one_after_the_other(place: Path) -> None:
    for name in "abc":
        (place / name).write_text(name)
    paths = [f"{place}/{name}" for name in ("a", "missing", "b", "c")]
    assert answer("read_files_batch", {"paths": paths}, threads=False)["structuredContent"]["results"] == {
        f"{place}/a": ok("a"),
        f"{place}/missing": error("not-found", f"File not found: {place}/missing"),
        f"{place}/b": ok("b"),
        f"{place}/c": ok("c"),
    }


def test_no_descriptor_is_left_open(place: Path) -> None:
    (place / "file").write_text("text")
    (place / "binary").write_bytes(b"\xff")
    before = os.listdir("/proc/self/fd")
    results([place / "file", place / "binary", place, place / "missing"])
    assert os.listdir("/proc/self/fd") == before


def test_a_fault_of_ours_in_a_reader_reaches_the_caller(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_reading, "FILE_LIMIT", None)
    (place / "file").write_text("text")
    with pytest.raises(TypeError):
        call(READ, {"paths": [str(place / "file")]}, None, Context())


# How it is described


@pytest.mark.parametrize(
    ("arguments", "start"),
    [
        ({}, "argument 'paths' is required: Absolute paths of the files"),
        ({"paths": None}, "argument 'paths' must be array, not null"),
        ({"paths": "/etc/hosts"}, "argument 'paths' must be array, not string"),
        ({"paths": ["/etc/hosts", 1]}, "argument 'paths[1]' must be string, not integer"),
        ({"paths": {"0": "/etc/hosts"}}, "argument 'paths' must be array, not object"),
    ],
)
def test_arguments_that_do_not_fit_are_an_error_in_plain_words(arguments: dict[str, Any], start: str) -> None:
    result = call(READ, arguments, None, Context())
    assert result.text.startswith(start)
    assert result.is_error is True
    assert result.structured is None


def test_the_schemas_are_true_and_described_for_a_model() -> None:
    assert READ.input_schema["required"] == ["paths"]
    paths = READ.input_schema["properties"]["paths"]
    assert (paths["type"], paths["items"]) == ("array", {"type": "string"})
    assert paths["description"]
    schema = READ.output_schema
    assert schema is not None
    assert schema["type"] == "object"
    for each in (schema, READ.input_schema):
        jsonschema.Draft202012Validator.check_schema(each)
    wrong: list[dict[str, Any]] = [{}, {"results": []}, {"results": {"/a": {"status": "ok"}}}]
    wrong += [{"results": {"/a": {"status": "error", "code": "other", "message": ""}}}]
    for each in wrong:
        assert not jsonschema.Draft202012Validator(schema).is_valid(each)


def test_the_description_says_when_to_use_its_siblings() -> None:
    for sibling in ("files/list", "list_dir", "read_tree"):
        assert sibling in READ.description
