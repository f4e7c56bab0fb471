"""What operators see of requests that callers learn little of: cancelled ones, late ones, odd ones."""

import json
import time
import urllib.request

import grpc
import pytest

import raw_call
from berth_server import PATIENCE_S, Server, endless, greedy, refused

TRIES = 20  # a small model may be through before it is interrupted


@pytest.fixture
def server():
    running = Server("--kv-memory", "256MiB")
    assert "grpc" in running.info, running.stderr()
    yield running
    running.close()


def ended(server: Server, request_id: str) -> dict:
    """The log's line about the request, once it is there."""
    end = time.monotonic() + PATIENCE_S
    while time.monotonic() < end:
        for line in server.stderr().splitlines():
            entry = json.loads(line)
            if entry.get("request_id") == request_id:
                return entry
        time.sleep(0.05)
    pytest.fail(f"no line about {request_id}: {server.stderr()}")


def counted(server: Server, **labels: str) -> float:
    """Sum of berth_requests_total over the series with these labels."""
    with urllib.request.urlopen(f"http://{server.info['ops']}/metrics", timeout=PATIENCE_S) as answer:
        lines = answer.read().decode().splitlines()
    wanted = [f'{name}="{value}"' for name, value in labels.items()]
    return sum(float(line.rsplit(" ", 1)[1]) for line in lines
               if line.startswith("berth_requests_total{") and all(label in line for label in wanted))


def interrupted(server: Server, interrupt, reason: str) -> dict:
    """The line about an endless request that `interrupt` ended."""
    for attempt in range(TRIES):
        request = endless(server)
        request.request_id = f"{reason} {attempt}"
        interrupt(request)
        line = ended(server, request.request_id)
        if line["outcome"] != "ok":
            return line
    pytest.skip("this model is too fast to be interrupted")


def test_a_cancelled_request_is_told_with_what_it_used(server):
    def cancel(request):
        stream = server.stub.GenerateStream(request, timeout=PATIENCE_S)
        next(stream)
        stream.cancel()

    line = interrupted(server, cancel, "cancelled_by_client")
    assert (line["outcome"], line["reason"], line["class"]) == ("cancelled", "cancelled_by_client", "batch")
    assert line["reserved_blocks"] > 0
    assert line["kv_block_seconds"] > 0
    assert counted(server, outcome="cancelled", reason="cancelled_by_client") == 1


def test_a_passed_deadline_is_told_with_what_it_used(server):
    def be_impatient(request):
        try:
            server.generate(request, timeout=0.05)
        except grpc.RpcError as error:
            assert error.code() == grpc.StatusCode.DEADLINE_EXCEEDED

    line = interrupted(server, be_impatient, "deadline_exceeded")
    assert line["outcome"] in ("deadline", "cancelled"), "whichever the server heard of first"
    assert counted(server, outcome=line["outcome"], reason=line["reason"]) == 1


def test_a_call_reset_in_the_middle_of_its_message_is_cancelled_and_no_bad_request(server):
    message = greedy("Once upon a time", 4).SerializeToString()
    for method in ("Generate", "GenerateStream"):
        raw_call.reset_in_mid_message(server.info["grpc"], f"/berth.v1.Inference/{method}", message, PATIENCE_S)
    end = time.monotonic() + PATIENCE_S
    while counted(server) < 2 and time.monotonic() < end:
        time.sleep(0.05)
    assert counted(server, outcome="cancelled", reason="cancelled_by_client") == counted(server) == 2


def test_words_of_callers_stay_words(server):
    request = greedy("Once", 2)
    request.request_id = 'a "quoted\\" id'
    server.generate(request)
    line = ended(server, request.request_id)
    assert line["output_tokens"] == 2


def test_refusals_are_counted_with_the_class_and_tenant_that_were_meant(server):
    request = greedy("Once", 10**6)
    request.service_class = "batch"
    assert refused(server.generate, request).reason == "REQUEST_TOO_LARGE"
    assert counted(server, **{"class": "batch", "tenant": "default", "reason": "request_too_large"}) == 1
    request.service_class = "no such class"
    assert refused(server.generate, request).reason == "UNKNOWN_CLASS"
    assert counted(server, **{"class": "other", "tenant": "default", "reason": "unknown_class"}) == 1
