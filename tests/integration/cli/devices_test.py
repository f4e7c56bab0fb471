"""berth devices."""

import unittest

from cli_support import CliTest, berth, stories


class Devices(CliTest):
    def test_the_cpu_is_a_device_and_taken_where_there_is_no_other(self):
        facts = self.ok_json("devices")
        self.assertEqual(facts["devices"][0]["id"], "cpu")
        self.assertGreater(facts["devices"][0]["free_bytes"], 0)
        if len(facts["devices"]) == 1:
            self.assertEqual(facts["chosen"], "cpu")
        self.assertEqual(self.ok_json("devices", "--backend", "cpu")["chosen"], "cpu")

    def test_with_a_model_it_counts_what_fits(self):
        fit = self.ok_json("devices", "--model", stories(), "--kv-memory", "1MiB", "--backend", "cpu")["devices"][0]["fit"]
        # 2 · 5 layers · 4 heads of 8 · 2 bytes = 640 bytes a token.
        self.assertEqual(fit["kv_blocks"], 2**20 // (640 * 16))
        self.assertEqual(fit["full_contexts"], fit["kv_blocks"] * 16 // self.ok_json("inspect", stories())["context_tokens"])
        text = self.ok("devices", "--model", stories(), "--kv-memory", "1MiB")
        self.assertIn("FULL CONTEXTS", text)
        self.assertRegex(text, r"'berth serve' with these flags takes \w+")

    def test_what_does_not_fit_says_why(self):
        text = self.ok("devices", "--model", stories(), "--kv-memory", "1KiB", "--backend", "cpu")
        self.assertIn("less than one KV block", text)

    def test_a_device_that_is_not_there_cannot_be_served_from(self):
        if len(self.ok_json("devices")["devices"]) > 1:
            self.skipTest("there is a CUDA device")
        for command in (["generate", "--prompt", "a"], ["score", "--text", "a"]):
            result = berth(*command, "--model", stories(), "--backend", "cuda")
            self.assertEqual(result.returncode, 2)
            self.assertEqual(len(result.stderr.splitlines()), 1, result.stderr)
            self.assertIn(b"--backend cpu", result.stderr)


if __name__ == "__main__":
    unittest.main()
