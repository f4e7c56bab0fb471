"""A server with a policy file of the test's own, in a folder of the test's own."""

import hashlib
import pathlib
import time

import pytest

from berth_server import PATIENCE_S, Server


def sha256(key: str) -> str:
    return hashlib.sha256(key.encode()).hexdigest()


def replace(path: pathlib.Path, text: str | bytes) -> None:
    """As most editors do it: a new file takes the name over."""
    new = path.with_name(path.name + ".new")
    new.write_bytes(text if isinstance(text, bytes) else text.encode())
    new.rename(path)


def policy(folder: pathlib.Path, rest: str, server: str = "") -> pathlib.Path:
    """Ports and sockets that collide with nobody's; `server` are further keys of that section."""
    path = folder / "berth.yaml"
    replace(path, f"version: 1\nserver: {{ops: 127.0.0.1:0, admin: 'unix:{folder}/admin.sock', {server}}}\n{rest}")
    return path


def start_with(path: pathlib.Path, *flags: str) -> Server:
    return Server("--config", str(path), "--kv-memory", "256MiB", *flags)


def wait_for_log(server: Server, text: str, times: int = 1) -> None:
    end = time.monotonic() + PATIENCE_S
    while server.stderr().count(text) < times:
        assert server.process.poll() is None, server.stderr()
        if time.monotonic() > end:
            pytest.fail(f"the log never said {text!r}: {server.stderr()}")
        time.sleep(0.01)
