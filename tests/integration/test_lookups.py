"""The calls that only ask: tokens, demand, the model, health and reflection."""

import grpc
import pytest
from google.protobuf import descriptor_pool
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import ProtoReflectionDescriptorDatabase

from berth.v1 import inference_pb2 as pb
from berth_server import PATIENCE_S, endless, greedy, refused
from raw_call import binary_value, header_blocks
from xds.data.orca.v3 import orca_load_report_pb2
from xds.service.orca.v3 import orca_pb2, orca_pb2_grpc

TEXTS = ["Hello, world", " leading and trailing ", "naïve café", "日本語のテキスト", "👩‍🚀 and 🚀", "a\n\n\tb", "<|im_end|>", ""]
SERVING = health_pb2.HealthCheckResponse.SERVING


@pytest.mark.parametrize("text", TEXTS)
def test_text_survives_the_way_to_ids_and_back(server, text):
    assert server.detokenize(server.tokenize(text, add_bos=False)) == text


def test_pieces_spell_the_text(server):
    request = pb.TokenizeRequest(text="Hello, wörld", add_bos=False, return_pieces=True)
    response = server.stub.Tokenize(request, timeout=PATIENCE_S)
    assert len(response.pieces) == len(response.token_ids)
    assert b"".join(response.pieces).decode().strip() == "Hello, wörld"
    assert not server.stub.Tokenize(pb.TokenizeRequest(text="Hello"), timeout=PATIENCE_S).pieces


def test_special_tokens_are_text_unless_asked_for(server):
    eos = server.model_info().eos_token_ids[0]
    request = pb.GenerateRequest(token_ids=pb.TokenIds(ids=[eos]), stopping=pb.Stopping(max_output_tokens=1))
    request.output.logprobs = 0
    request.sampling.logit_bias[eos] = 100
    request.sampling.temperature = 0
    request.stopping.ignore_eos = True
    spelling = server.generate(request).choices[0].logprobs[0].piece.decode()
    assert spelling
    assert server.tokenize(spelling, add_bos=False, parse_special_tokens=True) == [eos]
    assert eos not in server.tokenize(spelling, add_bos=False)


def test_ids_outside_the_vocabulary_are_refused(server):
    for bad in (-1, server.model_info().vocab_size):
        refusal = refused(server.detokenize, [bad])
        assert refusal.code == grpc.StatusCode.INVALID_ARGUMENT
        assert refusal.fields == ["token_ids"]


def test_another_model_is_not_found(server):
    for call, request in (
        (server.stub.Tokenize, pb.TokenizeRequest(model="gpt-7")),
        (server.stub.Detokenize, pb.DetokenizeRequest(model="gpt-7")),
        (server.stub.GetModelInfo, pb.GetModelInfoRequest(model="gpt-7")),
        (server.stub.EstimateDemand, pb.EstimateDemandRequest(request=pb.GenerateRequest(text="x", model="gpt-7"))),
    ):
        refusal = refused(call, request, timeout=PATIENCE_S)
        assert refusal.code == grpc.StatusCode.NOT_FOUND
        assert refusal.reason == "MODEL_NOT_FOUND"


def test_the_model_is_described(server):
    info = server.model_info()
    assert info.architecture == "llama"
    assert info.name and info.tokenizer and info.server_version
    assert info.kv_bytes_per_token > 0
    assert info.kv_dtype in ("float32", "bf16", "int8")
    assert info.heads % info.kv_heads == 0
    assert 0 < info.max_context_tokens <= info.trained_context_tokens
    assert info.pool_blocks == server.info.get("kv_blocks", info.pool_blocks)
    assert info.default_output_tokens > 0
    assert all(0 <= token < info.vocab_size for token in info.eos_token_ids)


def estimate(server, request: pb.GenerateRequest) -> pb.EstimateDemandResponse:
    return server.stub.EstimateDemand(pb.EstimateDemandRequest(request=request), timeout=PATIENCE_S)


@pytest.mark.parametrize("output_tokens", [1, 2, 15, 16, 17, 100])
def test_demand_is_whole_blocks_of_the_worst_case(server, output_tokens):
    info = server.model_info()
    demand = estimate(server, greedy("Once upon a time", output_tokens))
    prompt_tokens = len(server.tokenize("Once upon a time"))
    assert demand.fits and not demand.HasField("refusal")
    assert demand.prompt_tokens == prompt_tokens
    assert demand.max_output_tokens == output_tokens
    assert demand.worst_blocks == -(-(prompt_tokens + output_tokens - 1) // info.block_tokens)
    assert demand.kv_bytes == demand.worst_blocks * info.block_tokens * info.kv_bytes_per_token
    assert (demand.block_tokens, demand.pool_blocks) == (info.block_tokens, info.pool_blocks)


def test_what_cannot_fit_is_an_answer_with_the_limit(server):
    context = server.model_info().max_context_tokens
    demand = estimate(server, greedy("Once upon a time", context))
    assert not demand.fits
    assert demand.refusal.reason == "REQUEST_TOO_LARGE"
    assert demand.refusal.limit_name == "context_tokens"
    assert demand.refusal.limit == context
    assert demand.refusal.asked > context
    assert demand.refusal.message


def test_a_malformed_request_has_no_demand(server):
    refusal = refused(estimate, server, pb.GenerateRequest())
    assert refusal.code == grpc.StatusCode.INVALID_ARGUMENT
    assert refusal.fields == ["prompt"]


# --- grpc.health.v1


@pytest.mark.parametrize("service", ["", "berth.v1.Inference", "liveness", "readiness"])
def test_a_running_server_is_healthy(server, service):
    health = health_pb2_grpc.HealthStub(server.channel)
    request = health_pb2.HealthCheckRequest(service=service)
    assert health.Check(request, timeout=PATIENCE_S).status == SERVING
    watch = health.Watch(request, timeout=PATIENCE_S)
    assert next(watch).status == SERVING
    watch.cancel()


def test_an_unknown_service_has_no_health(server):
    health = health_pb2_grpc.HealthStub(server.channel)
    request = health_pb2.HealthCheckRequest(service="berth.v1.Dreams")
    assert refused(health.Check, request, timeout=PATIENCE_S).code == grpc.StatusCode.NOT_FOUND
    watch = health.Watch(request, timeout=PATIENCE_S)
    assert next(watch).status == health_pb2.HealthCheckResponse.SERVICE_UNKNOWN
    watch.cancel()


# --- Reflection


def test_reflection_describes_the_services(server):
    database = ProtoReflectionDescriptorDatabase(server.channel)
    assert {"berth.v1.Inference", "grpc.health.v1.Health"} <= set(database.get_services())
    service = descriptor_pool.DescriptorPool(database).FindServiceByName("berth.v1.Inference")
    assert {method.name for method in service.methods} == {
        "Generate", "GenerateStream", "EstimateDemand", "Tokenize", "Detokenize", "GetModelInfo"
    }
    assert "sampling" in service.FindMethodByName("Generate").input_type.fields_by_name


# --- What the caller may use, and what would become of a request now


def test_the_classes_are_told_with_their_limits(server):
    info = server.model_info()
    classes = {limits.name: limits for limits in info.classes}
    assert set(classes) == {"interactive", "batch"}
    assert info.default_class == "interactive"
    interactive, batch = classes["interactive"], classes["batch"]
    assert interactive.guaranteed_blocks == 60 * info.pool_blocks // 100
    assert interactive.ceiling_blocks == interactive.guaranteed_blocks
    assert batch.ceiling_blocks == info.pool_blocks
    assert not interactive.queues and batch.queues
    assert batch.preemptible and not interactive.preemptible
    assert batch.max_wait.ToSeconds() == 60 and batch.max_queued_requests == 64
    for limits in (interactive, batch):
        assert 0 < limits.default_output_tokens <= limits.max_output_tokens < limits.max_sequence_tokens
        assert limits.max_sequence_tokens <= info.max_context_tokens
        assert not limits.HasField("default_timeout")
    # What they say is what is refused.
    request = greedy("Once upon a time", interactive.max_output_tokens + 1)
    assert estimate(server, request).refusal.reason == "REQUEST_TOO_LARGE"


def test_a_request_that_fits_an_idle_server_would_start(server):
    demand = estimate(server, greedy("Once upon a time", 16))
    assert demand.outlook == pb.OUTLOOK_STARTS
    assert not demand.HasField("predicted_wait")


def test_what_can_never_fit_would_be_refused(server):
    demand = estimate(server, greedy("Once upon a time", server.model_info().max_context_tokens))
    assert demand.outlook == pb.OUTLOOK_REFUSED


# --- Load reports (ORCA)


@pytest.mark.parametrize("method", ["Generate", "GenerateStream"])
@pytest.mark.parametrize("request_", [greedy("Once upon a time", 4), pb.GenerateRequest()], ids=["answer", "refusal"])
def test_answers_and_refusals_bring_the_servers_load(server, method, request_):
    # gRPC's clients hand it to their balancers alone.
    blocks = header_blocks(server.info["grpc"], f"/berth.v1.Inference/{method}", request_.SerializeToString(), PATIENCE_S)
    report = orca_load_report_pb2.OrcaLoadReport.FromString(binary_value(blocks[-1], b"endpoint-load-metrics-bin"))
    assert set(report.named_metrics) == {"kv_cache_usage_perc", "num_requests_waiting"}
    assert 0 <= report.named_metrics["kv_cache_usage_perc"] <= 1
    assert report.application_utilization >= 0


def test_load_reports_come_apart_from_requests_and_show_what_runs(server):
    orca = orca_pb2_grpc.OpenRcaServiceStub(server.channel)
    request = orca_pb2.OrcaLoadReportRequest()
    request.report_interval.FromMilliseconds(1)  # counts as the least there is
    running = server.stub.GenerateStream(endless(server), timeout=PATIENCE_S)
    next(running)
    reports = orca.StreamCoreMetrics(request, timeout=PATIENCE_S)
    for report in reports:
        if report.named_metrics["kv_cache_usage_perc"] > 0 and report.application_utilization > 0:
            break
    running.cancel()
    for report in reports:
        if report.named_metrics["kv_cache_usage_perc"] == 0:
            break
    reports.cancel()
