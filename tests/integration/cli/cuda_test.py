"""The commands that run a model, on an (emulated) CUDA device."""

import tempfile
import unittest
from pathlib import Path

from cli_support import CliTest, berth, stories
from generate_test import greedy_texts


class OnTheDevice(CliTest):
    def test_it_is_listed_and_taken(self):
        facts = self.ok_json("devices", "--model", stories())
        self.assertEqual([device["id"] for device in facts["devices"]], ["cpu", "cuda:0"])
        self.assertEqual(facts["chosen"], "cuda:0")
        device = facts["devices"][1]
        fit = device["fit"]
        self.assertGreater(fit["weight_bytes"], 2 * 260_000)
        self.assertGreater(fit["workspace_bytes"], 0)
        # auto: 90% of the device, less what weights and workspace take.
        block_bytes = fit["kv_bytes"] // fit["kv_blocks"]
        rest = device["total_bytes"] * 9 // 10 - fit["weight_bytes"] - fit["workspace_bytes"]
        self.assertLess(abs(fit["kv_bytes"] - rest), block_bytes + 100)
        self.assertIn("cuda:0", self.ok("devices"))

    def test_more_than_fits_is_refused_with_what_is_free(self):
        total = self.ok_json("devices")["devices"][1]["total_bytes"]
        result = berth("generate", "--model", stories(), "--prompt", "a", "--kv-memory", f"{total // 2**20 + 1}MiB")
        self.assertEqual(result.returncode, 1)
        self.assertIn(b"are free on the device beside weights and workspace", result.stderr)

    def test_the_cpu_can_be_asked_for(self):
        self.assertEqual(self.ok_json("devices", "--backend", "cpu")["chosen"], "cpu")
        self.assertEqual(self.ok_json("devices", "--compute", "float32")["chosen"], "cpu")

    def test_a_device_that_is_not_there_is_named(self):
        result = berth("generate", "--model", stories(), "--prompt", "a", "--device", "1")
        self.assertEqual(result.returncode, 2)
        self.assertIn(b"there is no CUDA device 1", result.stderr)

    def test_a_batch_does_not_go_on_where_the_cpu_left_off(self):
        with tempfile.TemporaryDirectory() as folder:
            requests, answers = Path(folder) / "requests.jsonl", Path(folder) / "answers.jsonl"
            requests.write_text('{"prompt": "Once"}\n', encoding="utf-8")
            command = ("batch", requests, "-o", answers, "--model", stories(), "--max-tokens", 2, "--kv-memory", "1MiB")
            self.assertEqual(berth(*command, "--backend", "cpu").returncode, 0)
            self.assertEqual(berth(*command, "--backend", "cpu").returncode, 0)
            before = answers.read_bytes()
            self.assertEqual(berth(*command).returncode, 2)
            self.assertEqual(answers.read_bytes(), before)

    def test_it_writes_the_references_text(self):
        # Not the fourth: one of its tokens is decided by less than bfloat16 can tell (bench/gpu-check has the margins).
        for prompt, want in greedy_texts()[:3]:
            with self.subTest(prompt=prompt):
                prompt_tokens = len(self.ok("tokenize", "--model", stories(), "--add-bos", "--text", prompt).split())
                got = self.ok("generate", "--model", stories(), "--prompt", prompt, "--echo", "--max-context", 129,
                              "--max-tokens", 129 - prompt_tokens, "--kv-memory", "1MiB")
                self.assertEqual(got, want + "\n")


if __name__ == "__main__":
    unittest.main()
