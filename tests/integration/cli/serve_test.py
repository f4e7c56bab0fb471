"""berth serve and berth client generate: start-up, requests, refusals, draining."""

import contextlib
import json
import resource
import signal
import socket
import tempfile
import unittest

from cli_support import CliTest, berth, smollm2, start, stories


@contextlib.contextmanager
def server(model, *args):
    """A server that listens; killed at the end if it still runs. Its standard error is a pipe: a line a request."""
    folder = tempfile.TemporaryDirectory()
    running = start("serve", "--model", model, "--grpc", "127.0.0.1:0", "--ops", "127.0.0.1:0", "--admin",
                    f"unix:{folder.name}/a.sock", "--drain-delay", 0, "--json", *args)
    try:
        line = running.stdout.readline()
        if not line:
            raise AssertionError(running.stderr.read().decode())
        running.facts = json.loads(line)
        yield running
    finally:
        if running.poll() is None:
            running.kill()
        running.wait()
        running.stdout.close()
        running.stderr.close()
        folder.cleanup()


def wait_for_log(running, part):
    """The lines of the log up to the one that has `part`."""
    lines = []
    for line in running.stderr:
        lines.append(line.decode())
        if part in lines[-1]:
            return lines
    raise AssertionError(f"the log ended without {part!r}: {lines}")


def stop(running):
    """Ends it with SIGTERM: exit code and the rest of the log."""
    running.send_signal(signal.SIGTERM)
    _, log = running.communicate(timeout=60)
    return running.returncode, log.decode()


class StartUp(CliTest):
    def test_connections_may_take_all_the_files_the_machine_allows(self):
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 200), hard))  # what the server inherits
        try:
            with server(stories(), "--kv-memory", "1MiB") as running:
                self.assertEqual(resource.prlimit(running.pid, resource.RLIMIT_NOFILE), (hard, hard))
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))

    def test_decisions_are_told_to_people_and_machines(self):
        with server(stories(), "--kv-memory", "1MiB", "--threads", 1, "--served-name", "tales") as running:
            facts = running.facts
            log = "".join(wait_for_log(running, "listening on"))
            code, rest = stop(running)
        # 2 · 5 layers · 4 heads · 8 · 2 bytes = 640 bytes a token, 10 KiB a block.
        self.assertEqual(facts["kv_blocks"], 102)
        self.assertEqual(facts["kv_bytes"], 102 * 10240)
        self.assertEqual((facts["model"], facts["block_tokens"], facts["kv_dtype"], facts["threads"], facts["max_context_tokens"]),
                         ("tales", 16, "bf16", 1, 128))
        for part in ("tales", "parameters", "backend", "102 blocks of 16 tokens", "128 tokens", "listening on " + facts["grpc"]):
            self.assertIn(part, log)
        self.assertEqual(code, 0)
        self.assertIn("draining", rest)
        self.assertEqual(json.loads(rest.splitlines()[-1])["msg"], "stopped")

    def test_a_pool_below_one_context_is_warned_of(self):
        with server(stories(), "--kv-memory", "30KiB") as running:
            self.assertIn("--kv-memory", "".join(wait_for_log(running, "listening on")))
            self.assertEqual(running.facts["kv_blocks"], 3)

    def test_an_interrupt_drains_too(self):
        with server(stories()) as running:
            running.send_signal(signal.SIGINT)
            self.assertEqual(running.wait(timeout=60), 0)

    def test_a_port_in_use_and_a_bad_address_are_one_line(self):
        model = stories()
        free = "127.0.0.1:0"
        with socket.create_server(("127.0.0.1", 0)) as taken:
            address = f"127.0.0.1:{taken.getsockname()[1]}"
            for log_format in ("json", "text"):
                command = ("serve", "--model", model, "--log-format", log_format)
                self.fails(berth(*command, "--grpc", address, "--ops", free), 2, "berth serve", address)
                self.fails(berth(*command, "--grpc", free, "--ops", address), 2, "berth serve", "server.ops", address)
        for address in ("nowhere", "127.0.0.1:65536", "127.0.0.1:x", "no.such.host.invalid:1", ""):
            with self.subTest(address=address):
                self.fails(berth("serve", "--model", model, "--grpc", address, "--ops", free), 2, "berth serve")


class Client(CliTest):
    def test_the_server_says_what_this_process_would(self):
        model = stories()
        prompt = ("--prompt", "Once upon a time", "--max-tokens", 20, "--logprobs", 1)
        with server(model) as running:
            remote = self.ok_json("client", "generate", "--server", running.facts["grpc"], *prompt)
            text = self.ok("client", "generate", "--server", running.facts["grpc"], *prompt)
        local = self.ok_json("generate", "--model", model, *prompt)
        for key in ("output_ids", "text", "finish_reason", "stop_match"):
            self.assertEqual(remote[key], local[key])
        self.assertEqual([token["logprob"] for token in remote["logprobs"]], [token["logprob"] for token in local["logprobs"]])
        self.assertEqual(remote["usage"]["reserved_blocks"], local["usage"]["reserved_blocks"])
        self.assertEqual(text, local["text"] + "\n")

    def test_classes_and_choices_are_for_the_asking(self):
        with server(stories()) as running:
            client = ("client", "generate", "--server", running.facts["grpc"], "--prompt", "a", "--max-tokens", 4)
            answer = self.ok_json(*client, "-n", 2, "--class", "batch")
            self.assertEqual(len(answer["choices"]), 2)
            self.assertIn("--- 2 ---", self.ok(*client, "-n", 2))
            self.fails(berth(*client, "--class", "first"), 1, "berth client generate", "UNKNOWN_CLASS", "interactive, batch")

    def test_refusals_are_one_line_and_exit_code_1(self):
        with server(stories()) as running:
            client = ("client", "generate", "--server", running.facts["grpc"])
            name = "berth client generate"
            self.fails(berth(*client, "--prompt", "a", "--max-tokens", 1000), 1, name, "REQUEST_TOO_LARGE", "--max-tokens")
            self.fails(berth(*client, "--prompt", "a", "--model", "other"), 1, name, "MODEL_NOT_FOUND")
            self.fails(berth(*client, "--prompt", "a", "--stop-token-id", 512), 1, name, "INVALID_REQUEST")
            self.assertEqual(stop(running)[0], 0)

    def test_a_timeout_ends_the_call(self):
        with server(smollm2()) as running:
            done = berth("client", "generate", "--server", running.facts["grpc"], "--prompt", "a", "--ignore-eos",
                         "--max-tokens", 1000, "--timeout", 1)
        self.assertEqual(done.returncode, 1)
        self.assertIn("--timeout", done.stderr.decode())

    def test_an_interrupt_keeps_the_text_and_frees_the_server(self):
        with server(smollm2()) as running:
            address = running.facts["grpc"]
            with start("client", "generate", "--server", address, "--prompt", "a", "--ignore-eos", "--max-tokens", 1000) as client:
                client.stdout.read(1)
                client.send_signal(signal.SIGINT)
                rest, error = client.communicate(timeout=60)
            self.assertEqual((client.returncode, error.decode()), (130, "cancelled\n"))
            self.assertTrue(rest.endswith(b"\n"))
            # Its blocks are back, or will be in a moment: there is room for both anyway.
            self.ok("client", "generate", "--server", address, "--prompt", "a", "--max-tokens", 1)


class Drain(CliTest):
    def test_what_runs_is_finished_before_the_server_goes(self):
        with server(smollm2()) as running:
            with start("client", "generate", "--server", running.facts["grpc"], "--prompt", "a", "--ignore-eos",
                       "--max-tokens", 24) as client:
                client.stdout.read(1)
                code, log = stop(running)
                client.stdout.read()
                figures = client.stderr.read().decode()
            self.assertEqual(client.returncode, 0, figures)
            self.assertIn("24 output tokens (length)", figures)
        self.assertEqual(code, 0, log)

    def test_a_second_signal_does_not_wait(self):
        with server(smollm2()) as running:
            with start("client", "generate", "--server", running.facts["grpc"], "--prompt", "a", "--ignore-eos",
                       "--max-tokens", 1000) as client:
                client.stdout.read(1)
                running.send_signal(signal.SIGTERM)
                wait_for_log(running, "draining")
                running.send_signal(signal.SIGTERM)
                self.assertEqual(running.wait(timeout=60), 128 + signal.SIGTERM)
                client.stdout.read()
                client.stderr.read()
            self.assertEqual(client.returncode, 1)


if __name__ == "__main__":
    unittest.main(verbosity=2)
