"""The tools: plain functions of (arguments, context) -> Result that know no network. One tool, one file."""

from __future__ import annotations

import importlib
import itertools
import pkgutil

from tools._tool import Context, Result, Tool, ToolError, encode, error_result, structured, tool

__all__ = ["Context", "Result", "Tool", "ToolError", "encode", "error_result", "load", "structured", "tool"]


def load() -> dict[str, Tool]:
    """{name: Tool} of every public module of this package that declares one, in the order of their names. Raises
    ValueError for two whose names a client could not tell apart."""
    found: dict[str, Tool] = {}
    for module in pkgutil.iter_modules(__path__):
        if module.name.startswith("_") or module.name == "worker":
            continue
        for value in vars(importlib.import_module(f"{__name__}.{module.name}")).values():
            if isinstance(value, Tool):
                found[value.name] = value
    for one, other in itertools.combinations(found.values(), 2):
        if one.safe_name == other.safe_name:
            raise ValueError(f"tools {one.name} and {other.name} are both called {one.safe_name}")
    return dict(sorted(found.items()))
