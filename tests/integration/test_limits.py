"""What one client may cost: each limit refuses, and the server goes on."""

import grpc
import pytest

from berth.v1 import inference_pb2 as pb
from berth.v1 import inference_pb2_grpc
from berth_server import PATIENCE_S, Refusal, greedy, refused
from policy_server import policy, start_with

Code = grpc.StatusCode


@pytest.fixture(scope="module")
def limited(tmp_path_factory):
    path = policy(
        tmp_path_factory.mktemp("limited"),
        "classes: {batch: {kv_guarantee: 100%, queue: {max_requests: 100000}}}\ndefault_class: batch\n",
        "max_message_size: 64KiB, max_metadata_size: 8KiB, max_streams_per_connection: 100, max_memory: 256MiB",
    )
    server = start_with(path)
    assert "grpc" in server.info, server.stderr()
    try:
        yield server
        assert server.terminate() == 0, server.stderr()
    finally:
        server.close()


def test_a_message_beyond_the_bound_is_refused(limited):
    refusal = refused(limited.generate, pb.GenerateRequest(text="x" * (64 * 1024)))
    assert refusal.code == Code.RESOURCE_EXHAUSTED
    assert "larger than max" in refusal.message
    assert limited.generate(greedy("hi", 2)).choices


@pytest.mark.parametrize("kilobytes", [12, 200, 2000])
def test_metadata_beyond_the_bound_is_refused(limited, kilobytes):
    metadata = [(f"x-filler-{i}", "y" * 1000) for i in range(kilobytes)]
    # One client for each: a flood of headers may cost it its connection.
    with grpc.insecure_channel(limited.info["grpc"], options=[("grpc.use_local_subchannel_pool", 1)]) as channel:
        stub = inference_pb2_grpc.InferenceStub(channel)
        refusal = refused(stub.Generate, greedy("hi", 2), metadata=metadata, timeout=PATIENCE_S)
        assert refusal.code in (Code.RESOURCE_EXHAUSTED, Code.UNAVAILABLE, Code.INTERNAL), refusal.message
    assert limited.stub.Generate(greedy("hi", 2), metadata=metadata[:6], timeout=PATIENCE_S).choices


def test_two_thousand_streams_on_a_connection_all_end(limited):
    streams = [limited.stub.GenerateStream(greedy("hi", 2), timeout=PATIENCE_S) for _ in range(2000)]
    answered = 0
    for stream in streams:
        try:
            messages = list(stream)
            assert messages[-1].WhichOneof("event") == "completed"
            answered += 1
        except grpc.RpcError as error:
            assert Refusal(error).reason == "QUEUE_FULL", error
    # No more than a hundred are open at once, which fit the queue: the others waited at the client.
    assert answered == 2000
    assert limited.generate(greedy("hi", 2)).choices


def test_a_flood_of_large_messages_costs_its_sender_calls_and_the_server_nothing(tmp_path):
    server = start_with(policy(tmp_path, "", "max_memory: 16MiB"))
    channels = []
    try:
        assert "grpc" in server.info, server.stderr()
        calls = []
        for _ in range(16):
            # Without the client's own retries: those of calls that never reached the server know no end, and each is 3 MiB.
            options = [("grpc.use_local_subchannel_pool", 1), ("grpc.enable_retries", 0)]
            channels.append(grpc.insecure_channel(server.info["grpc"], options=options))
            stub = inference_pb2_grpc.InferenceStub(channels[-1])
            request = pb.GenerateRequest(text="x" * (3 << 20))
            calls += [stub.Generate.future(request, timeout=PATIENCE_S) for _ in range(4)]
        for call in calls:
            # Too long for the context, or ended before the server had the whole of it.
            assert call.code() in (Code.INVALID_ARGUMENT, Code.RESOURCE_EXHAUSTED, Code.UNAVAILABLE), call.details()
        assert server.generate(greedy("hi", 2)).choices
        assert server.terminate() == 0, server.stderr()
    finally:
        for channel in channels:
            channel.close()
        server.close()


def test_a_connection_of_its_age_is_replaced_without_a_failed_call(tmp_path):
    server = start_with(policy(tmp_path, "", "max_connection_age: 1s"))
    try:
        assert "grpc" in server.info, server.stderr()
        # What was seen of the channel: it became idle or was made anew, and no call was lost by that.
        states = []
        server.channel.subscribe(states.append)
        while states.count(grpc.ChannelConnectivity.READY) < 2:
            assert server.generate(greedy("hi", 2)).choices
        assert server.terminate() == 0, server.stderr()
    finally:
        server.close()
