"""What is not served: each refusal has its status, its reason, and the field or the limit that it is about."""

import math
import queue

import grpc
import pytest
from google.protobuf import duration_pb2

from berth.v1 import inference_pb2 as pb
from berth_server import PATIENCE_S, Refusal, endless, greedy, refused
from raw_call import header_blocks

PROMPT = "Once upon a time"
Code = grpc.StatusCode


def request_with(**fields) -> pb.GenerateRequest:
    return pb.GenerateRequest(**{"text": PROMPT, **fields})


def sampling(**fields) -> pb.GenerateRequest:
    return request_with(sampling=pb.Sampling(**fields))


def stopping(**fields) -> pb.GenerateRequest:
    return request_with(stopping=pb.Stopping(**fields))


def output(**fields) -> pb.GenerateRequest:
    return request_with(output=pb.Output(**fields))


INVALID = [
    ("prompt", pb.GenerateRequest()),
    ("text", request_with(text="")),
    ("token_ids.ids", pb.GenerateRequest(token_ids=pb.TokenIds())),
    ("token_ids.ids", pb.GenerateRequest(token_ids=pb.TokenIds(ids=[-1]))),
    ("token_ids.ids", pb.GenerateRequest(token_ids=pb.TokenIds(ids=[2**31 - 1]))),
    ("request_id", request_with(request_id="x" * 129)),
    ("request_id", request_with(request_id="new\nline")),
    ("request_id", request_with(request_id="é")),
    ("timeout", request_with(timeout=duration_pb2.Duration())),
    ("timeout", request_with(timeout=duration_pb2.Duration(seconds=-1))),
    ("sampling.n", sampling(n=0)),
    ("sampling.n", sampling(n=-1)),
    ("sampling.temperature", sampling(temperature=-0.5)),
    ("sampling.temperature", sampling(temperature=1000)),
    ("sampling.temperature", sampling(temperature=math.nan)),
    ("sampling.top_k", sampling(top_k=-1)),
    ("sampling.top_p", sampling(top_p=0)),
    ("sampling.top_p", sampling(top_p=1.5)),
    ("sampling.top_p", sampling(top_p=math.inf)),
    ("sampling.min_p", sampling(min_p=-0.1)),
    ("sampling.min_p", sampling(min_p=1.1)),
    ("sampling.repetition_penalty", sampling(repetition_penalty=0)),
    ("sampling.repetition_penalty", sampling(repetition_penalty=11)),
    ("sampling.presence_penalty", sampling(presence_penalty=2.5)),
    ("sampling.presence_penalty", sampling(presence_penalty=-math.inf)),
    ("sampling.frequency_penalty", sampling(frequency_penalty=-2.5)),
    ("sampling.logit_bias", sampling(logit_bias={0: 101})),
    ("sampling.logit_bias", sampling(logit_bias={-1: 1})),
    ("sampling.logit_bias", sampling(logit_bias={2**31 - 1: 1})),
    ("sampling.logit_bias", sampling(logit_bias={i: 1 for i in range(1025)})),
    ("stopping.max_output_tokens", stopping(max_output_tokens=0)),
    ("stopping.max_output_tokens", stopping(max_output_tokens=-1)),
    ("stopping.min_output_tokens", stopping(min_output_tokens=-1)),
    ("stopping.min_output_tokens", stopping(max_output_tokens=4, min_output_tokens=5)),
    ("stopping.stop_strings", stopping(stop_strings=[""])),
    ("stopping.stop_strings", stopping(stop_strings=["x" * 1025])),
    ("stopping.stop_strings", stopping(stop_strings=["x"] * 17)),
    ("stopping.stop_token_ids", stopping(stop_token_ids=[-1])),
    ("stopping.stop_token_ids", stopping(stop_token_ids=[2**31 - 1])),
    ("stopping.stop_token_ids", stopping(stop_token_ids=[1] * 1025)),
    ("output.logprobs", output(logprobs=-1)),
    ("output.logprobs", output(logprobs=21)),
    ("output.prompt_logprobs", output(prompt_logprobs=-1)),
    ("output.prompt_logprobs", output(prompt_logprobs=21)),
]


@pytest.mark.parametrize("field, request_", INVALID, ids=[f"{i}-{field}" for i, (field, _) in enumerate(INVALID)])
def test_a_field_out_of_bounds_is_named(server, field, request_):
    for call in (server.generate, server.stream):
        refusal = refused(call, request_)
        assert refusal.code == Code.INVALID_ARGUMENT
        assert refusal.reason == "INVALID_REQUEST"
        assert refusal.fields == [field]
        assert refusal.message.startswith(field)
        assert refusal.details["ErrorInfo"].domain == "berth"
        assert refusal.details["RequestInfo"].request_id
        assert refusal.trailers["grpc-retry-pushback-ms"] == "-1"


def test_an_unknown_class_is_refused_with_those_there_are(server):
    refusal = refused(server.generate, request_with(service_class="first"))
    assert refusal.code == Code.INVALID_ARGUMENT
    assert refusal.reason == "UNKNOWN_CLASS"
    assert refusal.fields == ["service_class"]
    assert "interactive, batch" in refusal.message


def test_more_choices_than_the_server_runs_are_invalid(server):
    refusal = refused(server.generate, sampling(n=1000))
    assert refusal.code == Code.INVALID_ARGUMENT
    assert refusal.reason == "INVALID_REQUEST"
    assert refusal.fields == ["sampling.n"]


def test_more_than_its_class_allows_is_refused_though_the_context_would_hold_it(server):
    refusal = refused(server.generate, greedy(PROMPT, 1025))
    if server.model_info().max_context_tokens < 2000:
        assert refusal.metadata["limitName"] == "context_tokens"
        return
    assert refusal.code == Code.INVALID_ARGUMENT
    assert refusal.reason == "REQUEST_TOO_LARGE"
    assert refusal.metadata["limitName"] == "max_output_tokens"
    assert refusal.metadata["limitTokens"] == "1024"


def test_the_interactive_class_answers_or_refuses_at_once(server):
    request = greedy(PROMPT, min(1000, server.model_info().max_context_tokens - 100), ignore_eos=True)
    room = 60 * server.model_info().pool_blocks // 100
    blocks = server.stub.EstimateDemand(pb.EstimateDemandRequest(request=request), timeout=PATIENCE_S).worst_blocks
    ended = queue.SimpleQueue()
    calls = [server.stub.Generate.future(request, timeout=PATIENCE_S) for _ in range(min(60, room // blocks + 10))]
    for call in calls:
        call.add_done_callback(ended.put)
    try:
        refusal = None
        while refusal is None:
            call = ended.get(timeout=PATIENCE_S)
            if call.code() != grpc.StatusCode.OK:
                refusal = Refusal(call.exception())
        assert refusal.code == Code.RESOURCE_EXHAUSTED
        assert refusal.reason == "KV_CAPACITY_EXHAUSTED"
        assert refusal.metadata["limitName"] in ("class_kv_blocks", "running_sequences")
    finally:
        for call in calls:
            call.cancel()
    assert server.generate_when_free(greedy(PROMPT, 4)).choices


def test_another_model_is_not_found(server):
    refusal = refused(server.generate, request_with(model="gpt-7"))
    assert refusal.code == Code.NOT_FOUND
    assert refusal.reason == "MODEL_NOT_FOUND"
    served = greedy(PROMPT, 1)
    served.model = server.model_info().name
    assert server.generate(served).choices


def test_more_output_than_the_context_holds_is_refused_and_never_cut(server):
    context = server.model_info().max_context_tokens
    refusal = refused(server.generate, greedy(PROMPT, context))
    assert refusal.code == Code.INVALID_ARGUMENT
    assert refusal.reason == "REQUEST_TOO_LARGE"
    assert refusal.metadata["limitName"] == "context_tokens"
    assert refusal.metadata["limitTokens"] == str(context)
    assert refusal.metadata["requestedTokens"] == str(context + len(server.tokenize(PROMPT)))


def test_a_prompt_longer_than_the_context_is_refused(server):
    ids = [server.tokenize(PROMPT)[-1]] * (server.model_info().max_context_tokens + 1)
    refusal = refused(server.generate, pb.GenerateRequest(token_ids=pb.TokenIds(ids=ids)))
    assert refusal.code == Code.INVALID_ARGUMENT
    assert refusal.reason == "REQUEST_TOO_LARGE"


def test_a_text_longer_than_any_context_is_refused_by_its_bytes(server):
    refusal = refused(server.generate, request_with(text="x" * 3_500_000))
    assert refusal.code == Code.INVALID_ARGUMENT
    assert refusal.reason == "REQUEST_TOO_LARGE"
    assert refusal.metadata["requestedBytes"] == "3500000"


def test_a_message_beyond_the_bound_is_refused_by_grpc(server):
    assert refused(server.generate, request_with(text="x" * 5_000_000)).code == Code.RESOURCE_EXHAUSTED


def test_bytes_that_are_no_request_are_an_invalid_argument(server):
    call = server.channel.unary_unary("/berth.v1.Inference/Generate", request_serializer=bytes)
    # A field that is longer than the message, and a `text` that is not UTF-8.
    for body in (b"\x0a\x05oops", b"\x1a\x01\xff"):
        refusal = refused(call, body, timeout=PATIENCE_S)
        assert refusal.code == Code.INVALID_ARGUMENT
        assert refusal.reason == "INVALID_REQUEST"


def test_a_live_request_id_is_not_given_twice(server):
    request = endless(server)
    request.request_id = "twin"
    stream = server.stub.GenerateStream(request, timeout=PATIENCE_S)
    next(stream)
    refusal = refused(server.generate, request)
    stream.cancel()
    assert refusal.code == Code.ALREADY_EXISTS
    assert refusal.reason == "DUPLICATE_REQUEST_ID"
    assert refusal.details["RequestInfo"].request_id == "twin"


def test_the_queue_is_bounded_and_says_when_to_come_back(server):
    bound = 64
    sent = bound + 20
    request = endless(server)  # two or so run, the others wait
    running = server.stub.GenerateStream(request, timeout=PATIENCE_S)
    next(running)
    ended = queue.SimpleQueue()
    calls = [server.stub.Generate.future(request) for _ in range(sent)]
    for call in calls:
        call.add_done_callback(ended.put)
    refusals = []
    try:
        # Those that found the queue full are answered at once, the others run for long.
        while len(refusals) < 10:
            call = ended.get(timeout=PATIENCE_S)
            if call.code() != grpc.StatusCode.OK:
                refusals.append(Refusal(call.exception()))
    finally:
        for call in [running, *calls]:
            call.cancel()
    for refusal in refusals:
        assert refusal.code == Code.RESOURCE_EXHAUSTED
        assert refusal.reason == "QUEUE_FULL"
        assert refusal.metadata["limitRequests"] == str(bound)
        assert refusal.details["RetryInfo"].retry_delay.ToMilliseconds() >= 100
        assert int(refusal.trailers["grpc-retry-pushback-ms"]) >= 100
    # The places come back.
    assert server.generate_when_free(greedy(PROMPT, 4)).choices


def test_a_timeout_ends_a_request_with_what_it_has(server):
    milliseconds = 50
    while True:
        request = endless(server)
        request.timeout.FromMilliseconds(milliseconds)
        try:
            response = server.generate(request)
            break
        except grpc.RpcError as error:
            # Too short for the first token on this machine, at this moment.
            refusal = Refusal(error)
            assert refusal.code == Code.DEADLINE_EXCEEDED
            assert refusal.reason in ("DEADLINE_EXCEEDED", "DEADLINE_INFEASIBLE")
            milliseconds *= 2
    if response.choices[0].finish_reason == pb.FINISH_REASON_LENGTH:
        pytest.skip("the model is too fast to be late")
    assert response.choices[0].finish_reason == pb.FINISH_REASON_DEADLINE
    assert response.usage.output_tokens > 0
    assert response.choices[0].text


def test_a_timeout_in_the_queue_is_a_deadline_status(server):
    running = server.stub.GenerateStream(endless(server), timeout=PATIENCE_S)
    next(running)
    request = greedy(PROMPT, 4)
    request.timeout.FromMicroseconds(1)
    refusal = refused(server.generate, request)
    running.cancel()
    assert refusal.code == Code.DEADLINE_EXCEEDED
    assert refusal.reason == "DEADLINE_EXCEEDED"


def test_a_grpc_deadline_gives_the_capacity_back(server):
    for _ in range(5):
        refusal = refused(server.generate, endless(server), timeout=0.05)
        assert refusal.code == Code.DEADLINE_EXCEEDED
    assert server.generate_when_free(greedy(PROMPT, 4)).choices


def test_an_unknown_method_is_unimplemented(server):
    call = server.channel.unary_unary("/berth.v1.Inference/Dream", request_serializer=bytes)
    assert refused(call, b"", timeout=PATIENCE_S).code == Code.UNIMPLEMENTED


@pytest.mark.parametrize("method", ["Generate", "GenerateStream", "EstimateDemand"])
def test_a_refusal_is_trailers_and_nothing_else(server, method):
    # Stock clients retry only what has not begun to answer.
    request = pb.GenerateRequest().SerializeToString()
    assert len(header_blocks(server.info["grpc"], f"/berth.v1.Inference/{method}", request, PATIENCE_S)) == 1
