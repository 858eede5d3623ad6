"""`users.yaml`: read strictly, changed whole, by one at a time."""

from __future__ import annotations

import multiprocessing
import os
import stat
from pathlib import Path

import pytest

from gateway.config import ConfigError
from gateway.users import IssuedToken, User, Users, changing, check_name, read

TOKEN = IssuedToken("6f1c0a", "2026-01-31T12:00:00Z", "2026-03-02T12:00:00Z")

# Each would be something else than text if YAML read it unquoted, or is at the edge of what a name may be.
NAMES = ["alice", "_", "a.b-c@d", "123", "1e3", "0x1F", "0o7", "null", "true", "No", "1.5", "2026-01-31", "a" * 64]


def refusal(path: Path, text: str) -> str:
    path.write_text(text)
    with pytest.raises(ConfigError) as caught:
        read(str(path))
    sentence = str(caught.value)
    assert sentence.isprintable()
    return sentence.removeprefix(f"{path}: ")


def test_no_file_is_no_users(tmp_path: Path) -> None:
    assert read(f"{tmp_path}/users.yaml") == Users({})


def test_what_was_changed_is_read_again(tmp_path: Path) -> None:
    with changing(str(tmp_path)) as users:
        for name in NAMES:
            users[name] = User((TOKEN,))
        users["nobody"] = User()
    expected = {name: User((TOKEN,)) for name in NAMES} | {"nobody": User()}
    assert read(f"{tmp_path}/users.yaml").users == expected
    assert list(read(f"{tmp_path}/users.yaml").users) == [*NAMES, "nobody"]
    with changing(str(tmp_path)) as users:
        assert users == expected
        del users["alice"]
    assert "alice" not in read(f"{tmp_path}/users.yaml").users


def test_the_file_is_what_its_docstring_shows(tmp_path: Path) -> None:
    with changing(str(tmp_path)) as users:
        users["alice"] = User((TOKEN,))
    assert (tmp_path / "users.yaml").read_text() == (
        "users:\n"
        "  alice:\n"
        "    tokens:\n"
        "    - id: 6f1c0a\n"
        "      issued: '2026-01-31T12:00:00Z'\n"
        "      expires: '2026-03-02T12:00:00Z'\n"
    )


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o077])
def test_the_file_is_for_its_owner_alone(tmp_path: Path, umask: int) -> None:
    (tmp_path / "users.yaml").write_text("users: {}\n")
    (tmp_path / "users.yaml").chmod(0o644)
    (tmp_path / "users.yaml.new").write_text("left behind by a crash")
    (tmp_path / "users.yaml.new").chmod(0o666)
    before = os.umask(umask)
    try:
        with changing(str(tmp_path)) as users:
            users["alice"] = User()
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "users.yaml").stat().st_mode) == 0o600
    assert sorted(os.listdir(tmp_path)) == [".users.lock", "users.yaml"]


def test_a_body_that_fails_leaves_the_file_as_it_was(tmp_path: Path) -> None:
    with changing(str(tmp_path)) as users:
        users["alice"] = User()
    before = (tmp_path / "users.yaml").read_bytes()

    def fail() -> None:
        with changing(str(tmp_path)) as users:
            users["bob"] = User()
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fail()
    assert (tmp_path / "users.yaml").read_bytes() == before
    with changing(str(tmp_path)) as users:  # and the lock is free again
        assert list(users) == ["alice"]


def test_a_broken_file_is_not_overwritten(tmp_path: Path) -> None:
    (tmp_path / "users.yaml").write_text("users: [")
    with pytest.raises(ConfigError), changing(str(tmp_path)):
        pass
    assert (tmp_path / "users.yaml").read_text() == "users: ["


def _add(directory: str, names: list[str]) -> None:
    for name in names:
        with changing(directory) as users:
            users[name] = User()


def test_changes_by_several_processes_at_once_all_count(tmp_path: Path) -> None:
    fork = multiprocessing.get_context("fork")
    names = [[f"user-{process}-{number}" for number in range(8)] for process in range(4)]
    processes = [fork.Process(target=_add, args=(str(tmp_path), some)) for some in names]
    for process in processes:
        process.start()
    for process in processes:
        process.join(30)
    assert [process.exitcode for process in processes] == [0, 0, 0, 0]
    assert set(read(f"{tmp_path}/users.yaml").users) == {name for some in names for name in some}


@pytest.mark.parametrize(
    ("written", "text"),
    [
        ("2026-03-02T12:00:00Z", "2026-03-02T12:00:00Z"),
        ("'2026-03-02T12:00:00Z'", "2026-03-02T12:00:00Z"),
        ("2026-03-02 12:00:00", "2026-03-02T12:00:00"),
        ("2026-03-02", "2026-03-02"),
        ("whenever", "whenever"),
    ],
)
def test_timestamps_edited_by_hand_are_text(tmp_path: Path, written: str, text: str) -> None:
    path = tmp_path / "users.yaml"
    path.write_text(f"users: {{alice: {{tokens: [{{id: a, issued: 2026-01-31T12:00:00Z, expires: {written}}}]}}}}")
    (token,) = read(str(path)).users["alice"].tokens
    assert token == IssuedToken("a", "2026-01-31T12:00:00Z", text)
    with changing(str(tmp_path)):
        pass
    assert read(str(path)).users["alice"].tokens == (token,)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("user: {}", "object contains unknown field user"),
        ("users:", "users: expected object, got null"),
        ("users: [alice]", "users: expected object, got array"),
        ("users: {1: {}}", "users: a key: expected str, got int"),
        ("users: {null: {}}", "users: a key: expected str, got null"),
        ("users: {alice: }", "users.alice: expected object, got null"),
        ("users: {alice: {token: []}}", "users.alice: object contains unknown field token"),
        ("users: {alice: {tokens: {}}}", "users.alice.tokens: expected array, got object"),
        (
            "users: {bob: {}, alice: {tokens: [{id: 1, issued: a, expires: b}]}}",
            "users.alice.tokens[0].id: expected str, got int",
        ),
        ("users: {alice: {tokens: [{id: a}]}}", "users.alice.tokens[0]: object missing required field issued"),
        ("users: {a b: {}}", "user name 'a b': letters, digits and _ . @ - are allowed, 64 at most"),
        ('users: {"a\\n": {}}', "user name 'a\\n': letters, digits and _ . @ - are allowed, 64 at most"),
        ("users: {alice: {}, alice: {}}", 'line 1: found duplicate key "alice" with value "{}" (original value: "{}")'),
        (
            "users: {alice: &a {}, bob: *a}",
            "line 1: anchors and aliases (& and *) are not allowed - write the value out",
        ),
    ],
)
def test_a_file_that_does_not_fit_is_refused_with_its_key(tmp_path: Path, text: str, sentence: str) -> None:
    assert refusal(tmp_path / "users.yaml", text) == sentence


@pytest.mark.parametrize("name", NAMES)
def test_names_like_those_of_accounts_are_allowed(name: str) -> None:
    assert check_name(name) == name


@pytest.mark.parametrize(
    "name",
    [
        "",
        "-a",
        ".a",
        "@a",
        "a b",
        "a/b",
        "../a",
        "a\n",
        "\na",
        "a\0",
        "a:b",
        "é",
        "a" * 65,
        "a\u200b",
        "١",
        "a;b",
        "$a",
    ],
)
def test_other_names_are_refused(name: str) -> None:
    with pytest.raises(ConfigError, match=r"letters, digits and _ \. @ - are allowed, 64 at most") as caught:
        check_name(name)
    assert str(caught.value).isprintable()
