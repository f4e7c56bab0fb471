"""What clients do with a refusal: stock gRPC under docs/service_config.json, `berth client generate`, and the example."""

import os
import pathlib
import subprocess
import sys

import grpc
import pytest

from berth.v1 import inference_pb2 as pb
from berth.v1 import inference_pb2_grpc
from berth_server import PATIENCE_S, greedy
from certificates import Authority
from policy_server import policy, sha256, start_with
from scripted_server import ScriptedServer, answers, breaks_off, refuses

ROOT = pathlib.Path(__file__).resolve().parents[2]
SERVICE_CONFIG = (ROOT / "docs" / "service_config.json").read_text()
Code = grpc.StatusCode


# --- Stock gRPC


def stock_stub(address: str) -> inference_pb2_grpc.InferenceStub:
    options = [("grpc.service_config", SERVICE_CONFIG), ("grpc.use_local_subchannel_pool", 1)]
    return inference_pb2_grpc.InferenceStub(grpc.insecure_channel(address, options))


@pytest.mark.parametrize("code", [Code.UNAVAILABLE, Code.RESOURCE_EXHAUSTED])
def test_a_stock_client_comes_back_when_it_is_told(code):
    with ScriptedServer(refuses(code, 1), refuses(code, 1), answers()) as server:
        response = stock_stub(server.address).Generate(greedy("a"), timeout=PATIENCE_S)
        assert response.choices[0].text == "a tale"
        attempts = [a.metadata.get("grpc-previous-rpc-attempts") for a in server.attempts]
        assert attempts == [None, "1", "2"]


def test_every_attempt_of_a_stock_client_has_what_is_left_of_its_time():
    with ScriptedServer(refuses(Code.UNAVAILABLE, 700), refuses(Code.UNAVAILABLE, 700), answers()) as server:
        stock_stub(server.address).Generate(greedy("a"), timeout=20)
        left = [a.time_left for a in server.attempts]
        # gRPC rounds what it sends up, here to tenths of a second.
        assert len(left) == 3 and left[2] < left[0] <= 20.1


def test_a_stock_client_that_is_told_not_to_does_not_come_back():
    with ScriptedServer(refuses(Code.RESOURCE_EXHAUSTED, -1), answers()) as server:
        with pytest.raises(grpc.RpcError) as error:
            stock_stub(server.address).Generate(greedy("a"), timeout=PATIENCE_S)
        assert error.value.code() == Code.RESOURCE_EXHAUSTED
        assert len(server.attempts) == 1


def test_a_stock_client_waits_as_long_as_it_is_told():
    # By its own backoff it would be back within 0.3 s, and twice more before its deadline.
    with ScriptedServer(refuses(Code.UNAVAILABLE, 3_600_000), answers()) as server:
        with pytest.raises(grpc.RpcError):
            stock_stub(server.address).Generate(greedy("a"), timeout=2)
        assert len(server.attempts) == 1


def test_a_stock_client_gives_up_after_five_attempts():
    with ScriptedServer(refuses(Code.UNAVAILABLE, 1)) as server:
        with pytest.raises(grpc.RpcError):
            stock_stub(server.address).Generate(greedy("a"), timeout=PATIENCE_S)
        assert len(server.attempts) == 5


def test_a_stock_stream_that_has_begun_is_not_begun_again():
    with ScriptedServer(breaks_off(), answers()) as server:
        messages = []
        with pytest.raises(grpc.RpcError):
            for message in stock_stub(server.address).GenerateStream(greedy("a"), timeout=PATIENCE_S):
                messages.append(message)
        assert len(messages) == 2
        assert len(server.attempts) == 1


# --- berth client generate


def client(server, *flags, command="generate", **options):
    prompt = ("--prompt", "a") if command == "generate" else ()
    environment = {k: v for k, v in os.environ.items() if k != "BERTH_API_KEY"}
    environment.update(options.pop("env", {}))
    return subprocess.run(
        [os.environ["BERTH_BINARY"], "client", command, "--server", getattr(server, "address", server), *prompt,
         *map(str, flags)],
        capture_output=True, text=True, timeout=PATIENCE_S, env=environment, check=False)


def retries_told(done):
    return [line for line in done.stderr.splitlines() if line.startswith("retry ")]


def test_the_command_comes_back_when_it_is_told_and_says_so():
    refusal = refuses(Code.RESOURCE_EXHAUSTED, 1, "the queue is full")
    with ScriptedServer(refusal, refusal, answers()) as server:
        done = client(server)
        assert done.returncode == 0, done.stderr
        assert done.stdout == "a tale\n"
        assert retries_told(done) == ["retry 1 of 4 in 0.0 s: the queue is full", "retry 2 of 4 in 0.0 s: the queue is full"]
        attempts = [a.metadata.get("grpc-previous-rpc-attempts") for a in server.attempts]
        assert attempts == [None, "1", "2"]


def test_every_attempt_of_the_command_has_what_is_left_of_its_time():
    with ScriptedServer(refuses(Code.UNAVAILABLE, 700), refuses(Code.UNAVAILABLE, 700), answers()) as server:
        assert client(server, "--timeout", 20).returncode == 0
        left = [a.time_left for a in server.attempts]
        assert len(left) == 3 and left[2] < left[0] <= 20.1


def test_the_command_does_not_wait_beyond_its_time():
    with ScriptedServer(refuses(Code.UNAVAILABLE, 3_600_000, "later"), answers()) as server:
        done = client(server, "--timeout", 30)
        assert done.returncode == 1
        assert "later" in done.stderr
        assert len(server.attempts) == 1


@pytest.mark.parametrize("code, pushback", [
    (Code.RESOURCE_EXHAUSTED, -1), (Code.UNAVAILABLE, -1), (Code.RESOURCE_EXHAUSTED, None),
    (Code.INVALID_ARGUMENT, 1), (Code.UNAUTHENTICATED, None), (Code.DEADLINE_EXCEEDED, 1), (Code.INTERNAL, None),
])
def test_the_command_does_not_repeat_what_cannot_succeed(code, pushback):
    with ScriptedServer(refuses(code, pushback), answers()) as server:
        done = client(server)
        assert done.returncode == 1
        assert not retries_told(done)
        assert len(server.attempts) == 1


def test_the_command_does_not_repeat_what_has_brought_text():
    with ScriptedServer(breaks_off(), answers()) as server:
        done = client(server)
        assert done.returncode == 1
        assert done.stdout == "half a\n"
        assert len(server.attempts) == 1


def test_the_command_gives_up_after_its_retries():
    with ScriptedServer(refuses(Code.UNAVAILABLE, 1)) as server:
        assert client(server, "--retries", 2).returncode == 1
        assert len(server.attempts) == 3
        assert client(server, "--retries", 0).returncode == 1
        assert len(server.attempts) == 4


def test_the_command_sends_who_is_calling(tmp_path):
    key = tmp_path / "key"
    key.write_text("from-file\n")
    with ScriptedServer(answers()) as server:
        client(server, "--tenant", "acme", "--header", "X-Berth-Class=batch", "--header", "x-note=a=b")
        attempt = server.attempts[-1]
        assert attempt.request.tenant == "acme"
        assert attempt.metadata["x-berth-class"] == "batch"
        assert attempt.metadata["x-note"] == "a=b"
        assert "authorization" not in attempt.metadata
        client(server, env={"BERTH_API_KEY": "from-environment"})
        assert server.attempts[-1].metadata["authorization"] == "Bearer from-environment"
        client(server, "--api-key-file", key, env={"BERTH_API_KEY": "from-environment"})
        assert server.attempts[-1].metadata["authorization"] == "Bearer from-file"


@pytest.mark.parametrize("flags, part", [
    (("--header", "novalue"), "--header"), (("--header", "grpc-timeout=1S"), "--header"), (("--header", "a b=1"), "--header"),
    (("--header", "x=\x01"), "--header"), (("--api-key-file", "/nonexistent"), "/nonexistent"),
    (("--api-key-file", "/dev/null"), "no API key"), (("--cert", "x.pem"), "--key"), (("--tls-ca", "/dev/null"), "--tls-ca"),
    (("--retries", "-1"), "--retries"),
])
def test_what_is_wrong_with_the_flags_is_one_line(flags, part):
    done = client("127.0.0.1:1", *flags)
    assert done.returncode == 2
    assert part in done.stderr
    assert done.stderr.count("\n") == 1


# --- Against the real server


@pytest.fixture
def guarded(tmp_path):
    """A server that wants a certificate of our authority, and a key."""
    authority = Authority()
    authority.issue("localhost").write(tmp_path / "server")
    authority.issue("bot").write(tmp_path / "client")
    (tmp_path / "ca.crt").write_bytes(authority.pem)
    path = policy(
        tmp_path, f"tenants: {{acme: {{api_key_sha256: [{{id: one, sha256: {sha256('acme-secret')}}}]}}, default: {{}}}}",
        "tls: {certificate: server/tls.crt, key: server/tls.key, client_ca: ca.crt}")
    running = start_with(path)
    assert "grpc" in running.info, running.stderr()
    yield running
    running.close()


def test_the_command_speaks_tls_shows_its_certificate_and_says_who_is_calling(guarded, tmp_path):
    (tmp_path / "key").write_text("acme-secret\n")
    trust = ("--tls-ca", tmp_path / "ca.crt")
    certificate = ("--cert", tmp_path / "client" / "tls.crt", "--key", tmp_path / "client" / "tls.key")
    key = ("--api-key-file", tmp_path / "key")
    address = guarded.info["grpc"]
    done = client(address, *trust, *certificate, *key, "--max-tokens", 2)
    assert done.returncode == 0, done.stderr
    health = client(address, *trust, *certificate, "--service", "liveness", command="health")
    assert (health.returncode, health.stdout) == (0, "SERVING\n"), health.stderr
    without_key = client(address, *trust, *certificate)
    assert without_key.returncode == 1
    assert "CREDENTIALS_INVALID" in without_key.stderr  # its certificate stands for nobody
    # Nobody is talked to whom the command does not trust, and nobody talks to a command without a certificate or TLS.
    for flags in (("--tls", *certificate), trust, ()):
        done = client(address, *flags, *key, "--timeout", 20)
        assert done.returncode == 1, done.stdout
        assert done.stderr.count("\n") == 1


def test_a_server_that_serves_is_healthy_to_the_command(server):
    for flags in ((), ("--service", "readiness"), ("--service", "liveness"), ("--service", "berth.v1.Inference")):
        done = client(server.info["grpc"], *flags, command="health")
        assert (done.returncode, done.stdout) == (0, "SERVING\n"), done.stderr
    unknown = client(server.info["grpc"], "--service", "berth.v1.Dreams", command="health")
    assert unknown.returncode == 1
    assert "berth.v1.Dreams" in unknown.stderr
    assert client("127.0.0.1:1", command="health").returncode == 1


def run_example(address, *flags):
    return subprocess.run([sys.executable, str(ROOT / "docs" / "examples" / "generate.py"), "--server", address, *flags],
                          capture_output=True, text=True, timeout=PATIENCE_S, check=False)


def test_the_example_streams_an_answer(server):
    done = run_example(server.info["grpc"], "Once upon a time", "--max-tokens", "8")
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip()
    assert done.stdout.strip() == server.generate(greedy("Once upon a time", 8)).choices[0].text.strip()
    assert "FINISH_REASON_" in done.stderr
    assert "8 output tokens" in done.stderr


def test_the_example_says_what_a_refusal_says(server):
    done = run_example(server.info["grpc"], "Once upon a time", "--max-tokens", "1000000")
    assert done.returncode == 1
    assert done.stderr.startswith("INVALID_ARGUMENT: ")
    assert "reason REQUEST_TOO_LARGE" in done.stderr
    assert "'limitName': 'context_tokens'" in done.stderr


def test_a_real_refusal_that_cannot_help_is_not_repeated_by_a_stock_client(server):
    with pytest.raises(grpc.RpcError) as error:
        stock_stub(server.info["grpc"]).Generate(pb.GenerateRequest(), timeout=PATIENCE_S)
    assert dict(error.value.trailing_metadata())["grpc-retry-pushback-ms"] == "-1"
