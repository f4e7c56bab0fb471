"""berth inspect, --version and --help."""

import re
import unittest

from cli_support import CliTest, berth, smollm2, stories

COMMANDS = (["serve"], ["generate"], ["client"], ["client", "generate"], ["tokenize"], ["detokenize"], ["score"], ["inspect"],
            ["devices"], ["check"], ["status"], ["requests"], ["cancel"], ["reload"], ["drain"], ["usage"])


class Inspect(CliTest):
    def test_the_default_model_is_described(self):
        smollm2()
        facts = self.ok_json("inspect")
        self.assertEqual(facts["architecture"], "llama")
        self.assertEqual(facts["parameters"], 134515008)
        self.assertEqual(facts["context_tokens"], 8192)
        self.assertEqual((facts["layers"], facts["heads"], facts["kv_heads"], facts["head_dim"]), (30, 9, 3, 64))
        self.assertEqual(facts["tensor_types"]["Q4_1"], {"tensors": 210, "bytes": 66355200})
        # 2 · 30 layers · 3 heads · 64 · bytes an element; int8 adds 4 bytes a layer and head for its scales.
        per_token = {dtype: kv["bytes_per_token"] for dtype, kv in facts["kv"].items()}
        self.assertEqual(per_token, {"float32": 46080, "bf16": 23040, "int8": 11880})
        for dtype, kv in facts["kv"].items():
            self.assertEqual(kv["full_contexts_in_free_memory"], facts["free_memory_bytes"] // (8192 * per_token[dtype]))
        self.assertGreater(facts["free_memory_bytes"], 0)

    def test_types_add_up_to_no_more_than_the_file(self):
        for variant in ("f32", "f16", "q4_k_m", "q6_k"):
            facts = self.ok_json("inspect", stories(variant))
            total = sum(kind["bytes"] for kind in facts["tensor_types"].values())
            self.assertLess(total, facts["file_bytes"])
            self.assertGreater(total, facts["file_bytes"] // 2)

    def test_people_get_aligned_facts(self):
        text = self.ok("inspect", stories())
        starts = {re.match(r"  (\S+(?: \S+)*)  +", line).end() for line in text.splitlines()}
        self.assertEqual(len(starts), 1, text)


class Help(CliTest):
    def test_version(self):
        self.assertRegex(self.ok("--version"), r"^berth \d+\.\d+\.\d+\n$")

    def test_every_command_explains_itself_with_an_example(self):
        root = self.ok("--help")
        for command in COMMANDS:
            with self.subTest(command=command):
                text = self.ok(*command, "--help")
                self.assertIn("Example:\n  berth " + " ".join(command), text)
                self.assertIn("Usage: berth " + " ".join(command), text)
                self.assertLessEqual(max(map(len, text.splitlines())), 120)
                self.assertIn(command[0], root)

    def test_help_wins_over_everything_else_on_the_line(self):
        self.assertIn("Usage: berth generate", self.ok("generate", "--top-k", "3", "--help"))
        self.assertEqual(berth("-h").stdout, berth("--help").stdout)


if __name__ == "__main__":
    unittest.main(verbosity=2)
