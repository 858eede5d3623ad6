"""The tool that the README shows is a tool."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

import tools
from tools._tool import Context, call


def shown_tool() -> str:
    """The README's example, as it stands there."""
    found = re.search(r"```python\n(.*?)```", (Path(__file__).parents[2] / "README.md").read_text(), re.DOTALL)
    assert found is not None
    return found[1]


def test_the_tool_of_the_readme_needs_its_one_file_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "disk_free.py").write_text(shown_tool())
    monkeypatch.setattr(tools, "__path__", [*tools.__path__, str(tmp_path)])
    tool = tools.load()["disk/free"]
    assert tool.descriptor("disk_free")["inputSchema"]["required"] == ["path"]
    free = call(tool, {"path": "/"}, None, Context()).structured
    assert free is not None
    status = os.statvfs("/")
    assert free["bytes"] == pytest.approx(status.f_bavail * status.f_frsize, rel=0.05)
    assert call(tool, {"path": "/nosuch"}, None, Context()).text == "No such file or directory: /nosuch"
    assert call(tool, {"path": "etc"}, None, Context()).is_error


def test_two_tools_that_a_client_could_not_tell_apart_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "twin_one.py").write_text(shown_tool())
    (tmp_path / "twin_two.py").write_text(shown_tool().replace("disk/free", "disk_free"))
    monkeypatch.setattr(tools, "__path__", [*tools.__path__, str(tmp_path)])
    with pytest.raises(ValueError, match="are both called disk_free"):
        tools.load()
