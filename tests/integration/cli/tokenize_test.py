"""berth tokenize and berth detokenize."""

import json
import subprocess
import unittest

from cli_support import BERTH, DATA, CliTest, berth, smollm2, stories


def lines(text):
    return [json.loads(line) for line in text.split("\n") if line]


class Tokenize(CliTest):
    def test_every_reference_line_gives_its_ids(self):
        reference = (DATA / "smollm2-tokens.jsonl").read_bytes()
        want = [json.loads(line)["ids"] for line in reference.splitlines()]
        got = [line["ids"] for line in lines(self.ok("tokenize", "--model", smollm2(), "--jsonl", stdin=reference))]
        self.assertGreater(len(want), 400)
        self.assertEqual(got, want)

    def test_every_reference_text_comes_back(self):
        reference = [json.loads(line) for line in (DATA / "smollm2-tokens.jsonl").read_bytes().splitlines()]
        # A parsed special token has no text of its own.
        reference = [line for line in reference if not line.get("parse_special")]
        ids = "".join(json.dumps({"ids": line["ids"]}) + "\n" for line in reference)
        got = [line["text"] for line in lines(self.ok("detokenize", "--model", smollm2(), "--jsonl", stdin=ids))]
        self.assertEqual(got, [line["text"] for line in reference])

    def test_ids_are_the_texts_own_unless_begin_of_text_is_asked_for(self):
        flags = ("tokenize", "--model", stories(), "--text", "Once upon a time")
        self.assertEqual(self.ok(*flags), "403 407 261 378\n")
        self.assertEqual(self.ok(*flags, "--no-bos"), "403 407 261 378\n")
        self.assertEqual(self.ok(*flags, "--add-bos"), "1 403 407 261 378\n")
        self.assertEqual(self.ok_json(*flags), {"ids": [403, 407, 261, 378], "count": 4})

    def test_standard_input_is_taken_as_it_is(self):
        text = self.ok("tokenize", "--model", smollm2(), stdin="Hello\n")
        self.assertEqual(self.ok("detokenize", "--model", smollm2(), stdin=text), "Hello\n\n")

    def test_special_tokens_are_parsed_by_flag_and_by_line(self):
        model = smollm2()
        self.assertEqual(self.ok("tokenize", "--model", model, "--text", "<|im_end|>", "--parse-special"), "2\n")
        got = lines(self.ok("tokenize", "--model", model, "--jsonl", stdin='{"text": "<|im_end|>", "parse_special": true}\n'
                                                                           '{"text": "<|im_end|>"}'))
        self.assertEqual(got[0]["ids"], [2])
        self.assertGreater(len(got[1]["ids"]), 1)

    def test_empty_input_is_no_error(self):
        model = stories()
        self.assertEqual(self.ok("tokenize", "--model", model, "--text", ""), "\n")
        self.assertEqual(self.ok("tokenize", "--model", model, "--jsonl"), "")
        self.assertEqual(self.ok("detokenize", "--model", model, "--ids", ""), "\n")

    def test_lines_before_a_bad_one_are_answered(self):
        done = berth("tokenize", "--model", stories(), "--jsonl", stdin='{"text": "a"}\n{"text": 1}\n')
        self.assertEqual(done.returncode, 2)
        self.assertEqual(len(lines(done.stdout.decode())), 1)
        self.assertIn("line 2", done.stderr.decode())

    def test_a_long_letter_run_is_no_quadratic_trap(self):
        ids = self.ok_json("tokenize", "--model", smollm2(), stdin="a" * (1 << 20))["ids"]
        self.assertGreater(len(ids), 1000)

    def test_bytes_that_are_no_text_become_replacement_characters(self):
        model = stories()
        # Byte tokens follow the three control tokens: 3 + 0xFF.
        self.assertEqual(self.ok_json("detokenize", "--model", model, "--ids", 3 + 0xFF), {"text": "\ufffd"})


class Pipes(CliTest):
    def test_a_line_is_answered_before_the_next_is_sent(self):
        with subprocess.Popen([BERTH, "tokenize", "--model", stories(), "--jsonl"], stdin=subprocess.PIPE,
                              stdout=subprocess.PIPE) as running:
            for _ in range(3):
                running.stdin.write(b'{"text": "Once"}\n')
                running.stdin.flush()
                self.assertEqual(json.loads(running.stdout.readline()), {"ids": [403]})
            running.stdin.close()
        self.assertEqual(running.returncode, 0)


if __name__ == "__main__":
    unittest.main(verbosity=2)
