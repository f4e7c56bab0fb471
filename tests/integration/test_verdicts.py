"""The verdict tables, row by row, against a server with a policy made for it: the status, the reason, the limit that bound and
whether to come back, in trailers and nothing else. What one server with its defaults can show is in test_refusals.py."""

import contextlib
import json
import pathlib
import re
import signal
import time
import urllib.request

import grpc
import pytest
from google.protobuf import duration_pb2

from berth.v1 import inference_pb2 as pb
from berth_server import PATIENCE_S, Refusal, Server, greedy, refused, smallest_model

PROMPT = "Once upon a time"
Code = grpc.StatusCode
# A request that lasts for seconds takes 751 blocks of 819, so that one fills the pool.
LONG = 12_000
CONTEXT = ("--max-context", "16384")
SMALL_POOL = "8MiB"


@pytest.fixture
def serve(tmp_path):
    """Starts servers with a policy file."""
    servers = []

    def start(classes: str, rest: str = "", server: str = "", memory: str = SMALL_POOL) -> Server:
        path = tmp_path / f"policy-{len(servers)}.yaml"
        path.write_text(
            "version: 1\n"
            f"server: {{ops: 127.0.0.1:0, admin: 'unix:{tmp_path}/admin-{len(servers)}.sock'{server}}}\n"
            f"classes:\n{classes}\n{rest}\n")
        running = Server("--config", str(path), "--kv-memory", memory, *CONTEXT, model=smallest_model())
        running.policy = path
        servers.append(running)
        assert "grpc" in running.info, running.stderr()
        return running

    yield start
    for server in servers:
        server.close()


# Without a deadline, by which a slow machine would be judged: the test's own time bounds them.
def generate(server: Server, request: pb.GenerateRequest) -> pb.GenerateResponse:
    return server.stub.Generate(request)


def stream(server: Server, request: pb.GenerateRequest):
    return list(server.stub.GenerateStream(request))


def estimate(server: Server, request: pb.GenerateRequest) -> pb.EstimateDemandResponse:
    return server.stub.EstimateDemand(pb.EstimateDemandRequest(request=request), timeout=PATIENCE_S)


def in_class(name: str, request: pb.GenerateRequest) -> pb.GenerateRequest:
    request.service_class = name
    return request


def lasting(service_class: str, tokens: int = LONG) -> pb.GenerateRequest:
    return in_class(service_class, greedy(PROMPT, tokens, ignore_eos=True))


def of_many_tokens(tokens: int) -> pb.GenerateRequest:
    """A prompt and one token of output."""
    return pb.GenerateRequest(token_ids=pb.TokenIds(ids=[5] * (tokens - 1)), stopping=pb.Stopping(max_output_tokens=1))


@contextlib.contextmanager
def running(server: Server, request: pb.GenerateRequest):
    """The request runs for as long as the block."""
    call = server.stub.GenerateStream(request)
    assert next(call).WhichOneof("event") == "admitted"
    try:
        yield call
    finally:
        call.cancel()


def expect(refusal: Refusal, code, reason: str, service_class: str | None = None, come_back: bool = False,
           quota: str | None = None, **metadata) -> None:
    assert (refusal.code, refusal.reason) == (code, reason), refusal.message
    assert refusal.details["ErrorInfo"].domain == "berth"
    assert refusal.details["RequestInfo"].request_id
    assert refusal.message and "\n" not in refusal.message
    if service_class is not None:
        assert refusal.metadata["serviceClass"] == service_class
    for key, value in metadata.items():
        assert refusal.metadata[key] == str(value), refusal.metadata
    pushback = int(refusal.trailers["grpc-retry-pushback-ms"])
    if come_back:
        delay = refusal.details["RetryInfo"].retry_delay.ToMilliseconds()
        assert pushback > 0 and delay > 0 and abs(pushback - delay) <= 1
    else:
        assert pushback == -1 and "RetryInfo" not in refusal.details
    violations = refusal.details["QuotaFailure"].violations if "QuotaFailure" in refusal.details else []
    assert [violation.subject for violation in violations] == ([quota] if quota else [])


ONE_CLASS = "  only: {kv_guarantee: 100%%, overload: %s, queue: {max_requests: %d, max_wait: %s}}"


def test_a_full_class_that_rejects(serve):
    server = serve(ONE_CLASS % ("reject", 8, "60s"), "default_class: only")
    with running(server, lasting("only")):
        for call in (generate, stream):
            expect(refused(call, server, lasting("only")), Code.RESOURCE_EXHAUSTED, "KV_CAPACITY_EXHAUSTED", "only",
                   come_back=True, quota="class:only", limitName="class_kv_blocks",
                   limitBlocks=server.model_info().pool_blocks)
        judged = estimate(server, lasting("only"))
        assert judged.fits
        assert judged.outlook == pb.OUTLOOK_REFUSED
        assert judged.refusal.reason == "KV_CAPACITY_EXHAUSTED"
    while estimate(server, lasting("only")).outlook != pb.OUTLOOK_STARTS:
        time.sleep(0.01)  # a cancelled request's blocks take a moment to come back
    assert not estimate(server, lasting("only")).HasField("refusal")


def test_a_full_queue_and_one_that_waited_too_long(serve):
    server = serve(ONE_CLASS % ("queue", 1, "2s"), "default_class: only")
    with running(server, lasting("only")):
        judged = estimate(server, lasting("only"))
        assert judged.outlook == pb.OUTLOOK_QUEUES
        assert judged.predicted_wait.ToMilliseconds() > 0
        waiting = server.stub.Generate.future(lasting("only"))
        while judged.outlook == pb.OUTLOOK_QUEUES:  # until it has its place
            judged = estimate(server, lasting("only"))
        assert judged.outlook == pb.OUTLOOK_REFUSED
        assert judged.refusal.reason == "QUEUE_FULL"
        expect(refused(generate, server, lasting("only")), Code.RESOURCE_EXHAUSTED, "QUEUE_FULL", "only", come_back=True,
               quota="class:only", limitName="queue.max_requests", limitRequests=1, requestedRequests=2)
        expect(Refusal(waiting.exception()), Code.RESOURCE_EXHAUSTED, "QUEUE_TIMEOUT", "only", come_back=True,
               limitName="queue.max_wait", limitMs=2000)


def test_the_lowest_that_waits_is_shed(serve):
    server = serve(
        "  high: {priority: 9, kv_guarantee: 100%, overload: shed_lowest}\n"
        "  low: {priority: 1, kv_guarantee: 0, kv_borrowing_limit: 100%, preemptible: true, overload: shed_lowest}",
        "default_class: high", ", max_queued_requests: 1")
    with running(server, lasting("high")):
        low = server.stub.Generate.future(lasting("low"))
        # The newcomer is the lowest, or what waits is: either way one of the two low ones goes.
        lower = server.stub.Generate.future(lasting("low"))
        while not (low.done() or lower.done()):
            time.sleep(0.01)
        shed = low if low.done() else lower
        expect(Refusal(shed.exception()), Code.RESOURCE_EXHAUSTED, "SHED", "low", come_back=True, quota="server",
               limitName="server.max_queued_requests", limitRequests=1)
        left = lower if low.done() else low
        high = server.stub.Generate.future(lasting("high"))
        expect(Refusal(left.exception()), Code.RESOURCE_EXHAUSTED, "SHED", "low", come_back=True, quota="server")
        high.cancel()


def test_a_tenants_quotas(serve):
    server = serve(ONE_CLASS % ("queue", 8, "60s"),
                   "default_class: only\ntenants: {default: {max_concurrent_requests: 1, tokens_per_minute: 600, burst_tokens: 16000}}")
    with running(server, lasting("only")):
        expect(refused(generate, server, greedy(PROMPT, 4)), Code.RESOURCE_EXHAUSTED, "TENANT_QUOTA_EXCEEDED", "only",
               come_back=True, quota="tenant:default", limitName="max_concurrent_requests", limitRequests=1,
               requestedRequests=2)
    refusal = None
    while refusal is None:  # what was cancelled gives back what it did not use, and its place after a moment
        try:
            generate(server, of_many_tokens(6000))
        except grpc.RpcError as error:
            refusal = Refusal(error)
            if refusal.metadata["limitName"] == "max_concurrent_requests":
                refusal = None
    expect(refusal, Code.RESOURCE_EXHAUSTED, "TENANT_QUOTA_EXCEEDED", "only", come_back=True, quota="tenant:default",
           limitName="tokens_per_minute", limitTokens=600)
    expect(refused(generate, server, lasting("only", 16200)), Code.INVALID_ARGUMENT, "REQUEST_TOO_LARGE")


def test_a_class_that_the_tenant_may_not_use(serve):
    server = serve(
        "  only: {kv_guarantee: 50%}\n  spare: {kv_guarantee: 50%}",
        "default_class: only\ntenants: {default: {classes: [only]}}")
    expect(refused(generate, server, in_class("spare", greedy(PROMPT, 4))), Code.PERMISSION_DENIED, "CLASS_NOT_ALLOWED", "spare")
    assert [limits.name for limits in server.model_info().classes] == ["only"]
    assert server.model_info().default_class == "only"


def test_a_class_on_hold_until_it_is_not(serve):
    classes = "  only: {kv_guarantee: 50%}\n  spare: {kv_guarantee: 50%, stop: hold}"
    server = serve(classes, "default_class: only")
    expect(refused(generate, server, in_class("spare", greedy(PROMPT, 4))), Code.UNAVAILABLE, "CLASS_ON_HOLD", "spare",
           come_back=True)
    server.policy.write_text(server.policy.read_text().replace(", stop: hold", ""))
    server.process.send_signal(signal.SIGHUP)
    end = time.monotonic() + PATIENCE_S
    while time.monotonic() < end:
        try:
            assert generate(server, in_class("spare", greedy(PROMPT, 4))).choices
            return
        except grpc.RpcError as error:
            assert Refusal(error).reason == "CLASS_ON_HOLD"
    pytest.fail("the class stays on hold: " + server.stderr())


def test_a_stock_client_comes_back_to_a_real_server_as_often_as_its_config_says(serve):
    server = serve("  only: {kv_guarantee: 50%, stop: hold}", "default_class: only")
    if "ops" not in server.info:
        pytest.skip("the server has no metrics page")
    config = (pathlib.Path(__file__).resolve().parents[2] / "docs" / "service_config.json").read_text()
    options = [("grpc.service_config", config), ("grpc.use_local_subchannel_pool", 1)]
    with grpc.insecure_channel(server.info["grpc"], options) as channel:
        stub = server.stub.__class__(channel)
        expect(refused(stub.Generate, greedy(PROMPT, 4)), Code.UNAVAILABLE, "CLASS_ON_HOLD", "only", come_back=True)
    assert re.search(r'grpc_server_call_started_total\{[^}]*Inference/Generate"[^}]*\} 5\b', metrics_of(server))


def test_a_deadline_that_cannot_be_kept(serve):
    server = serve(ONE_CLASS % ("queue", 8, "60s"), "default_class: only", memory="32MiB")
    request = of_many_tokens(LONG)
    request.timeout.CopyFrom(duration_pb2.Duration(nanos=50_000_000))
    with running(server, lasting("only")):
        refusal = refused(generate, server, request)
    expect(refusal, Code.DEADLINE_EXCEEDED, "DEADLINE_INFEASIBLE", "only")
    assert int(refusal.metadata["predictedMs"]) > int(refusal.metadata["remainingMs"]) >= 0
    assert refusal.metadata["computedTokens"] == "0"
    assert "berth-usage-bin" not in refusal.trailers


def test_a_request_that_is_preempted_too_often(serve):
    # 17 blocks are left beside the long request.
    server = serve(
        "  high: {priority: 9, kv_guarantee: 60%, overload: reject}\n"
        "  low: {priority: 1, kv_guarantee: 0, kv_borrowing_limit: 100%, preemptible: true, max_preemptions: 1}",
        "default_class: high", memory="7680KiB")
    call = server.stub.GenerateStream(lasting("low"))
    messages = []
    error = None
    try:
        messages.append(next(call))
        for _ in range(2):
            while messages[-1].WhichOneof("event") != "tokens":
                messages.append(next(call))
            # Its guarantee is claimed; what borrows there has to go.
            generate(server, in_class("high", greedy(PROMPT, 500, ignore_eos=True)))
            messages.append(next(call))
        messages.extend(call)
    except grpc.RpcError as failure:
        error = failure
    assert error is not None, "it was served to its end"
    refusal = Refusal(error)
    expect(refusal, Code.ABORTED, "PREEMPTED_TOO_OFTEN", "low", come_back=True, limitName="max_preemptions",
           limitPreemptions=1)
    usage = pb.Usage.FromString(refusal.trailers["berth-usage-bin"])
    assert usage.preemptions == 1
    assert usage.output_tokens > 0


def test_a_drain_that_runs_out_of_time(serve):
    server = serve(ONE_CLASS % ("queue", 8, "60s"), "default_class: only", ", drain_delay: 0s, drain_timeout: 1s")
    call = server.stub.GenerateStream(lasting("only"))
    next(call)
    server.process.send_signal(signal.SIGTERM)
    refusal = refused(list, call)
    expect(refusal, Code.UNAVAILABLE, "DRAIN_TIMEOUT", "only", come_back=True)
    assert pb.Usage.FromString(refusal.trailers["berth-usage-bin"]).output_tokens > 0
    assert server.wait() == 0, server.stderr()


def test_a_reader_who_does_not_read(serve):
    server = serve(ONE_CLASS % ("queue", 8, "60s"), "default_class: only", ", write_timeout: 1s")
    options = [("grpc.http2.lookahead_bytes", 65535), ("grpc.http2.bdp_probe", 0), ("grpc.use_local_subchannel_pool", 1)]
    with grpc.insecure_channel(server.info["grpc"], options) as channel:
        request = lasting("only")
        request.output.logprobs = 20
        call = server.stub.__class__(channel).GenerateStream(request)
        next(call)
        # Nothing is read until the server has given up, and its blocks are back.
        while estimate(server, lasting("only")).outlook != pb.OUTLOOK_STARTS:
            time.sleep(0.05)
        refusal = refused(list, call)
    # Written past what is stuck, as no details can be.
    assert refusal.code == Code.RESOURCE_EXHAUSTED
    assert "SLOW_READER" in refusal.message
    assert generate(server, greedy(PROMPT, 4)).choices
    if "ops" in server.info:
        assert wait_for_end(server, "SLOW_READER")["output_tokens"] > 0


# --- What the caller cannot be told


def metrics_of(server: Server) -> str:
    if "ops" not in server.info:
        pytest.skip("the server has no metrics page")
    with urllib.request.urlopen(f"http://{server.info['ops']}/metrics", timeout=PATIENCE_S) as page:
        return page.read().decode()


def log_lines(server: Server) -> list[dict]:
    """The log's lines about ended requests."""
    lines = []
    for line in server.stderr().splitlines():
        with contextlib.suppress(json.JSONDecodeError):
            entry = json.loads(line)
            if "outcome" in entry:
                lines.append(entry)
    return lines


def wait_for_end(server: Server, reason: str) -> dict:
    """The log's line about the request that ended for this reason, which the metrics have counted by then."""
    end = time.monotonic() + PATIENCE_S
    while time.monotonic() < end:
        for entry in log_lines(server):
            if entry["reason"].upper() == reason:
                assert f'reason="{reason.lower()}"' in metrics_of(server)
                return entry
        time.sleep(0.05)
    pytest.fail(f"no request ended with {reason}: " + server.stderr())


def test_who_hangs_up_is_counted(serve):
    server = serve(ONE_CLASS % ("queue", 8, "60s"), "default_class: only")
    metrics_of(server)
    request = lasting("only")
    request.request_id = "hangs-up"
    with running(server, request):
        pass
    entry = wait_for_end(server, "CANCELLED_BY_CLIENT")
    assert entry["outcome"] == "cancelled"
    assert entry["request_id"] == "hangs-up"


def test_a_grpc_deadline_that_passes_while_it_runs_is_counted(serve):
    server = serve(ONE_CLASS % ("queue", 8, "60s"), "default_class: only")
    metrics_of(server)
    request = lasting("only")
    request.request_id = "too-slow"
    call = server.stub.GenerateStream(request, timeout=0.5)
    assert refused(list, call).code == Code.DEADLINE_EXCEEDED
    entry = wait_for_end(server, "DEADLINE_EXCEEDED")
    assert entry["outcome"] == "deadline"
    assert entry["request_id"] == "too-slow"
