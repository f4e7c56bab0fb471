#!/usr/bin/env python3
"""Streams an answer from a Berth server, with stock gRPC and the project's proto files alone.

    pip install grpcio grpcio-tools
    python -m grpc_tools.protoc -Iproto --python_out=stubs --grpc_python_out=stubs \\
        berth/v1/inference.proto google/rpc/status.proto google/rpc/error_details.proto
    PYTHONPATH=stubs python docs/examples/generate.py "The capital of France is"

A call that is refused for now is sent again by gRPC itself, as docs/service_config.json says: when the server asks for it
(grpc-retry-pushback-ms), never when it says that a retry cannot help, and always within the deadline of the call.
"""

import argparse
import os
import pathlib
import sys
import uuid

import grpc
from berth.v1 import inference_pb2 as pb
from berth.v1 import inference_pb2_grpc
from google.rpc import error_details_pb2, status_pb2

SERVICE_CONFIG = pathlib.Path(__file__).resolve().parents[1] / "service_config.json"


def connect(server: str, tls_ca: str | None) -> grpc.Channel:
    options = [("grpc.service_config", SERVICE_CONFIG.read_text())]
    if tls_ca is None:
        return grpc.insecure_channel(server, options)
    return grpc.secure_channel(server, grpc.ssl_channel_credentials(pathlib.Path(tls_ca).read_bytes()), options)


def explain(error: grpc.RpcError) -> str:
    """What a refusal says: the line for people, the reason for programs, the limit that bound."""
    lines = [f"{error.code().name}: {error.details()}"]
    trailers = dict(error.trailing_metadata() or ())
    status = status_pb2.Status.FromString(trailers.get("grpc-status-details-bin", b""))
    for detail in status.details:
        info = error_details_pb2.ErrorInfo()
        if detail.Unpack(info):
            lines.append(f"reason {info.reason} {dict(sorted(info.metadata.items()))}")
        retry = error_details_pb2.RetryInfo()
        if detail.Unpack(retry):
            lines.append(f"come back in {retry.retry_delay.ToMilliseconds()} ms")
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description="Streams an answer from a Berth server.")
    parser.add_argument("prompt")
    parser.add_argument("--server", default="127.0.0.1:8433")
    parser.add_argument("--tls-ca", help="PEM file; speak TLS and trust it")
    parser.add_argument("--service-class", default="", help="interactive or batch, say; default: the server's")
    parser.add_argument("--max-tokens", type=int, default=64)
    parser.add_argument("--timeout", type=float, default=60, help="seconds for everything, retries included")
    arguments = parser.parse_args()

    request = pb.GenerateRequest(
        # One name for all attempts: the server lets a later one replace an earlier one that it has not seen end.
        request_id=str(uuid.uuid4()),
        text=arguments.prompt,
        service_class=arguments.service_class,
        sampling=pb.Sampling(temperature=0),
        stopping=pb.Stopping(max_output_tokens=arguments.max_tokens),
    )
    metadata = []
    if "BERTH_API_KEY" in os.environ:
        metadata.append(("authorization", "Bearer " + os.environ["BERTH_API_KEY"]))

    with connect(arguments.server, arguments.tls_ca) as channel:
        stub = inference_pb2_grpc.InferenceStub(channel)
        try:
            for message in stub.GenerateStream(request, timeout=arguments.timeout, metadata=metadata):
                event = message.WhichOneof("event")
                if event == "tokens":
                    for delta in message.tokens.deltas:
                        print(delta.text, end="", flush=True)
                elif event == "finished":
                    print()
                    print(pb.FinishReason.Name(message.finished.finish_reason), file=sys.stderr)
                elif event == "completed":
                    usage = message.completed.usage
                    print(f"{usage.prompt_tokens} prompt tokens, {usage.output_tokens} output tokens, "
                          f"{usage.reserved_blocks} KV blocks reserved", file=sys.stderr)
        except grpc.RpcError as error:
            print(explain(error), file=sys.stderr)
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
