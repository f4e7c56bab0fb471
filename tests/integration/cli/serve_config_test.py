"""berth serve --config: the policy file at start and while the server runs."""

import json
import os
import signal
import tempfile
import unittest
from pathlib import Path

from cli_support import CliTest, berth, stories
from serve_test import server, stop, wait_for_log

POLICY = """version: 1
model: {path: %s, name: tales}
kv_cache: {memory: 1MiB}
compute: {threads: 1}
server: {grpc: "127.0.0.1:0", ops: "127.0.0.1:0", drain_delay: 0s, drain_timeout: 30s}
classes:
  gold: {kv_guarantee: %d%%, default_output_tokens: %d}
  iron: {kv_guarantee: 20%%, kv_borrowing_limit: 80%%, preemptible: true}
default_class: gold
"""


class ServeConfig(CliTest):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.path = Path(folder.name) / "p.yaml"

    def write(self, guarantee=60, output=7, more=""):
        """Replaces the file as an editor does."""
        new = self.path.with_suffix(".new")
        new.write_text(POLICY % (stories(), guarantee, output) + more)
        os.rename(new, self.path)

    def generate(self, address, *args):
        return self.ok_json("client", "generate", "--server", address, "--prompt", "Once", "--temperature", 0, *args)

    def test_the_file_decides_and_flags_override_it(self):
        self.write(more="reload: signal\n")
        with server(stories(), "--config", self.path, "--served-name", "fables", "--kv-memory", "2MiB") as running:
            log = "".join(wait_for_log(running, "listening on"))
            facts = running.facts
            self.assertEqual((facts["model"], facts["threads"], facts["kv_blocks"]), ("fables", 1, 204))
            self.assertRegex(facts["config_sha256"], "^[0-9a-f]{64}$")
            self.assertIn(f"policy {self.path}, sha256 {facts['config_sha256']}", log)
            self.assertIn("class gold: 122 blocks guaranteed", log)
            self.assertEqual(self.generate(facts["grpc"])["usage"]["output_tokens"], 7)

    def test_a_bad_file_is_told_as_check_tells_it_and_nothing_starts(self):
        self.write(more="max_num_seqs: 8\nshceduler: {}\n")
        done = berth("serve", "--config", self.path)
        self.assertEqual(done.returncode, 2)
        told = [json.loads(line) for line in done.stderr.decode().splitlines()]
        self.assertEqual({entry["level"] for entry in told}, {"error"})
        done = berth("serve", "--config", self.path, "--log-format", "text")
        self.assertEqual(done.returncode, 2)
        lines = done.stderr.decode().splitlines()
        self.assertEqual([entry["msg"] for entry in told], lines)
        self.assertEqual(len(lines), 3, lines)
        self.assertTrue(lines[0].startswith(f"{self.path}:10:1: error: unknown key \"max_num_seqs\""), lines[0])
        self.assertEqual(lines[2], f"berth serve: {self.path}: 2 errors")
        self.assertFalse(done.stdout)

    def test_what_the_pool_cannot_keep_is_told_with_its_place(self):
        self.write(guarantee=90)
        done = berth("serve", "--config", self.path)
        self.assertEqual(done.returncode, 2)
        self.assertIn(f"{self.path}:6:1: error: classes: the kv_guarantee of all classes add up to 111 blocks", done.stderr.decode())

    def test_a_changed_file_is_taken_in_while_the_server_runs(self):
        self.write(output=7)
        with server(stories(), "--config", self.path) as running:
            wait_for_log(running, "listening on")
            self.assertEqual(self.generate(running.facts["grpc"])["usage"]["output_tokens"], 7)
            self.write(output=3)
            log = "".join(wait_for_log(running, "policy change"))
            self.assertIn("policy reloaded: 1 changes", log)
            self.assertIn("classes.gold.default_output_tokens: 7 -> 3", log)
            self.assertEqual(self.generate(running.facts["grpc"])["usage"]["output_tokens"], 3)

            self.write(output=5, more="kv_cache: {block_tokens: 32}\n")  # a key that is there twice
            wait_for_log(running, "policy not reloaded")
            self.assertEqual(self.generate(running.facts["grpc"])["usage"]["output_tokens"], 3)
            code, _ = stop(running)
            self.assertEqual(code, 0)

    def test_a_key_that_takes_a_restart_is_refused_by_name(self):
        self.write()
        with server(stories(), "--config", self.path) as running:
            wait_for_log(running, "listening on")
            text = self.path.read_text().replace("threads: 1", "threads: 2").replace("default_output_tokens: 7", "default_output_tokens: 3")
            self.path.write_text(text)
            log = "".join(wait_for_log(running, "policy not reloaded"))
            self.assertIn("compute.threads: changed from 1 to 2, which takes a restart", log)
            self.assertEqual(self.generate(running.facts["grpc"])["usage"]["output_tokens"], 7)

    def test_hangup_reloads_and_leaves_the_server_running(self):
        self.write(output=7, more="reload: signal\n")
        with server(stories(), "--config", self.path) as running:
            wait_for_log(running, "listening on")
            self.write(output=4, more="reload: signal\n")
            self.assertEqual(self.generate(running.facts["grpc"])["usage"]["output_tokens"], 7)
            running.send_signal(signal.SIGHUP)
            wait_for_log(running, "default_output_tokens: 7 -> 4")
            self.assertEqual(self.generate(running.facts["grpc"])["usage"]["output_tokens"], 4)
            running.send_signal(signal.SIGHUP)
            self.assertIn("0 changes", "".join(wait_for_log(running, "policy reloaded")))
            code, _ = stop(running)
            self.assertEqual(code, 0)

    def test_a_class_may_come_and_go(self):
        self.write()
        with server(stories(), "--config", self.path) as running:
            wait_for_log(running, "listening on")
            text = self.path.read_text()
            self.path.write_text(text.replace("  iron:", "  zinc:"))
            wait_for_log(running, "classes.iron: removed")
            self.assertEqual(self.generate(running.facts["grpc"])["usage"]["output_tokens"], 7)
            code, _ = stop(running)
            self.assertEqual(code, 0)


if __name__ == "__main__":
    unittest.main()
