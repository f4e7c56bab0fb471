import pytest

from berth_server import Server


@pytest.fixture(scope="module")
def server():
    """One server for a file's tests; it must still end well after them."""
    running = Server("--kv-memory", "256MiB")
    try:
        assert "grpc" in running.info, running.stderr()
        yield running
        assert running.terminate() == 0, running.stderr()
    finally:
        running.close()
