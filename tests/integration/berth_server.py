"""Starts `berth serve` as a user would, and speaks to it."""

import json
import os
import pathlib
import queue
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable

import grpc
import pytest

from berth.v1 import inference_pb2 as pb
from berth.v1 import inference_pb2_grpc
from google.rpc import error_details_pb2, status_pb2

# Sanitizers and a busy machine make everything slow; nothing here waits so long on a good day.
PATIENCE_S = 120
DEFAULT_MODEL = "SmolLM2-135M-Instruct.Q4_1.gguf"


def smallest_model() -> pathlib.Path:
    """Thousands of tokens a second on any machine."""
    return pathlib.Path(os.environ.get("BERTH_SHARED_DIR", "/nonexistent")) / "models" / "stories260K-f32.gguf"


def find_model() -> pathlib.Path | None:
    """The default model where it was fetched, else the smallest one of the shared data."""
    folder = os.environ.get("BERTH_MODEL_DIR")
    if not folder:
        cache = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.environ.get("HOME", "/"), ".cache")
        folder = os.path.join(cache, "berth", "models")
    candidates = [pathlib.Path(folder) / DEFAULT_MODEL, smallest_model()]
    return next((path for path in candidates if path.exists()), None)


class Server:
    """A running `berth serve` on a free port of the loopback, its operators' socket in a folder of its own."""

    def __init__(self, *flags: str, address: str = "127.0.0.1:0", ops: str = "127.0.0.1:0", drain_delay_s: int | None = 0,
                 model: pathlib.Path | None = None, early: Callable[[subprocess.Popen], None] = lambda process: None):
        model = model or find_model()
        if model is None or not model.exists():
            message = "neither the default model ('make model' fetches it) nor the shared test data is here"
            pytest.fail(message) if os.environ.get("CI") == "true" else pytest.skip(message)
        self._folder = tempfile.TemporaryDirectory(prefix="berth")
        command = [os.environ["BERTH_BINARY"], "serve", "--model", str(model), "--grpc", address, "--ops", ops, "--json"]
        if "--admin" not in flags:
            command += ["--admin", f"unix:{self._folder.name}/admin.sock"]
        if drain_delay_s is not None:
            command += ["--drain-delay", str(drain_delay_s)]
        command += flags
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        early(self.process)
        self._stderr: list[str] = []
        self._reader = threading.Thread(target=self._keep_stderr, daemon=True)
        self._reader.start()
        self.info = json.loads(self._first_line() or "{}")
        if "grpc" not in self.info:
            self.process.wait(PATIENCE_S)
            self._reader.join(PATIENCE_S)
            return
        self.channel = grpc.insecure_channel(self.info["grpc"], options=[("grpc.use_local_subchannel_pool", 1)])
        self.stub = inference_pb2_grpc.InferenceStub(self.channel)

    def stderr(self) -> str:
        return "".join(self._stderr)

    def terminate(self) -> int:
        """SIGTERM, and the exit code."""
        self.process.send_signal(signal.SIGTERM)
        return self.wait()

    def wait(self) -> int:
        code = self.process.wait(PATIENCE_S)
        self._reader.join(PATIENCE_S)
        return code

    def close(self) -> None:
        if hasattr(self, "channel"):
            self.channel.close()
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        self.process.stdout.close()
        self._folder.cleanup()

    def run(self, *arguments: str) -> subprocess.CompletedProcess:
        """An operators' command on this server."""
        command = [os.environ["BERTH_BINARY"], *arguments, "--admin", self.info["admin"]]
        return subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False)

    def _keep_stderr(self) -> None:
        for line in self.process.stderr:
            self._stderr.append(line)
        self.process.stderr.close()

    def _first_line(self) -> str:
        lines: queue.Queue[str] = queue.Queue()
        threading.Thread(target=lambda: lines.put(self.process.stdout.readline()), daemon=True).start()
        try:
            return lines.get(timeout=PATIENCE_S)
        except queue.Empty:
            self.process.kill()
            pytest.fail("berth serve said nothing: " + self.stderr())

    # --- Calls with a bound on patience.

    def generate(self, request: pb.GenerateRequest, timeout: float = PATIENCE_S) -> pb.GenerateResponse:
        return self.stub.Generate(request, timeout=timeout)

    def generate_when_free(self, request: pb.GenerateRequest) -> pb.GenerateResponse:
        """A cancelled call is over for its client before the server hears of it: its place may take a moment to come back."""
        end = time.monotonic() + PATIENCE_S
        while True:
            try:
                return self.generate(request)
            except grpc.RpcError as error:
                if error.code() != grpc.StatusCode.RESOURCE_EXHAUSTED or time.monotonic() > end:
                    raise

    def stream(self, request: pb.GenerateRequest, timeout: float = PATIENCE_S) -> list[pb.GenerateStreamResponse]:
        return list(self.stub.GenerateStream(request, timeout=timeout))

    def tokenize(self, text: str, **fields) -> list[int]:
        return list(self.stub.Tokenize(pb.TokenizeRequest(text=text, **fields), timeout=PATIENCE_S).token_ids)

    def detokenize(self, ids: list[int]) -> str:
        return self.stub.Detokenize(pb.DetokenizeRequest(token_ids=ids), timeout=PATIENCE_S).text

    def model_info(self) -> pb.GetModelInfoResponse:
        return self.stub.GetModelInfo(pb.GetModelInfoRequest(), timeout=PATIENCE_S)


def greedy(text: str, max_output_tokens: int = 24, **stopping) -> pb.GenerateRequest:
    """Always the same answer."""
    return pb.GenerateRequest(
        text=text,
        sampling=pb.Sampling(temperature=0),
        stopping=pb.Stopping(max_output_tokens=max_output_tokens, **stopping),
    )


def endless(server: Server, text: str = "Once upon a time") -> pb.GenerateRequest:
    """As long as the context allows, in the class that allows it and that queues what does not fit yet."""
    room = server.model_info().max_context_tokens - len(server.tokenize(text))
    request = greedy(text, max_output_tokens=min(room, 4096), ignore_eos=True)
    request.service_class = "batch"
    return request


def joined(messages: list[pb.GenerateStreamResponse]) -> str:
    return "".join(delta.text for message in messages for delta in message.tokens.deltas)


class Refusal:
    """What came with a failed call."""

    def __init__(self, error: grpc.RpcError):
        self.code = error.code()
        self.message = error.details()
        self.trailers = dict(error.trailing_metadata() or ())
        self.details: dict[str, object] = {}
        status = status_pb2.Status.FromString(self.trailers.get("grpc-status-details-bin", b""))
        for any_detail in status.details:
            for kind in ("ErrorInfo", "RequestInfo", "BadRequest", "QuotaFailure", "RetryInfo"):
                message = getattr(error_details_pb2, kind)()
                if any_detail.Unpack(message):
                    self.details[kind] = message

    @property
    def reason(self) -> str:
        return self.details["ErrorInfo"].reason if "ErrorInfo" in self.details else "no ErrorInfo"

    @property
    def metadata(self) -> dict[str, str]:
        return dict(self.details["ErrorInfo"].metadata)

    @property
    def fields(self) -> list[str]:
        bad = self.details.get("BadRequest")
        return [violation.field for violation in bad.field_violations] if bad else []


def refused(call, *args, **kwargs) -> Refusal:
    """The refusal of a call that must fail."""
    try:
        result = call(*args, **kwargs)
    except grpc.RpcError as error:
        return Refusal(error)
    pytest.fail(f"the call was served: {result}")
