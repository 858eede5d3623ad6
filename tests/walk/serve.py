"""`ssegate` with the tools of the tests beside the real ones: python tests/walk/serve.py serve …

With SSEGATE_TEST_UID it first becomes that user, so that an ordinary start can be tested by root. Everything is
imported before that: the interpreter may lie where only root can read.
"""

from __future__ import annotations

import importlib
import os
import pkgutil
from pathlib import Path

import certs
import gateway
import tools
from gateway.cli import main

if __name__ == "__main__":
    tools.__path__.append(str(Path(__file__).parent / "extra_tools"))
    if uid := int(os.environ.pop("SSEGATE_TEST_UID", "0")):
        for package in (certs, gateway):
            for module in pkgutil.iter_modules(package.__path__):
                importlib.import_module(f"{package.__name__}.{module.name}")
        from gateway.server import LATE_IMPORTS

        for name in LATE_IMPORTS:
            importlib.import_module(name)
        tools.load()
        os.setgroups([])
        os.setresgid(uid, uid, uid)
        os.setresuid(uid, uid, uid)
    main(prog_name="ssegate")
