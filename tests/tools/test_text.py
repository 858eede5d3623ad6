"""`tools._text`: bytes as JSON text."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tools._text import ascii_json, name_hex, name_text, readable_json, shown

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=8,
)


@pytest.mark.parametrize(
    ("name", "text", "hexed"),
    [
        (b"plain", "plain", None),
        ("Grüße".encode(), "Grüße", None),
        ("日本".encode(), "日本", None),
        (b"", "", None),
        (b"\xff", "\ufffd", "ff"),
        (b"a\xffb\xfe", "a\ufffdb\ufffd", "61ff62fe"),
        (b"\xe6\x97", "\ufffd", "e697"),  # a character cut short is one sequence
        (b"\xed\xa0\x80", "\ufffd\ufffd\ufffd", "eda080"),  # a surrogate is not UTF-8
        (b"new\nline", "new\nline", None),
    ],
)
def test_a_name_is_shown_as_utf8_and_its_bytes_are_given_when_that_is_not_exact(
    name: bytes, text: str, hexed: str | None
) -> None:
    assert name_text(name) == text
    assert name_hex(name) == hexed


@settings(max_examples=50, deadline=None)
@given(st.binary())
def test_every_name_has_a_text_that_is_unicode_and_bytes_that_can_be_had_back(name: bytes) -> None:
    text = name_text(name)
    text.encode("utf-8")
    hexed = name_hex(name)
    assert (text.encode("utf-8") if hexed is None else bytes.fromhex(hexed)) == name


@pytest.mark.parametrize(
    ("path", "sentence"),
    [
        ("/var/log", "/var/log"),
        ("/Grüße/日本", "/Grüße/日本"),
        ("/a\nb", "/a\\nb"),
        ("/a\x1b[31mb", "/a\\x1b[31mb"),
        ("/a\0b", "/a\\x00b"),
        ("/a\u2028b", "/a\\u2028b"),
        ("/a\u202eb", "/a\\u202eb"),
        ("/a\ud800b", "/a\\ud800b"),
        ("/" + "x" * 199, "/" + "x" * 199),
        ("/" + "x" * 200, "/" + "x" * 198 + "…"),
    ],
)
def test_a_callers_string_inside_a_sentence_is_one_short_line_without_controls(path: str, sentence: str) -> None:
    assert shown(path) == sentence


@settings(max_examples=50, deadline=None)
@given(st.text(st.characters()))
def test_what_is_shown_never_has_controls_or_surrogates(path: str) -> None:
    assert shown(path).isprintable()


@settings(max_examples=50, deadline=None)
@given(JSON)
def test_both_forms_of_json_are_read_back_as_the_same_value(value: object) -> None:
    assert json.loads(ascii_json(value)) == value
    assert json.loads(readable_json(value)) == value


@settings(max_examples=50, deadline=None)
@given(JSON)
def test_json_for_the_wire_is_ascii_on_one_line(value: object) -> None:
    assert ascii_json(value).isascii()
    assert len(ascii_json(value).splitlines()) == 1


def test_json_is_compact_and_only_the_readable_form_keeps_other_scripts() -> None:
    value = {"b": [1, "日"], "a": None}
    assert readable_json(value) == '{"b":[1,"日"],"a":null}'
    assert ascii_json(value) == '{"b":[1,"\\u65e5"],"a":null}'


@pytest.mark.parametrize("write", [readable_json, ascii_json])
@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_numbers_that_json_does_not_have_are_refused(write: object, value: float) -> None:
    assert callable(write)
    with pytest.raises(ValueError, match="JSON"):
        write(value)
