"""What operators do to a running server: berth.v1.Admin, the commands that call it, health, and how a server ends."""

import concurrent.futures
import fcntl
import hashlib
import json
import os
import pathlib
import pty
import re
import signal
import socket
import stat
import struct
import subprocess
import termios
import time
import urllib.request

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from berth.v1 import admin_pb2, admin_pb2_grpc
from berth_server import PATIENCE_S, Refusal, Server, greedy, refused

# Few sequences at a time, so that a queue stands for load: the model is so small that nothing lasts.
POLICY = """version: 1
kv_cache: {memory: 64MiB}
scheduler: {max_running_sequences: 4}
server: {drain_delay: %(delay)s, drain_timeout: %(timeout)s}
reload: signal
classes:
  fast: {priority: 10, kv_guarantee: 50%%, overload: reject, slo: {time_to_first_token: 10s}}
  slow: {kv_guarantee: 20%%, kv_borrowing_limit: %(borrow)s, queue: {max_requests: 2000, max_wait: 1h}}
default_class: %(default)s
"""


class Policy:
    def __init__(self, folder: pathlib.Path):
        self.path = folder / "policy.yaml"
        self.write()

    def write(self, delay="0s", timeout="60s", borrow="80%", default="slow", more="") -> str:
        text = POLICY % {"delay": delay, "timeout": timeout, "borrow": borrow, "default": default} + more
        new = self.path.with_suffix(".new")
        new.write_text(text)
        os.replace(new, self.path)
        return hashlib.sha256(text.encode()).hexdigest()


@pytest.fixture
def policy(tmp_path):
    return Policy(tmp_path)


@pytest.fixture
def start(policy):
    servers = []

    def start_one(*flags, **settings) -> Server:
        servers.append(Server("--config", str(policy.path), *flags, **{"drain_delay_s": None, **settings}))
        assert "grpc" in servers[-1].info, servers[-1].stderr()
        return servers[-1]

    yield start_one
    for server in servers:
        server.close()


def long_answer(request_id="", service_class="slow"):
    request = greedy("Once upon a time", 100, ignore_eos=True)
    request.request_id = request_id
    request.service_class = service_class
    return request


def short_answer(service_class="slow"):
    request = greedy("Once upon a time", 2, ignore_eos=True)
    request.service_class = service_class
    return request


def load(server, calls: int, prefix="load") -> list[grpc.Future]:
    """So many calls, one behind the other in the queue."""
    return [server.stub.Generate.future(long_answer(f"{prefix}-{i}")) for i in range(calls)]


def outcome(call) -> str:
    try:
        call.result(timeout=PATIENCE_S)
    except grpc.RpcError as error:
        return f"{error.code().name} {Refusal(error).reason}"
    return "OK"


def admin_of(server) -> admin_pb2_grpc.AdminStub:
    return admin_pb2_grpc.AdminStub(grpc.insecure_channel(server.info["admin"]))


def health_of(server, name: str) -> str:
    stub = health_pb2_grpc.HealthStub(server.channel)
    try:
        response = stub.Check(health_pb2.HealthCheckRequest(service=name), timeout=PATIENCE_S)
    except grpc.RpcError as error:
        return error.code().name
    return health_pb2.HealthCheckResponse.ServingStatus.Name(response.status)


def wait_until(condition, what: str):
    end = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < end, what
        time.sleep(0.01)


def blocked_signals(pid: int) -> int:
    status = pathlib.Path(f"/proc/{pid}/status").read_text()
    return int(re.search(r"^SigBlk:\s*(\w+)", status, re.MULTILINE).group(1), 16)


class TestTheSocket:
    def test_is_its_owners_alone_and_goes_with_the_server(self, start):
        server = start()
        path = server.info["admin"].removeprefix("unix:")
        mode = os.stat(path).st_mode
        assert stat.S_ISSOCK(mode)
        assert stat.S_IMODE(mode) == 0o600
        assert server.terminate() == 0, server.stderr()
        assert not os.path.exists(path)

    def test_that_is_left_over_is_replaced_and_one_in_use_is_not(self, start, tmp_path):
        path = str(tmp_path / "a.sock")
        if len(path) > 100:
            pytest.skip("the temporary folder's name is longer than a socket's may be")
        with socket.socket(socket.AF_UNIX) as left_over:
            left_over.bind(path)
        server = start("--admin", f"unix:{path}")
        assert server.run("status").returncode == 0
        second = Server("--admin", f"unix:{path}")
        try:
            assert second.wait() == 2
            assert "another process serves it" in second.stderr()
        finally:
            second.close()
        assert server.run("status").returncode == 0

    def test_has_admin_and_nothing_else_and_the_clients_port_has_no_admin(self, start):
        server = start()
        from berth.v1 import inference_pb2_grpc

        on_admin = inference_pb2_grpc.InferenceStub(grpc.insecure_channel(server.info["admin"]))
        assert refused(on_admin.Generate, greedy("x"), timeout=PATIENCE_S).code == grpc.StatusCode.UNIMPLEMENTED
        on_grpc = admin_pb2_grpc.AdminStub(server.channel)
        assert refused(on_grpc.GetStatus, admin_pb2.GetStatusRequest(), timeout=PATIENCE_S).code == grpc.StatusCode.UNIMPLEMENTED


class TestOverTcp:
    def test_a_key_marked_admin_opens_and_nothing_else_does(self, start, policy, tmp_path):
        digests = {name: hashlib.sha256(f"the-key-of-{name}".encode()).hexdigest() for name in ("root", "user")}
        policy.write(more="tenants: {acme: {api_key_sha256: [{id: root, sha256: %(root)s, admin: true}, {id: user, sha256: %(user)s}]}}\n" % digests)
        server = start("--admin", "127.0.0.1:0")
        assert server.info["admin"].startswith("127.0.0.1:")
        key = tmp_path / "key"
        for name, code in (("root", 0), ("user", 1), ("nobody", 1)):
            key.write_text(f"the-key-of-{name}\n")
            done = server.run("status", "--api-key-file", str(key))
            assert done.returncode == code, (name, done.stderr)
            assert ("(ADMIN_REQUIRED)" in done.stderr) == (code == 1)
        refusal = refused(admin_of(server).Drain, admin_pb2.DrainRequest(), timeout=PATIENCE_S)
        assert (refusal.code, refusal.reason) == (grpc.StatusCode.PERMISSION_DENIED, "ADMIN_REQUIRED")


class TestStatus:
    def test_is_a_table_of_the_classes(self, start):
        server = start()
        done = server.run("status")
        assert (done.returncode, done.stderr) == (0, "")
        lines = done.stdout.splitlines()
        assert lines[0] == "SERVING"
        assert any("blocks of 16 tokens" in line for line in lines)
        rows = {line.split()[0]: line.split() for line in lines if line.strip()}
        assert rows["class"][1:3] == ["prio", "stop"]
        assert rows["fast"][1] == "10"
        assert rows["slow"][1] == "0"

    def test_is_one_object_for_scripts(self, start, policy):
        server = start()
        assert server.generate(short_answer("fast")).choices
        status = json.loads(server.run("status", "--json").stdout)
        assert status["state"] == "serving"
        assert status["policy_sha256"] == hashlib.sha256(policy.path.read_bytes()).hexdigest()
        assert status["free_blocks"] + status["cached_blocks"] + status["held_blocks"] == server.info["kv_blocks"]
        assert [c["name"] for c in status["classes"]] == ["fast", "slow"]
        promise = {"slo": "ttft", "met": 1, "missed": 0, "objective": 0.99, "threshold": 10.0}
        assert status["classes"][0]["slos"][0] == promise

    def test_shows_who_waits(self, start):
        server = start()
        calls = load(server, 50)
        wait_until(lambda: json.loads(server.run("status", "--json").stdout)["queued_requests"] > 0, "nobody waits")
        for call in calls:
            call.cancel()

    def test_watch_goes_on_until_the_server_ends(self, start):
        server = start()
        command = [os.environ["BERTH_BINARY"], "status", "--watch", "--interval", "0.1", "--admin", server.info["admin"]]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as watch:
            seen = 0
            for line in watch.stdout:
                seen += line.startswith("SERVING")
                if seen == 3:
                    server.process.send_signal(signal.SIGTERM)
                    break
            out, err = watch.communicate(timeout=PATIENCE_S)
            assert watch.returncode == 1
            assert err.startswith("berth status: ")
            assert "has ended" in err
        assert server.wait() == 0

    def test_a_signal_ends_watch_and_is_no_fault(self, start):
        server = start()
        command = [os.environ["BERTH_BINARY"], "status", "--watch", "--interval", "0.1", "--admin", server.info["admin"]]
        for number in (signal.SIGINT, signal.SIGTERM):
            with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as watch:
                assert watch.stdout.readline() == "SERVING\n"
                watch.send_signal(number)
                _, err = watch.communicate(timeout=PATIENCE_S)
            assert (watch.returncode, err) == (0, "")

    def test_watch_stays_within_a_small_terminal(self, start):
        server = start()
        rows, columns = 24, 80
        screen, terminal = pty.openpty()
        fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        command = [os.environ["BERTH_BINARY"], "status", "--watch", "--interval", "0.1", "--admin", server.info["admin"]]
        with subprocess.Popen(command, stdout=terminal, env={**os.environ, "TERM": "xterm"}) as watch:
            os.close(terminal)
            seen = b""
            while seen.count(b"\x1b[H") < 3:
                seen += os.read(screen, 65536)
            watch.send_signal(signal.SIGINT)
            assert watch.wait(PATIENCE_S) == 0
        os.close(screen)
        shown = seen.split(b"\x1b[H\x1b[J")[1].decode().split("\r\n")
        assert sum(max(1, -(-len(line) // columns)) for line in shown) <= rows
        table = shown[next(i for i, line in enumerate(shown) if line.startswith("  class ")):]
        assert max(len(line) for line in table) <= columns
        assert "slo" in table[-4], "the last column is there"

    def test_of_no_server_is_one_line(self):
        done = subprocess.run([os.environ["BERTH_BINARY"], "status", "--admin", "unix:/nonexistent/a.sock"],
                              capture_output=True, text=True, timeout=PATIENCE_S, check=False)
        assert done.returncode == 1
        assert done.stderr.startswith("berth status: nothing listens at unix:/nonexistent/a.sock")
        assert done.stderr.count("\n") == 1


class TestRequests:
    def test_are_listed_in_the_order_of_arrival(self, start):
        server = start()
        assert server.run("requests").stdout == "no requests\n"
        calls = load(server, 60)
        wait_until(lambda: json.loads(server.run("requests", "--json").stdout)["left_out"] == 0 and
                   len(json.loads(server.run("requests", "--json").stdout)["requests"]) > 5, "nobody is there")
        listed = json.loads(server.run("requests", "--json", "--max", "3").stdout)
        assert len(listed["requests"]) == 3
        assert listed["left_out"] > 0
        first, second = listed["requests"][:2]
        assert (first["service_class"], first["tenant"]) == ("slow", "default")
        assert first["state"] in ("prefill", "decode", "queued")
        everybody = json.loads(server.run("requests", "--json", "--max", "1000").stdout)["requests"]
        assert "queued" in {r["state"] for r in everybody}
        assert first["age"] >= second["age"]
        assert "request" in server.run("requests").stdout.splitlines()[0]
        assert json.loads(server.run("requests", "--json", "--class", "fast").stdout)["requests"] == []
        for call in calls:
            call.cancel()

    def test_one_is_ended_by_its_name(self, start):
        server = start()
        calls = load(server, 300)
        victim = calls[-1]
        listed = lambda: [r["request_id"] for r in json.loads(server.run("requests", "--json", "--max", "1000").stdout)["requests"]]
        wait_until(lambda: "load-299" in listed(), "the last one has not come")
        done = server.run("cancel", "load-299")
        assert done.returncode == 0, done.stderr
        assert outcome(victim) == "ABORTED CANCELLED_BY_OPERATOR"
        again = server.run("cancel", "load-299")
        assert again.returncode == 1
        assert again.stderr.startswith("berth cancel: no request 'load-299' of the default tenant lives")
        assert server.run("cancel", "load-298", "--tenant", "nobody").returncode == 1
        for call in calls:
            call.cancel()


def stopped_classes(server: Server) -> set[str]:
    with urllib.request.urlopen(f"http://{server.info['ops']}/metrics", timeout=PATIENCE_S) as page:
        text = page.read().decode()
    return set(re.findall(r'^berth_class_stopped\{.*class="(\w+)".*\} 1$', text, re.MULTILINE)) - {"other"}


class TestDrainingAClass:
    def test_refuses_its_newcomers_until_the_next_reload(self, start):
        server = start()
        assert health_of(server, "berth.class.fast") == "SERVING"
        done = server.run("drain", "--class", "fast")
        assert done.returncode == 0, done.stderr
        wait_until(lambda: health_of(server, "berth.class.fast") == "NOT_SERVING", "health does not tell")
        refusal = refused(server.generate, short_answer("fast"))
        assert (refusal.code, refusal.reason) == (grpc.StatusCode.UNAVAILABLE, "CLASS_ON_HOLD")
        assert health_of(server, "") == "SERVING"
        assert health_of(server, "berth.class.slow") == "SERVING"
        assert server.generate(short_answer()).choices
        assert json.loads(server.run("status", "--json").stdout)["classes"][0]["stop"] == "drain"
        assert stopped_classes(server) == {"fast"}, "rules and alerts leave out what is stopped on purpose"

        assert server.run("reload").returncode == 0
        assert stopped_classes(server) == set()
        wait_until(lambda: health_of(server, "berth.class.fast") == "SERVING", "a reload does not bring it back")
        assert server.generate(short_answer("fast")).choices

    def test_of_an_empty_name_does_not_end_the_server(self, start):
        server = start()
        done = server.run("drain", "--class", "")
        assert done.returncode == 2
        assert "the name of a class" in done.stderr
        assert health_of(server, "") == "SERVING"

    def test_of_an_unknown_name_is_refused(self, start):
        done = start().run("drain", "--class", "nobody")
        assert done.returncode == 1
        assert "there is no class 'nobody'" in done.stderr


class TestReload:
    def test_dry_run_tells_and_changes_nothing(self, start, policy):
        server = start()
        before = json.loads(server.run("status", "--json").stdout)
        sha256 = policy.write(borrow="10%")
        done = server.run("reload", "--dry-run")
        assert done.returncode == 0, done.stderr
        assert done.stdout == ("classes.slow.kv_borrowing_limit: 80% -> 10%\n1 key would change\n" f"sha256 {sha256}\n")
        assert json.loads(server.run("status", "--json").stdout)["classes"] == before["classes"]

    def test_puts_the_file_in_force_whole(self, start, policy):
        server = start()
        sha256 = policy.write(borrow="10%")
        assert server.run("reload", "--expect", "0" * 64).returncode == 2
        for no_sum in ("", sha256[:63], sha256 + "0", "z" * 64):
            done = server.run("reload", "--expect", no_sum)
            assert done.returncode == 2, "no bound at all"
            assert "64 hexadecimal digits" in done.stderr
        done = server.run("reload", "--expect", sha256)
        assert done.returncode == 0, done.stderr
        assert "1 key changed" in done.stdout
        status = json.loads(server.run("status", "--json").stdout)
        assert status["policy_sha256"] == sha256
        assert status["classes"][1]["ceiling_blocks"] < server.info["kv_blocks"] // 2
        assert server.run("reload").stdout.startswith("nothing changed\n")

    def test_of_a_bad_file_says_why_and_changes_nothing(self, start, policy):
        server = start()
        before = json.loads(server.run("status", "--json").stdout)["policy_sha256"]
        policy.write(more="shceduler: {}\n")
        done = server.run("reload")
        assert done.returncode == 2
        assert 'error: unknown key "shceduler"' in done.stderr
        assert "the running policy stays in force" in done.stderr.splitlines()[-1]
        assert done.stdout == ""
        assert json.loads(server.run("status", "--json").stdout)["policy_sha256"] == before

    def test_without_a_policy_file_is_refused(self):
        server = Server()
        try:
            done = server.run("reload")
            assert done.returncode == 1
            assert "--config FILE" in done.stderr
        finally:
            server.close()

    def test_classes_come_to_health_and_go_from_it(self, start, policy):
        server = start()
        assert health_of(server, "berth.class.new") == "NOT_FOUND"
        stub = health_pb2_grpc.HealthStub(server.channel)
        watch = stub.Watch(health_pb2.HealthCheckRequest(service="berth.class.new"), timeout=PATIENCE_S)
        assert next(watch).status == health_pb2.HealthCheckResponse.SERVICE_UNKNOWN
        text = policy.path.read_text()
        policy.path.write_text(text.replace("  slow:", "  new: {kv_borrowing_limit: 10%}\n  slow:"))
        assert server.run("reload").returncode == 0
        assert next(watch).status == health_pb2.HealthCheckResponse.SERVING
        policy.path.write_text(text)
        assert server.run("reload").returncode == 0
        assert next(watch).status == health_pb2.HealthCheckResponse.SERVICE_UNKNOWN
        assert health_of(server, "berth.class.new") == "NOT_FOUND"


class TestCheckAgainst:
    def check(self, server, path, *flags):
        command = [os.environ["BERTH_BINARY"], "check", str(path), "--against", server.info["admin"], *flags]
        return subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False)

    def test_tells_what_a_file_of_ones_own_would_change(self, start, policy, tmp_path):
        server = start()
        mine = tmp_path / "mine.yaml"
        mine.write_text(policy.path.read_text().replace("drain_timeout: 60s", "drain_timeout: 30s"))
        done = self.check(server, mine)
        assert done.returncode == 0, done.stderr
        assert done.stdout.startswith("server.drain_timeout: 1m -> 30s\n1 key would change\n"), done.stdout
        assert self.check(server, policy.path).stdout.startswith("nothing would change\n")

    def test_names_what_is_wrong_by_the_files_own_name(self, start, tmp_path):
        server = start()
        mine = tmp_path / "mine.yaml"
        mine.write_text("version: 1\nshceduler: {}\n")
        done = self.check(server, mine)
        assert done.returncode == 2
        assert done.stderr.startswith(f'{mine}:2:1: error: unknown key "shceduler"'), done.stderr

    def test_a_key_that_takes_a_restart_is_told(self, start, policy, tmp_path):
        server = start()
        mine = tmp_path / "mine.yaml"
        mine.write_text(policy.path.read_text().replace("max_running_sequences: 4", "max_running_sequences: 4, max_batched_tokens: 4096"))
        done = self.check(server, mine)
        assert done.returncode == 2
        assert "max_batched_tokens" in done.stderr
        assert "restart" in done.stderr


class TestUsage:
    def test_is_a_table_by_tenant_and_class(self, start):
        server = start()
        server.generate(short_answer())
        server.generate(short_answer("fast"))
        done = server.run("usage", "--since", "1h")
        assert done.returncode == 0, done.stderr
        lines = done.stdout.splitlines()
        assert lines[0].startswith("# requests that ended since ")
        assert lines[1] == "# what ended before that is not kept"
        assert lines[2].startswith("tenant,class,requests,prompt_tokens,cached_tokens,output_tokens,kv_block_seconds")
        rows = {tuple(line.split(",")[:2]): line.split(",") for line in lines[3:]}
        assert rows["default", "slow"][2] == "1"
        assert rows["default", "slow"][5] == "2"
        assert rows["default", "fast"][2] == "1"
        assert float(rows["default", "slow"][6]) > 0

    def test_times_that_are_none_are_refused(self, start):
        server = start()
        assert server.run("usage", "--since", "2026-02-30").returncode == 2, "no such day"
        done = server.run("usage", "--since", "yesterday")
        assert done.returncode == 2
        assert "--since" in done.stderr


class TestHealth:
    def test_every_service_of_a_well_server_serves_and_no_other_is_known(self, start):
        server = start()
        for name in ("", "readiness", "liveness", "berth.v1.Inference", "berth.class.fast", "berth.class.slow"):
            assert health_of(server, name) == "SERVING", name
        for name in ("berth.class.nobody", "berth.v1.Admin", "x"):
            assert health_of(server, name) == "NOT_FOUND", name

    def test_a_full_server_serves(self, start):
        server = start()
        calls = load(server, 200)
        wait_until(lambda: json.loads(server.run("status", "--json").stdout)["queued_requests"] > 10, "nobody waits")
        for name in ("", "berth.class.slow", "berth.class.fast", "liveness"):
            assert health_of(server, name) == "SERVING", name
        for call in calls:
            call.cancel()


class TestTheEnd:
    def test_sighup_while_the_model_loads_is_kept_and_ends_nothing(self, start):
        def hang_up(process):
            # From then on the server, and not the system, decides what a signal does.
            wait_until(lambda: blocked_signals(process.pid) & 1 << (signal.SIGHUP - 1), "signals are not watched")
            process.send_signal(signal.SIGHUP)

        server = start(early=hang_up)
        wait_until(lambda: "policy reloaded" in server.stderr(), "the hangup was lost")
        assert server.terminate() == 0, server.stderr()

    def test_sighup_while_it_drains_reads_the_file_and_ends_nothing(self, start, policy):
        policy.write(delay="3s", timeout="60s")
        server = start()
        server.process.send_signal(signal.SIGTERM)
        wait_until(lambda: "draining" in server.stderr(), "it does not drain")
        policy.write(delay="3s", timeout="50s")
        for _ in range(2):
            server.process.send_signal(signal.SIGHUP)
        assert server.wait() == 0, server.stderr()
        assert "server.drain_timeout: 60s -> 50s" in server.stderr() or "1m -> 50s" in server.stderr()

    @pytest.mark.parametrize("how", ["SIGTERM", "berth drain"])
    def test_health_goes_first_newcomers_are_taken_for_the_delay_and_then_refused(self, start, policy, how):
        policy.write(delay="2s")
        server = start()
        stub = health_pb2_grpc.HealthStub(server.channel)
        watch = stub.Watch(health_pb2.HealthCheckRequest(service="readiness"), timeout=PATIENCE_S)
        assert next(watch).status == health_pb2.HealthCheckResponse.SERVING
        begin = time.monotonic()
        if how == "SIGTERM":
            server.process.send_signal(signal.SIGTERM)
        else:
            assert server.run("drain").returncode == 0
        assert next(watch).status == health_pb2.HealthCheckResponse.NOT_SERVING
        assert health_of(server, "liveness") == "SERVING"
        assert json.loads(server.run("status", "--json").stdout)["state"] == "draining"
        answer = outcome(server.stub.Generate.future(short_answer(), timeout=PATIENCE_S))
        if time.monotonic() - begin < 1.5:  # a machine in a hurry proves nothing
            assert answer == "OK"
        assert server.wait() == 0, server.stderr()
        assert time.monotonic() - begin >= 2

    def test_under_load_every_call_gets_exactly_one_status(self, start, policy):
        policy.write(timeout="1s")
        server = start()
        early = load(server, 500)
        wait_until(lambda: any(call.done() for call in early), "none has ended")
        server.process.send_signal(signal.SIGTERM)
        late = load(server, 50, "late")
        with concurrent.futures.ThreadPoolExecutor(32) as pool:
            ends = list(pool.map(outcome, early + late))
        assert server.wait() == 0, server.stderr()
        assert len(ends) == 550
        # Whoever called when the port was closed already hears of that from its own side.
        assert set(ends) <= {"OK", "UNAVAILABLE DRAINING", "UNAVAILABLE DRAIN_TIMEOUT", "UNAVAILABLE no ErrorInfo"}, set(ends)
        assert "OK" in ends
        assert "UNAVAILABLE no ErrorInfo" not in ends[:500]

    def test_a_second_signal_exits_at_once(self, start, policy):
        policy.write(delay="1h")
        server = start()
        watch = health_pb2_grpc.HealthStub(server.channel).Watch(
            health_pb2.HealthCheckRequest(service="readiness"), timeout=PATIENCE_S)
        assert next(watch).status == health_pb2.HealthCheckResponse.SERVING
        server.process.send_signal(signal.SIGTERM)
        assert next(watch).status == health_pb2.HealthCheckResponse.NOT_SERVING
        server.process.send_signal(signal.SIGTERM)
        assert server.wait() == 128 + signal.SIGTERM

    def test_drain_times_follow_a_reload(self, start, policy):
        policy.write(delay="1h")
        server = start()
        policy.write(delay="0s")
        assert server.run("reload").returncode == 0
        assert server.terminate() == 0, server.stderr()
