"""Everything at once: clients that are killed, readers that stall, floods of refusals, policies that change, and a drain in the
middle of it. Whatever happens, each call gets one status, every block comes back, and the server ends well.

BERTH_CHAOS_SECONDS says how long (default 12)."""

import collections
import os
import random
import re
import subprocess
import threading
import time
import urllib.request

import grpc
import pytest

from berth.v1 import inference_pb2 as pb
from berth.v1 import inference_pb2_grpc
from berth_server import PATIENCE_S, Refusal, Server, greedy, smallest_model

CHAOS_SECONDS = float(os.environ.get("BERTH_CHAOS_SECONDS", "12"))
SECONDS_BEFORE_DRAIN = 1.0
WRITE_TIMEOUT_S = 1
TEXTS = ["Once upon a time", "There was a little dog. " * 8, "One day a girl went to the park with her big red ball. " * 12]
CLASSES = ["interactive", "batch"]
GENERATE = 'grpc_method="[^"]*Inference/Generate(?:Stream)?"'

# Little of everything, so that requests meet every bound.
POLICY = """
version: 1
model: {{max_context_tokens: 512}}
kv_cache: {{memory: 960KiB}}
scheduler: {{max_running_sequences: {slots}}}
server: {{write_timeout: {write_timeout}s, drain_timeout: 5s}}
classes:
  interactive:
    priority: 100
    kv_guarantee: {interactive}
    overload: reject
    queue: {{max_requests: 8}}
  batch:
    priority: 10
    kv_guarantee: 10%
    kv_borrowing_limit: 90%
    preemptible: true
    queue: {{max_requests: {queue}, max_wait: 2s}}
    stop: {stop}
"""

# Statuses that the verdict tables have for what is done here. INTERNAL and UNKNOWN are faults of the server's.
EXPECTED = {
    grpc.StatusCode.OK, grpc.StatusCode.CANCELLED, grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.DEADLINE_EXCEEDED,
    grpc.StatusCode.RESOURCE_EXHAUSTED, grpc.StatusCode.ABORTED, grpc.StatusCode.UNAVAILABLE,
}


def policy(randomness: random.Random | None = None) -> str:
    if randomness is None:
        return POLICY.format(slots=12, write_timeout=WRITE_TIMEOUT_S, interactive="60%", queue=16, stop="none")
    return POLICY.format(
        slots=randomness.choice([6, 12]), write_timeout=WRITE_TIMEOUT_S, interactive=randomness.choice(["30%", "60%", "80%"]),
        queue=randomness.choice([2, 16]), stop=randomness.choice(["none", "none", "none", "hold", "drain"]))


class Crowd:
    """Actors on threads of their own that do one thing again and again until they are told to stop."""

    def __init__(self, server: Server, policy_path, seed: int):
        self.address = server.info["grpc"]
        self.policy_path = policy_path
        self.statuses: collections.Counter = collections.Counter()
        self.reasons: collections.Counter = collections.Counter()
        self.kills: collections.Counter = collections.Counter()
        self.begun = 0
        self.faults: list[BaseException] = []
        self._lock = threading.Lock()
        self._stop = threading.Event()
        actors = [self.call, self.call, self.kill, self.kill, self.stall, self.flood, self.change_policy]
        self._threads = [
            threading.Thread(target=self._act, args=(actor, random.Random(f"{seed} {i}"))) for i, actor in enumerate(actors)
        ]
        for thread in self._threads:
            thread.start()

    def run(self, seconds: float, reasons: set[str]) -> None:
        """At least so long, and until each of these has been told."""
        end = time.monotonic() + seconds
        while time.monotonic() < end or not reasons <= set(self.reasons):
            assert time.monotonic() < end + PATIENCE_S, self.reasons
            time.sleep(0.1)

    def stop(self) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join(PATIENCE_S)
            assert not thread.is_alive(), "a call never ended"
        for fault in self.faults:
            raise fault
        assert sum(self.statuses.values()) == self.begun, "each call has one status"
        assert set(self.statuses) <= EXPECTED

    def _act(self, actor, randomness: random.Random) -> None:
        # Each has a connection of its own, and takes little that it has not asked for.
        options = [("grpc.use_local_subchannel_pool", 1), ("grpc.http2.bdp_probe", 0), ("grpc.http2.lookahead_bytes", 16384)]
        with grpc.insecure_channel(self.address, options=options) as channel:
            stub = inference_pb2_grpc.InferenceStub(channel)
            try:
                while not self._stop.is_set():
                    actor(stub, randomness)
            except BaseException as fault:  # told by stop()
                self.faults.append(fault)

    def _begin(self) -> None:
        with self._lock:
            self.begun += 1

    def _end(self, call: grpc.Call) -> None:
        """Waits for the status."""
        code = call.code()
        # The status of a reader that stalled cannot carry details past what is stuck.
        reason = "SLOW_READER" if "SLOW_READER" in (call.details() or "") else Refusal(call).reason
        with self._lock:
            self.statuses[code] += 1
            if code != grpc.StatusCode.OK:
                self.reasons[reason] += 1

    def _request(self, randomness: random.Random) -> pb.GenerateRequest:
        request = greedy(randomness.choice(TEXTS), randomness.randint(1, 200), ignore_eos=True)
        request.service_class = randomness.choice(CLASSES)
        request.sampling.n = randomness.choice([1, 1, 1, 3])
        if randomness.random() < 0.2:
            request.timeout.FromMilliseconds(randomness.randint(1, 500))
        return request

    def call(self, stub, randomness: random.Random) -> None:
        """A caller that takes what it gets, and sometimes loses interest."""
        timeout = randomness.choice([0.05, 1, PATIENCE_S, PATIENCE_S])
        self._begin()
        if randomness.random() < 0.3:
            return self._end(stub.Generate.future(self._request(randomness), timeout=timeout))
        stream = stub.GenerateStream(self._request(randomness), timeout=timeout)
        leave_after = randomness.choice([None, None, 0, 1, 5])
        try:
            if leave_after == 0:
                stream.cancel()
            for i, _ in enumerate(stream, start=1):
                if i == leave_after:
                    stream.cancel()
        except grpc.RpcError:
            pass
        self._end(stream)

    def stall(self, stub, randomness: random.Random) -> None:
        """Readers that take one message and then nothing for longer than the server bears."""
        streams = []
        for _ in range(3):
            request = greedy(TEXTS[0], 480, ignore_eos=True)
            request.service_class = randomness.choice(CLASSES)
            request.output.logprobs = 20  # more than fits the connection's window
            self._begin()
            streams.append(stub.GenerateStream(request, timeout=PATIENCE_S))
        self._stop.wait(WRITE_TIMEOUT_S * 1.5)
        for stream in streams:
            try:
                collections.deque(stream, maxlen=0)
            except grpc.RpcError:
                pass
            self._end(stream)

    def flood(self, stub, randomness: random.Random) -> None:
        """Requests that cannot be served, or not now."""
        calls = []
        for _ in range(64):
            request = self._request(randomness)
            spoil = randomness.randrange(4)
            if spoil == 0:
                request.text = ""
            elif spoil == 1:
                request.stopping.max_output_tokens = 1 << 20
            elif spoil == 2:
                request.service_class = "nobody's"
            self._begin()
            calls.append(stub.Generate.future(request, timeout=PATIENCE_S))
        for call in calls:
            self._end(call)

    def change_policy(self, _stub, randomness: random.Random) -> None:
        text = policy(randomness) if randomness.random() < 0.8 else "version: 1\nclasses: {interactive: {kv_guarantee: lots}}\n"
        write_policy(self.policy_path, text)
        self._stop.wait(randomness.uniform(0.05, 0.5))

    def kill(self, _stub, randomness: random.Random) -> None:
        """kill -9 of a client: while it connects, while it waits or before its first token, in the middle, at the end."""
        tokens = randomness.randint(20, 200)
        client = subprocess.Popen(
            [os.environ["BERTH_BINARY"], "client", "generate", "--server", self.address, "--class", randomness.choice(CLASSES),
             "--prompt", randomness.choice(TEXTS), "--max-tokens", str(tokens), "--ignore-eos"],
            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        point = randomness.choice(["connecting", "waiting", "middle", "end"])
        if point in ("connecting", "waiting"):
            time.sleep(randomness.uniform(0, 0.02 if point == "connecting" else 0.2))
        elif point == "middle":
            client.stdout.read(1)
        else:
            client.stdout.read()  # it is about to end
        client.kill()
        client.wait(PATIENCE_S)
        client.stdout.close()
        self.kills[point] += 1


def write_policy(path, text: str) -> None:
    fresh = path.with_suffix(".new")
    fresh.write_text(text)
    fresh.replace(path)


class Metrics:
    """The server's page of metrics, as of now."""

    def __init__(self, server: Server):
        with urllib.request.urlopen(f"http://{server.info['ops']}/metrics", timeout=PATIENCE_S) as page:
            self._lines = page.read().decode().splitlines()

    def sum(self, name: str, labels: str = "") -> float:
        """Of the samples whose labels match."""
        pattern = re.compile(name + r"\{[^}]*" + labels + r"[^}]*\} (\S+)$")
        values = [float(match[1]) for line in self._lines if (match := pattern.match(line))]
        assert values, f"no sample of {name} {labels}"
        return sum(values)

    def at_rest(self) -> bool:
        names = ["berth_requests_running", "berth_requests_queued", "berth_requests_preempted"]
        return sum(self.sum(name) for name in names) == 0 and self.calls_open() == 0

    def calls_open(self) -> float:
        return self.sum("grpc_server_call_started_total", GENERATE) - self.sum("grpc_server_call_duration_seconds_count", GENERATE)


def at_rest(server: Server) -> Metrics:
    """Once nothing runs or waits any more: the server may have to notice that the killed are gone."""
    end = time.monotonic() + PATIENCE_S
    while not (metrics := Metrics(server)).at_rest():
        assert time.monotonic() < end, "something is left of the requests"
        time.sleep(0.1)
    return metrics


def the_largest_request() -> pb.GenerateRequest:
    """Three choices of a whole context each: all that the pool holds."""
    request = greedy(TEXTS[0], 500, ignore_eos=True)
    request.service_class = "batch"
    request.sampling.n = 3
    return request


def generate_once_policy_is_in_force(server: Server, request: pb.GenerateRequest) -> pb.GenerateResponse:
    """The class may be on hold until the file that was written last has been taken in."""
    end = time.monotonic() + PATIENCE_S
    while True:
        try:
            return server.generate_when_free(request)
        except grpc.RpcError as error:
            if Refusal(error).reason != "CLASS_ON_HOLD" or time.monotonic() > end:
                raise


@pytest.fixture
def chaotic(tmp_path):
    """A server of the smallest model under a policy file of its own."""
    path = tmp_path / "berth.yaml"
    write_policy(path, policy())
    server = Server("--config", str(path), model=smallest_model(), drain_delay_s=1)
    try:
        assert "grpc" in server.info, server.stderr()
        yield server, path
    finally:
        server.close()


def test_whatever_clients_and_operators_do_every_call_ends_once_and_every_block_comes_back(chaotic):
    server, path = chaotic
    crowd = Crowd(server, path, seed=1)
    crowd.run(CHAOS_SECONDS, {"INVALID_REQUEST", "UNKNOWN_CLASS", "QUEUE_FULL", "KV_CAPACITY_EXHAUSTED", "SLOW_READER"})
    crowd.stop()
    assert crowd.statuses[grpc.StatusCode.OK] > 0
    assert min(crowd.kills[point] for point in ("connecting", "waiting", "middle", "end")) > 0, crowd.kills
    assert server.process.poll() is None, server.stderr()

    # Also those whose clients were killed.
    metrics = at_rest(server)
    assert metrics.sum("berth_requests_total") == metrics.sum("grpc_server_call_started_total", GENERATE)
    assert metrics.sum("berth_kv_blocks", 'state="held"') == metrics.sum("berth_kv_reserved_unspent_blocks") == 0
    assert metrics.sum("berth_kv_blocks") == server.model_info().pool_blocks

    # It could not start if a block were lost.
    write_policy(path, policy())
    whole = generate_once_policy_is_in_force(server, the_largest_request())
    assert whole.usage.reserved_blocks == server.model_info().pool_blocks

    crowd = Crowd(server, path, seed=2)
    crowd.run(SECONDS_BEFORE_DRAIN, set())
    assert server.terminate() == 0, server.stderr()
    crowd.stop()
    assert crowd.statuses[grpc.StatusCode.UNAVAILABLE] > 0
