"""Who calls, and for whom: keys, claims, gateways, headers, and retried attempts."""

import uuid

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from berth.v1 import inference_pb2 as pb
from berth.v1 import inference_pb2_grpc
from berth_server import PATIENCE_S, Refusal, Server, endless, greedy, refused
from policy_server import policy, replace, sha256, start_with, wait_for_log

Code = grpc.StatusCode
ACME, BERT, GATE = "acme's secret", "bert's secret", "the gateway's secret"


def keyed_policy(folder, acme_key: str = ACME):
    replace(folder / "acme.keys", f"acme-1 {sha256(acme_key)}\n")
    return policy(
        folder,
        f"""
classes:
  interactive: {{kv_guarantee: 50%, objectives: [chat]}}
  batch: {{kv_guarantee: 50%, objectives: [cheap, bulk]}}
tenants:
  default: {{}}
  acme: {{api_key_sha256_file: acme.keys}}
  bert: {{classes: [batch], api_key_sha256: [{{id: bert-1, sha256: {sha256(BERT)}}}]}}
  gate: {{api_key_sha256: [{{id: gate-1, sha256: {sha256(GATE)}}}]}}
""",
        "trusted_identity: {key_ids: [gate-1]}",
    )


@pytest.fixture(scope="module")
def keyed(tmp_path_factory):
    server = start_with(keyed_policy(tmp_path_factory.mktemp("keyed")))
    assert "grpc" in server.info, server.stderr()
    yield server
    code = server.terminate()
    log = server.stderr()
    server.close()
    assert code == 0, log
    for key in (ACME, BERT, GATE, "wrong secret"):
        assert key not in log


@pytest.fixture
def start(tmp_path):
    servers = []

    def start_one(path, *flags) -> Server:
        servers.append(start_with(path, *flags))
        assert "grpc" in servers[-1].info, servers[-1].stderr()
        return servers[-1]

    yield start_one
    for server in servers:
        server.close()


def bearer(key: str) -> list[tuple[str, str]]:
    return [("authorization", f"Bearer {key}")]


def short(**fields) -> pb.GenerateRequest:
    request = greedy("Once upon a time", 2)
    for name, value in fields.items():
        setattr(request, name, value)
    return request


def call(server: Server, request: pb.GenerateRequest | None = None, metadata=()):
    return server.stub.Generate(request or short(), metadata=metadata, timeout=PATIENCE_S)


def class_of(server: Server, request: pb.GenerateRequest | None = None, metadata=()) -> str:
    messages = list(server.stub.GenerateStream(request or short(), metadata=metadata, timeout=PATIENCE_S))
    return messages[0].admitted.service_class


METHODS = {
    "Generate": lambda stub, **how: stub.Generate(short(), **how),
    "GenerateStream": lambda stub, **how: list(stub.GenerateStream(short(), **how)),
    "EstimateDemand": lambda stub, **how: stub.EstimateDemand(pb.EstimateDemandRequest(request=short()), **how),
    "Tokenize": lambda stub, **how: stub.Tokenize(pb.TokenizeRequest(text="hi"), **how),
    "Detokenize": lambda stub, **how: stub.Detokenize(pb.DetokenizeRequest(token_ids=[1]), **how),
    "GetModelInfo": lambda stub, **how: stub.GetModelInfo(pb.GetModelInfoRequest(), **how),
}


@pytest.mark.parametrize("method", METHODS)
def test_every_method_wants_a_key_and_takes_it_in_both_headers(keyed, method):
    def ask(*metadata):
        return METHODS[method](keyed.stub, metadata=metadata, timeout=PATIENCE_S)

    for metadata in (bearer(ACME), [("authorization", f"bearer {ACME}")], [("x-api-key", ACME)]):
        assert ask(*metadata)
    for metadata, reason in (
        ([], "CREDENTIALS_MISSING"),
        ([("authorization", "Basic dXNlcjpwYXNz")], "CREDENTIALS_MISSING"),
        (bearer("wrong secret"), "CREDENTIALS_INVALID"),
        ([("x-api-key", "wrong secret")], "CREDENTIALS_INVALID"),
        ([("x-api-key", sha256(ACME))], "CREDENTIALS_INVALID"),
        ([*bearer(ACME), ("x-api-key", BERT)], "CREDENTIALS_INVALID"),
    ):
        refusal = refused(ask, *metadata)
        assert refusal.code == Code.UNAUTHENTICATED
        assert refusal.reason == reason
        assert refusal.trailers["grpc-retry-pushback-ms"] == "-1"
        assert "secret" not in refusal.message
    refusal = refused(ask, *bearer(ACME), ("x-berth-tenant", "bert"))
    assert refusal.code == Code.PERMISSION_DENIED
    assert refusal.reason == "TENANT_MISMATCH"


def test_health_and_reflection_need_no_key(keyed):
    health = health_pb2_grpc.HealthStub(keyed.channel)
    answer = health.Check(health_pb2.HealthCheckRequest(), timeout=PATIENCE_S)
    assert answer.status == health_pb2.HealthCheckResponse.SERVING
    reflection = reflection_pb2_grpc.ServerReflectionStub(keyed.channel)
    answers = reflection.ServerReflectionInfo(
        iter([reflection_pb2.ServerReflectionRequest(list_services="")]), timeout=PATIENCE_S
    )
    assert "berth.v1.Inference" in [service.name for service in next(answers).list_services_response.service]


@pytest.mark.parametrize(
    "source", ["tenant", "x-berth-tenant", "x-llm-d-inference-fairness-id", "x-gateway-inference-fairness-id"]
)
def test_a_claim_that_differs_is_denied_and_one_that_agrees_is_not(keyed, source):
    def claim(name: str):
        if source == "tenant":
            return call(keyed, short(tenant=name), bearer(ACME))
        return call(keyed, None, [*bearer(ACME), (source, name)])

    assert claim("acme")
    refusal = refused(claim, "bert")
    assert refusal.code == Code.PERMISSION_DENIED
    assert refusal.reason == "TENANT_MISMATCH"
    assert source in refusal.message


def test_a_class_that_the_tenant_may_not_use_is_denied(keyed):
    assert class_of(keyed, short(service_class="batch"), bearer(BERT)) == "batch"
    for request in (short(), short(service_class="interactive")):
        refusal = refused(call, keyed, request, bearer(BERT))
        assert refusal.code == Code.PERMISSION_DENIED
        assert refusal.reason == "CLASS_NOT_ALLOWED"


def test_a_trusted_gateway_names_other_tenants(keyed):
    assert call(keyed, None, bearer(GATE))
    refusal = refused(call, keyed, None, [*bearer(GATE), ("x-llm-d-inference-fairness-id", "bert")])
    assert refusal.reason == "CLASS_NOT_ALLOWED", "bert's limits hold"
    assert call(keyed, None, [*bearer(GATE), ("x-gateway-inference-fairness-id", "nobody-listed-this-one")])
    refusal = refused(call, keyed, None, [*bearer(GATE), ("x-berth-tenant", "x" * 129)])
    assert refusal.code == Code.INVALID_ARGUMENT
    assert refusal.fields == ["x-berth-tenant"]
    # The field counts before the headers.
    assert call(keyed, short(tenant="acme"), [*bearer(GATE), ("x-berth-tenant", "bert")])


def test_checks_come_in_their_order(keyed):
    bad = short(tenant="bert", model="another", service_class="first")
    bad.sampling.n = 0
    steps = [
        (Code.UNAUTHENTICATED, "CREDENTIALS_INVALID", lambda: None),
        (Code.PERMISSION_DENIED, "TENANT_MISMATCH", lambda: metadata.__setitem__(0, bearer(ACME)[0])),
        (Code.INVALID_ARGUMENT, "INVALID_REQUEST", lambda: bad.ClearField("tenant")),
        (Code.NOT_FOUND, "MODEL_NOT_FOUND", lambda: bad.ClearField("sampling")),
        (Code.INVALID_ARGUMENT, "UNKNOWN_CLASS", lambda: bad.ClearField("model")),
    ]
    metadata = bearer("wrong secret")
    for code, reason, mend in steps:
        mend()
        refusal = refused(call, keyed, bad, metadata)
        assert (refusal.code, refusal.reason) == (code, reason)
    bad.ClearField("service_class")
    assert call(keyed, bad, metadata)


def test_the_class_comes_from_the_field_then_the_headers_then_the_default(keyed):
    objective, older = "x-llm-d-inference-objective", "x-gateway-inference-objective"
    key = bearer(ACME)
    assert class_of(keyed, None, key) == "interactive"
    assert class_of(keyed, None, [*key, ("x-berth-class", "batch")]) == "batch"
    assert class_of(keyed, short(service_class="interactive"), [*key, ("x-berth-class", "batch")]) == "interactive"
    assert class_of(keyed, None, [*key, (objective, "bulk")]) == "batch"
    assert class_of(keyed, None, [*key, (older, "cheap")]) == "batch"
    assert class_of(keyed, None, [*key, (older, "cheap"), (objective, "chat")]) == "interactive"
    assert class_of(keyed, None, [*key, ("x-berth-class", "interactive"), (objective, "bulk")]) == "interactive"
    assert class_of(keyed, None, [*key, (objective, "unheard-of")]) == "interactive"
    refusal = refused(class_of, keyed, None, [*key, ("x-berth-class", "bulk")])
    assert (refusal.reason, refusal.fields) == ("UNKNOWN_CLASS", ["x-berth-class"])


@pytest.mark.parametrize("header", ["x-llm-d-slo-ttft-ms", "x-llm-d-slo-tpot-ms", "x-slo-ttft-ms", "x-slo-tpot-ms"])
def test_slo_headers_are_checked_for_their_form(keyed, header):
    assert call(keyed, None, [*bearer(ACME), (header, "250.5")])
    for value in ("soon", "0", "-1", "1e9", "86400000"):
        refusal = refused(call, keyed, None, [*bearer(ACME), (header, value)])
        assert refusal.code == Code.INVALID_ARGUMENT
        assert refusal.fields == [header]
        assert refusal.message.startswith(header)


def test_a_malformed_traceparent_is_ignored(keyed):
    for value in ("", "00", "00-" + "0" * 32 + "-00f067aa0ba902b7-01", "ff-" + "a" * 32 + "-00f067aa0ba902b7-01"):
        assert call(keyed, None, [*bearer(ACME), ("traceparent", value)])


def test_a_header_twice_with_two_meanings_is_refused(keyed):
    refusal = refused(call, keyed, None, [*bearer(ACME), ("x-berth-class", "batch"), ("x-berth-class", "interactive")])
    assert refusal.code == Code.INVALID_ARGUMENT
    assert refusal.fields == ["x-berth-class"]


def test_a_rotated_key_counts_from_the_reload_on_and_streams_go_on(start, tmp_path):
    server = start(keyed_policy(tmp_path))
    request = greedy("Once upon a time", 60, ignore_eos=True)
    stream = server.stub.GenerateStream(request, metadata=bearer(ACME), timeout=PATIENCE_S)
    assert next(stream).WhichOneof("event") == "admitted"
    replace(tmp_path / "acme.keys", f"acme-1 {sha256('rotated secret')}\n")
    wait_for_log(server, "policy reloaded")
    assert call(server, None, bearer("rotated secret"))
    assert refused(call, server, None, bearer(ACME)).reason == "CREDENTIALS_INVALID"
    assert list(stream)[-1].completed.usage.output_tokens == 60

    replace(tmp_path / "acme.keys", "acme-1 nonsense\n")
    wait_for_log(server, "policy not reloaded")
    assert call(server, None, bearer("rotated secret")), "a bad file changes nothing"

    keyed_policy(tmp_path, ACME)
    wait_for_log(server, "policy reloaded", times=2)
    assert call(server, None, bearer(ACME))
    assert server.terminate() == 0, server.stderr()
    assert "secret" not in server.stderr()


def test_without_credentials_the_claim_counts_and_five_thousand_names_share_what_there_is(start, tmp_path):
    # Enough for one request, and no more within a test's time.
    limits = "tokens_per_minute: 1, burst_tokens: 60"
    classes = "classes: {batch: {kv_guarantee: 100%}}\ndefault_class: batch\n"
    server = start(policy(tmp_path, classes + f"tenants: {{default: {{{limits}}}}}\n"))

    def name(index: int) -> list[tuple[str, str]]:
        return [("x-berth-tenant", f"tenant-{index}")]

    for begin in range(0, 5000, 250):
        calls = [
            server.stub.GetModelInfo.future(pb.GetModelInfoRequest(), metadata=name(index), timeout=PATIENCE_S)
            for index in range(begin, begin + 250)
        ]
        for pending in calls:
            # The pool for such calls may be full; who calls was looked at before.
            assert pending.code() in (Code.OK, Code.RESOURCE_EXHAUSTED), pending.details()

    def spend(index: int) -> str:
        """All that the tenant may have; or why it may not."""
        request = greedy("Once upon a time", 40, ignore_eos=True)
        try:
            assert call(server, request, name(index)).usage.output_tokens == 40
            return ""
        except grpc.RpcError as error:
            return Refusal(error).reason

    # The first ones have places of their own, each with the limits of `default`; the late ones share one.
    assert [spend(0), spend(1), spend(4998)] == ["", "", ""]
    assert [spend(0), spend(1), spend(4998), spend(4999)] == ["TENANT_QUOTA_EXCEEDED"] * 4
    assert spend(2) == ""
    # Through a reload too; and whom it lists has a place of its own at last.
    policy(tmp_path, classes + f"tenants: {{default: {{{limits}}}, tenant-4999: {{}}, tenant-1: {{weight: 2}}}}\n")
    wait_for_log(server, "policy reloaded")
    assert [spend(0), spend(2), spend(4997)] == ["TENANT_QUOTA_EXCEEDED"] * 3
    assert [spend(3), spend(4999), spend(4999), spend(1)] == [""] * 4


def test_an_id_in_use_is_a_duplicate_for_its_tenant_alone_and_a_retry_replaces_it(start, tmp_path):
    server = start(policy(tmp_path, "tenants: {default: {}, acme: {}}\n"))
    request = endless(server)
    request.request_id = f"id-{uuid.uuid4()}"
    stream = server.stub.GenerateStream(request, timeout=PATIENCE_S)
    assert next(stream).admitted.request_id == request.request_id

    # gRPC's own retries set the header themselves, and take out what a caller put there.
    with grpc.insecure_channel(server.info["grpc"], options=[("grpc.enable_retries", 0)]) as channel:
        stub = inference_pb2_grpc.InferenceStub(channel)

        def attempt(previous: str = "", tenant: str = ""):
            metadata = [("grpc-previous-rpc-attempts", previous)] if previous else []
            again = short(request_id=request.request_id, tenant=tenant)
            return stub.Generate(again, metadata=metadata, timeout=PATIENCE_S)

        refusal = refused(attempt)
        assert refusal.code == Code.ALREADY_EXISTS
        assert refusal.reason == "DUPLICATE_REQUEST_ID"
        assert attempt(tenant="acme"), "another tenant's ids are its own"
        assert refused(attempt, "0").reason == "DUPLICATE_REQUEST_ID"
        assert attempt("1").request_id == request.request_id
        with pytest.raises(grpc.RpcError) as ended:
            list(stream)
        assert ended.value.code() == Code.CANCELLED
        assert attempt(), "and the id is free once the retry has ended"
