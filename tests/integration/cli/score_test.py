"""berth score: log-probabilities and perplexity against a float64 reference."""

import json
import math
import unittest

from cli_support import DATA, SANITIZED, CliTest, berth, smollm2, stories


class Perplexity(CliTest):
    def check(self, tolerance, *flags):
        reference = json.loads((DATA / "smollm2-oracle.json").read_text())["perplexity"]
        # Sanitizers make it a hundred times slower: the beginning has to do.
        tokens = 96 if SANITIZED else len(reference["ids"])
        want_logprobs = reference["logprobs"][:tokens - 1]
        want = math.exp(-sum(want_logprobs) / len(want_logprobs))
        line = json.dumps({"ids": reference["ids"][:tokens]})
        got = json.loads(self.ok("score", "--model", smollm2(), "--jsonl", *flags, stdin=line))
        self.assertEqual(got["tokens"], tokens - 1)
        self.assertLess(abs(got["perplexity"] / want - 1), tolerance, f"{got['perplexity']} for {want}")
        return [token["logprob"] for token in got["logprobs"]], want_logprobs

    def test_float32_agrees_with_the_reference_token_by_token(self):
        got, want = self.check(1e-4, "--compute", "float32")
        self.assertLess(max(abs(a - b) for a, b in zip(got, want)), 1e-3)

    def test_the_default_mode_is_within_half_a_percent(self):
        self.check(0.01 if SANITIZED else 0.005)


class Score(CliTest):
    def test_a_text_is_scored_as_a_prompt_is(self):
        model = stories()
        text = "Once upon a time"
        score = self.ok_json("score", "--model", model, "--text", text, "--top", 1)
        prompt = self.ok_json("generate", "--model", model, "--prompt", text, "--max-tokens", 1, "--prompt-logprobs", 1)
        self.assertEqual(score["ids"], prompt["prompt_ids"])
        self.assertEqual(score["logprobs"], prompt["prompt_logprobs"])
        total = sum(token["logprob"] for token in score["logprobs"])
        self.assertEqual(score["tokens"], 4)
        self.assertAlmostEqual(score["perplexity"], math.exp(-total / 4), places=4)
        self.assertAlmostEqual(score["mean_logprob"], total / 4, places=5)

    def test_lines_are_texts_or_ids_and_the_total_goes_to_standard_error(self):
        done = berth("score", "--model", stories(), "--jsonl",
                     stdin='{"text": "Once upon a time"}\n{"ids": [1, 403, 407]}\n{"ids": [5]}\n')
        self.assertEqual(done.returncode, 0, done.stderr)
        items = [json.loads(line) for line in done.stdout.splitlines()]
        self.assertEqual([item["tokens"] for item in items], [4, 2, 0])
        self.assertEqual(items[2]["perplexity"], None)
        self.assertIn("over 6 tokens", done.stderr.decode())
        # Each text is scored for itself.
        self.assertEqual(items[0]["logprobs"][0]["logprob"], items[1]["logprobs"][0]["logprob"])

    def test_people_get_a_table_and_the_perplexity(self):
        text = self.ok("score", "--model", stories(), "--text", "Once upon").splitlines()
        self.assertEqual(text[0].split(), ["position", "id", "logprob", "token"])
        self.assertEqual(len(text), 4)
        self.assertRegex(text[-1], r"^perplexity [0-9.]+ over 2 tokens")


if __name__ == "__main__":
    unittest.main(verbosity=2)
