"""How a server starts and ends."""

import os
import signal

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from berth_server import PATIENCE_S, Server, greedy, refused
from xds.service.orca.v3 import orca_pb2, orca_pb2_grpc


@pytest.fixture
def start():
    servers = []

    def start_one(*flags, **settings) -> Server:
        servers.append(Server("--kv-memory", "256MiB", *flags, **settings))
        return servers[-1]

    yield start_one
    for server in servers:
        server.close()


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGINT])
def test_an_idle_server_ends_at_once_and_well(start, how):
    server = start()
    server.process.send_signal(how)
    assert server.wait() == 0, server.stderr()


def test_the_line_that_says_it_listens_names_the_port(start):
    server = start()
    assert server.terminate() == 0
    assert f"listening on {server.info['grpc']}" in server.stderr()


def test_sigterm_lets_what_runs_finish_and_refuses_newcomers(start):
    server = start()
    health = health_pb2_grpc.HealthStub(server.channel)
    watch = health.Watch(health_pb2.HealthCheckRequest(service="readiness"), timeout=PATIENCE_S)
    assert next(watch).status == health_pb2.HealthCheckResponse.SERVING
    stream = server.stub.GenerateStream(greedy("Once upon a time", 100, ignore_eos=True), timeout=PATIENCE_S)
    assert next(stream).WhichOneof("event") == "admitted"

    server.process.send_signal(signal.SIGTERM)
    assert next(watch).status == health_pb2.HealthCheckResponse.NOT_SERVING
    # Draining, or gone already where the model is fast: the same status.
    refusal = refused(server.generate, greedy("too late", 4))
    assert refusal.code == grpc.StatusCode.UNAVAILABLE
    if "ErrorInfo" in refusal.details:
        assert refusal.reason == "DRAINING"
        assert "RetryInfo" in refusal.details
    messages = list(stream)
    assert messages[-1].completed.usage.output_tokens == 100
    assert server.wait() == 0, server.stderr()


def test_who_waits_for_load_reports_does_not_hold_up_the_end(start):
    server = start()
    stub = orca_pb2_grpc.OpenRcaServiceStub(server.channel)
    request = orca_pb2.OrcaLoadReportRequest()
    request.report_interval.FromSeconds(3600)
    streams = [stub.StreamCoreMetrics(request, timeout=PATIENCE_S) for _ in range(20)]
    for stream in streams:
        next(stream)
    for stream in streams[:10]:
        stream.cancel()
    assert server.terminate() == 0, server.stderr()
    for stream in streams[10:]:
        assert refused(list, stream).code in (grpc.StatusCode.CANCELLED, grpc.StatusCode.UNAVAILABLE)


def test_a_port_in_use_is_one_clear_line(start):
    first = start()
    second = start(address=first.info["grpc"])
    assert second.wait() not in (0, -signal.SIGABRT, -signal.SIGSEGV)
    lines = [line for line in second.stderr().splitlines() if "cannot listen on" in line]
    assert len(lines) == 1
    assert first.info["grpc"] in lines[0]
    assert "in use" in lines[0]
    assert first.generate(greedy("still there", 2)).choices


def test_a_unix_socket_serves_too(start, tmp_path):
    path = f"unix:{tmp_path}/berth.sock"
    if len(os.fsencode(path)) > 100:
        pytest.skip("the temporary folder's name is longer than a socket's may be")
    server = start(address=path)
    assert server.info["grpc"] == path
    assert server.generate(greedy("hello", 2)).choices
    assert server.terminate() == 0
