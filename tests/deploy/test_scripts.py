"""The scripts of deploy/, by a real shell, against a real gateway."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.walk.running import PATIENCE, Running, alive, children, eventually

ROOT = Path(__file__).parents[2]
TWO_STEP = ROOT / "deploy" / "two-step.sh"


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    running = Running(tmp_path_factory.mktemp("deploy") / "gateway", {"limits": {"rate": 0}})
    yield running
    assert running.stop() == 0


@pytest.fixture(scope="module")
def environment(gateway: Running) -> dict[str, str]:
    return {
        **os.environ,
        "MCP_TOKEN": gateway.token(),
        "MCP_CA_CERT": gateway.certificate,
        "MCP_SERVER": f"https://localhost:{gateway.port}",
    }


def two_step(environment: dict[str, str], *arguments: str) -> subprocess.CompletedProcess[str]:
    command = ["sh", str(TWO_STEP), *arguments]
    return subprocess.run(command, capture_output=True, text=True, env=environment, check=False, timeout=PATIENCE)


@pytest.mark.parametrize("path", ["/usr/bin", "/etc", "/dev", "/var/log"])
def test_two_step_prints_what_ls_prints(environment: dict[str, str], path: str) -> None:
    def ls() -> str:
        command = ["ls", "-l", f"{path}/"]
        return subprocess.run(
            command, capture_output=True, env={**os.environ, "LC_ALL": "C.UTF-8"}, check=True
        ).stdout.decode("utf-8", "replace")

    before = ls()
    done = two_step(environment, "files/list", json.dumps({"path": path}))
    answer = json.loads(done.stdout)
    assert (answer["jsonrpc"], answer["id"], done.stderr, done.returncode) == ("2.0", "1", "", 0)
    assert answer["result"]["content"][0]["text"] in (before, ls())


def test_two_step_prints_a_large_answer_whole(environment: dict[str, str]) -> None:
    done = two_step(environment, "trial/run", '{"do":"answer","size":3000000}')
    assert json.loads(done.stdout)["result"]["content"][0]["text"] == "x" * 3_000_000


def test_two_step_needs_no_arguments_for_a_tool_that_needs_none(environment: dict[str, str]) -> None:
    done = two_step(environment, "list_dir")
    assert "argument 'path' is required" in json.loads(done.stdout)["result"]["content"][0]["text"]


@pytest.mark.parametrize(
    ("changes", "arguments", "said"),
    [
        ({"MCP_TOKEN": "wrong"}, ["list_dir"], "401"),
        ({"MCP_SERVER": "https://localhost:1"}, ["list_dir"], "connect"),
        ({"MCP_CA_CERT": "/etc/ssl/certs/ca-certificates.crt"}, ["list_dir"], "certificate"),
        ({}, ["list_dir", "{"], "400"),
    ],
    ids=["a wrong token", "no server", "another authority", "arguments that are no JSON"],
)
def test_two_step_says_what_is_wrong_and_ends(
    environment: dict[str, str], changes: dict[str, str], arguments: list[str], said: str
) -> None:
    done = two_step({**environment, **changes}, *arguments)
    assert done.returncode != 0
    assert done.stdout == ""
    assert said in done.stderr.lower()


def test_two_step_leaves_no_file_and_no_process(environment: dict[str, str], tmp_path: Path) -> None:
    two_step({**environment, "TMPDIR": str(tmp_path)}, "list_dir", '{"path":"/etc"}')
    assert list(tmp_path.iterdir()) == []
    assert children(os.getpid()) == [] or not any("curl" in name(pid) for pid in children(os.getpid()))


def name(pid: int) -> str:
    return Path(f"/proc/{pid}/comm").read_text() if alive(pid) else ""


def test_two_step_shows_the_token_to_no_other_user(environment: dict[str, str], tmp_path: Path) -> None:
    """The token is in no command line while a call runs."""
    call = ["sh", str(TWO_STEP), "trial/run", '{"do":"sleep","seconds":1}']
    with subprocess.Popen(call, stdout=subprocess.PIPE, env={**environment, "TMPDIR": str(tmp_path)}) as process:
        assert eventually(lambda: any(tmp_path.glob("*/events")))
        lines = [path.read_bytes() for path in Path("/proc").glob("[0-9]*/cmdline") if readable(path)]
        assert any(b"curl" in line for line in lines), "the call is running"
        assert not any(environment["MCP_TOKEN"].encode() in line for line in lines)
        assert {path.stat().st_mode & 0o077 for path in tmp_path.iterdir()} == {0}, "nor in a file others can read"
        assert process.wait(PATIENCE) == 0


def readable(path: Path) -> bool:
    try:
        path.read_bytes()
    except OSError:  # it ended meanwhile
        return False
    return True


def test_the_readme_shows_two_step_as_it_is() -> None:
    assert TWO_STEP.read_text() in (ROOT / "README.md").read_text()


def test_every_setting_and_its_default_stand_in_the_readme() -> None:
    from gateway.config import Limits, Log, Timeouts

    readme = (ROOT / "README.md").read_text()
    for section, settings in (("timeouts", Timeouts()), ("limits", Limits()), ("log", Log())):
        for key in settings.__struct_fields__:
            (row,) = [line for line in readme.splitlines() if line.startswith("| ") and f"`{section}.{key}`" in line]
            value = getattr(settings, key)
            shown = {
                "4194304": "4 MiB",
                "67108864": "64 MiB",
                "8388608": "8 MiB",
                "10000": "10,000",
            }.get(str(value), f"{value}")
            assert re.search(rf"[| ]{re.escape(shown)}[, |]", row), (section, key, row)


@pytest.mark.timeout(300)
def test_quickstart_on_a_fresh_clone_with_an_empty_home_lists_var_log_and_serves_until_ctrl_c(tmp_path: Path) -> None:
    clone, home = tmp_path / "a clone", tmp_path / "home"
    home.mkdir()
    subprocess.run(["git", "clone", "-q", "--no-local", str(ROOT), str(clone)], check=True)
    keep = ("PATH", "LANG", "SSL_CERT_FILE")
    environment = {k: v for k, v in os.environ.items() if k in keep or k.startswith(("PIP_", "PYENV_"))}
    environment |= {"HOME": str(home), "SSEGATE_LISTEN_PORT": "0"}
    log = tmp_path / "log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            ["sh", "deploy/quickstart.sh"],
            cwd=clone,
            env=environment,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        assert eventually(lambda: "Ctrl-C here ends it." in log.read_text() or process.poll() is not None, 240)
        said = log.read_text()
        listing = subprocess.run(
            ["ls", "-l", "/var/log/"],
            capture_output=True,
            text=True,
            env={**os.environ, "LC_ALL": "C.UTF-8"},
            check=True,
        ).stdout
        for line in listing.splitlines()[1:]:
            assert line.split()[-1] in said
        assert "\ntotal " in said
        exports = next(line for line in said.splitlines() if line.startswith("export "))
        again = subprocess.run(
            ["sh", "-c", f'{exports}\nsh deploy/two-step.sh list_dir \'{{"path":"/etc"}}\''],
            cwd=clone,
            capture_output=True,
            text=True,
            check=True,
            timeout=PATIENCE,
        )
        assert "hostname" in json.loads(again.stdout)["result"]["structuredContent"]["entries"]
        modes = {p.name: p.stat().st_mode & 0o777 for p in (clone / ".ssegate").rglob("*") if p.is_file()}
        assert (modes["token"], modes["signing.key"], modes["mcpd.key"]) == (0o600, 0o600, 0o600)
    finally:
        os.killpg(process.pid, signal.SIGINT)  # as a terminal does it
        code = process.wait(PATIENCE)
    assert code == 0
    assert "Traceback" not in log.read_text()
