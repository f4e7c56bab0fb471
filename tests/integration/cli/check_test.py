"""berth check: what a policy file says, what is wrong with it, what it comes to."""

import json
import re
import tempfile
import unittest
from pathlib import Path

from cli_support import CliTest, berth, smollm2, stories

CONFIGS = Path(__file__).resolve().parents[3] / "configs"
SHIPPED = CONFIGS / "berth.yaml"


class Check(CliTest):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)

    def write(self, text):
        path = Path(self.folder.name) / "p.yaml"
        path.write_text("version: 1\n" + text)
        return path

    def rows(self, text, first_column):
        """The table that begins with this header, as {class: [cells]}."""
        lines = text[text.index(f"  {first_column} "):].split("\n")
        rows = {}
        for line in lines[1:]:
            cells = re.split(r"  +", line.strip())
            if len(cells) < 2:
                break
            rows[cells[0]] = cells[1:]
        return rows

    def test_the_shipped_file_is_clean_and_its_tables_add_up(self):
        text = self.ok("check", SHIPPED, "--strict")
        self.assertTrue(text.startswith(f"{SHIPPED}: no errors, no warnings\n"), text)
        self.assertIn("10,000 blocks of 16 tokens = 160,000 tokens (--blocks", text)
        blocks = self.rows(text, "KV blocks")
        self.assertEqual(blocks["interactive"], ["6,000 (60.0%)", "0", "6,000 (60.0%)", "all", "6,000 (60.0%)"])
        self.assertEqual(blocks["batch"],
                         ["2,000 (20.0%)", "8,000 (80.0%) = 400% of its own", "10,000 (100.0%)", "all", "10,000 (100.0%)"])
        requests = self.rows(text, "requests")
        self.assertEqual(requests["interactive"],
                         ["38 to 52", "768 tokens, 48 blocks", "38 to 52", "4,096 tokens, 256 blocks", "23", "sequence slots"])
        self.assertEqual(requests["batch"], ["12 to 64", "768 tokens, 48 blocks", "12 to 64", "-", "-", "sequence slots"])
        self.assertEqual(self.rows(text, "tenant")["default"], ["1", "interactive, batch", "none", "none", "none", "0"])

    def test_json_says_the_same(self):
        found = self.ok_json("check", SHIPPED, "--blocks", "1000", "--typical-prompt", "100")
        self.assertEqual((found["ok"], found["findings"]), (True, []))
        self.assertEqual(found["pool"], {"blocks": 1000, "block_tokens": 16})
        interactive, batch = found["classes"]
        self.assertEqual((interactive["guaranteed_blocks"], interactive["ceiling_blocks"]), (600, 600))
        self.assertEqual((batch["guaranteed_blocks"], batch["ceiling_blocks"], batch["reach_blocks"]), (200, 1000, 1000))
        self.assertEqual(interactive["typical"], {"tokens": 356, "blocks": 23, "always": 26, "at_most": 26})
        self.assertEqual(interactive["first_limit"], "kv_guarantee")
        self.assertEqual(batch["first_limit"], "kv_borrowing_limit")
        self.assertIsNone(batch["longest"])
        self.assertRegex(found["sha256"], "^[0-9a-f]{64}$")

    def test_errors_are_lines_with_their_place_and_exit_code_2(self):
        path = self.write("max_num_seqs: 8\nclasses: {interactive: {kv_guarantee: 120%}}\n")
        done = berth("check", path)
        self.assertEqual(done.returncode, 2)
        self.assertEqual(done.stdout, b"")
        self.assertEqual(done.stderr.decode().split("\n"), [
            f'{path}:2:1: error: unknown key "max_num_seqs"; that is vLLM\'s name, did you mean '
            "scheduler.max_running_sequences?",
            f'{path}:3:25: error: classes.interactive.kv_guarantee: "120%" is more than all of it; at most 100%',
            f"berth check: {path}: 2 errors", ""])
        done = berth("check", path, "--json")
        self.assertEqual(done.returncode, 2)
        found = json.loads(done.stdout)
        self.assertFalse(found["ok"])
        self.assertEqual([(f["line"], f["column"], f["severity"], f["key"]) for f in found["findings"]],
                         [(2, 1, "error", ""), (3, 25, "error", "classes.interactive.kv_guarantee")])

    def test_warnings_leave_the_table_and_only_strict_fails_for_them(self):
        path = self.write("classes: {interactive: {kv_guarantee: 60%, max_sequence_tokens: 1024}}\n")
        done = berth("check", path, "--blocks", "50")
        self.assertEqual(done.returncode, 0)
        self.assertEqual(done.stderr.decode().count("warning: "), 2, done.stderr)
        self.assertIn(f"{path}: 2 warnings\n", done.stdout.decode())
        done = berth("check", path, "--blocks", "50", "--strict")
        self.assertEqual(done.returncode, 2)
        self.assertTrue(done.stderr.decode().endswith(f"berth check: {path}: 2 warnings\n"), done.stderr)

    def test_with_a_model_bytes_become_blocks_and_the_context_counts(self):
        path = self.write("kv_cache: {memory: 1MiB}\n"
                          "classes: {interactive: {kv_guarantee: 512KiB, kv_borrowing_limit: 50%, preemptible: true}}\n")
        found = self.ok_json("check", path, "--model", stories())
        model = self.ok_json("inspect", stories())
        block_bytes = model["kv"]["bf16"]["bytes_per_token"] * 16
        self.assertEqual(found["pool"]["blocks"], 2**20 // block_bytes)
        self.assertEqual(found["classes"][0]["guaranteed_blocks"], 2**19 // block_bytes)
        self.assertEqual(found["classes"][0]["longest"]["tokens"], model["context_tokens"])
        without = berth("check", path)
        self.assertEqual(without.returncode, 2)
        self.assertIn("512KiB cannot be counted in blocks without a model", without.stderr.decode())

    def test_the_shipped_file_is_clean_for_the_default_model_too(self):
        self.assertIn("no errors, no warnings", self.ok("check", SHIPPED, "--strict", "--model", smollm2()))

    def test_a_key_file_that_is_not_here_is_a_warning(self):
        path = self.write("tenants: {default: {api_key_sha256_file: secret/keys}}\n")
        done = berth("check", path)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("secret/keys: No such file or directory", done.stderr.decode())

    def test_schema_is_the_shipped_one(self):
        self.assertEqual(self.ok("check", "--schema"), (CONFIGS / "berth.schema.json").read_text())

    def test_wrong_calls_are_one_line(self):
        self.fails(berth("check"), 2, "berth check", "a file is missing")
        self.fails(berth("check", SHIPPED, "--blocks", "0"), 2, "berth check", "--blocks")
        self.fails(berth("check", SHIPPED, "--blocks", "9", "--model", "m"), 2, "berth check", "--model")
        self.fails(berth("check", SHIPPED, "--model", "/absent.gguf"), 2, "berth check", "/absent.gguf")
        done = berth("check", "/absent.yaml")
        self.assertEqual(done.returncode, 2)
        self.assertEqual(done.stderr.decode(), "/absent.yaml: error: No such file or directory\n"
                                               "berth check: /absent.yaml: 1 error\n")


if __name__ == "__main__":
    unittest.main()
