"""The tools: plain functions of (arguments, context) -> Result that know no network. One tool, one file."""

from __future__ import annotations

import importlib
import pkgutil

from tools._tool import Context, Result, Tool, ToolError

__all__ = ["Context", "Result", "Tool", "ToolError", "load"]


def load() -> dict[str, Tool]:
    """{name: Tool} of every public module of this package that declares one, in the order of their names."""
    found: dict[str, Tool] = {}
    for module in pkgutil.iter_modules(__path__):
        if module.name.startswith("_") or module.name == "worker":
            continue
        for value in vars(importlib.import_module(f"{__name__}.{module.name}")).values():
            if isinstance(value, Tool):
                found[value.name] = value
    return dict(sorted(found.items()))
