"""A server of the API, stock gRPC too, that does what a test tells it: what clients do is seen from the other side."""

import concurrent.futures
import threading

import grpc

from berth.v1 import inference_pb2 as pb
from berth.v1 import inference_pb2_grpc


class Attempt:
    """What arrived with one call."""

    def __init__(self, request, context):
        self.request = request
        self.metadata = dict(context.invocation_metadata())
        self.time_left = context.time_remaining()


class ScriptedServer(inference_pb2_grpc.InferenceServicer):
    """Each call takes the next of `answers`, the last one again and again: a function (context) -> iterable of messages."""

    def __init__(self, *answers):
        self._answers = list(answers)
        self._lock = threading.Lock()
        self.attempts: list[Attempt] = []
        self._server = grpc.server(concurrent.futures.ThreadPoolExecutor(4), options=[("grpc.so_reuseport", 0)])
        inference_pb2_grpc.add_InferenceServicer_to_server(self, self._server)
        self.address = f"127.0.0.1:{self._server.add_insecure_port('127.0.0.1:0')}"
        self._server.start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._server.stop(None).wait(10)

    def _next(self, request, context):
        with self._lock:
            self.attempts.append(Attempt(request, context))
            answer = self._answers[min(len(self.attempts), len(self._answers)) - 1]
        return answer(context)

    def GenerateStream(self, request, context):
        yield from self._next(request, context)

    def Generate(self, request, context):
        text = "".join(d.text for m in self._next(request, context) for d in m.tokens.deltas)
        return pb.GenerateResponse(choices=[pb.Choice(text=text, finish_reason=pb.FINISH_REASON_LENGTH)])


def refuses(code, pushback=None, message="no room"):
    def answer(context):
        if pushback is not None:
            context.set_trailing_metadata((("grpc-retry-pushback-ms", str(pushback)),))
        context.abort(code, message)
        yield  # never

    return answer


def answers(text="a tale"):
    def answer(_):
        yield pb.GenerateStreamResponse(admitted=pb.Admitted(request_id="r"))
        yield pb.GenerateStreamResponse(tokens=pb.Tokens(deltas=[pb.TokenDelta(text=text)]))
        yield pb.GenerateStreamResponse(finished=pb.Finished(finish_reason=pb.FINISH_REASON_LENGTH))
        yield pb.GenerateStreamResponse(completed=pb.Completed(usage=pb.Usage(prompt_tokens=1, output_tokens=2)))

    return answer


def breaks_off(code=grpc.StatusCode.UNAVAILABLE, text="half a"):
    """Some of the answer, and then a failure that by itself would be worth another try."""

    def answer(context):
        yield pb.GenerateStreamResponse(admitted=pb.Admitted(request_id="r"))
        yield pb.GenerateStreamResponse(tokens=pb.Tokens(deltas=[pb.TokenDelta(text=text)]))
        context.set_trailing_metadata((("grpc-retry-pushback-ms", "1"),))
        context.abort(code, "broke off")

    return answer
