from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.walk.running import Running

Start = Callable[..., Running]


@pytest.fixture(scope="session")
def open_directory() -> Iterator[Path]:
    """A directory that every account can enter, for what tools shall see."""
    path = Path(tempfile.mkdtemp(prefix="ssegate-"))
    path.chmod(0o755)
    yield path
    shutil.rmtree(path)


@pytest.fixture(scope="session")
def unprivileged() -> int:
    """For `start(uid=...)`: an account that is not root, be it that of the tests themselves (0)."""
    return 65534 if os.getuid() == 0 else 0


@pytest.fixture
def start(tmp_path: Path, open_directory: Path) -> Iterator[Start]:
    """Starts gateways that end with the test."""
    started: list[Running] = []

    def begin(settings: dict[str, Any] | None = None, **options: Any) -> Running:
        # pytest's own directories are the owner's alone.
        place = Path(tempfile.mkdtemp(dir=open_directory)) if options.get("uid") else tmp_path
        place.chmod(0o755)
        running = Running(place / f"gateway{len(started)}", settings, **options)
        started.append(running)
        return running

    yield begin
    for running in started:
        running.disconnect()
        running.stop()


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """One gateway for all tests of a module that do not disturb it; no rate limit."""
    running = Running(tmp_path_factory.mktemp("walk") / "gateway", {"limits": {"rate": 0}})
    yield running
    running.disconnect()
    assert running.stop() == 0


@pytest.fixture(scope="module")
def alice(gateway: Running) -> str:
    return gateway.token("alice")


@pytest.fixture(scope="module")
def bob(gateway: Running) -> str:
    return gateway.token("bob")
