"""The log of `berth serve`: lines for machines, one for each request, and never a prompt or an answer."""

import json
import re
import unittest

from support import Server

KEYS = ["ts", "level", "msg", "request_id", "trace_id", "tenant", "class", "outcome", "reason", "prompt_tokens", "cached_tokens",
        "output_tokens", "reserved_blocks", "peak_blocks", "kv_block_seconds", "queue_ms", "ttft_ms"]


class JsonLog(unittest.TestCase):
    def setUp(self):
        self.server = Server()
        self.addCleanup(self.server.stop)

    def entries(self):
        """The whole log, once the server has ended; every line must be an object with these three keys first."""
        self.assertEqual(self.server.stop(), 0)
        entries = [json.loads(line) for line in self.server.log]
        for entry in entries:
            self.assertEqual(list(entry)[:3], KEYS[:3])
            self.assertRegex(entry["ts"], r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$")
            self.assertIn(entry["level"], ("info", "warn", "error"))
        return entries

    def ended(self):
        return [entry for entry in self.entries() if entry["msg"] == "request ended"]

    def test_every_line_is_an_object_from_start_to_stop(self):
        self.server.write_policy(output_tokens=9)
        self.server.reload()
        self.server.write_policy(more="shceduler: {}\n")
        self.server.reload()
        words = [entry["msg"] for entry in self.entries()]
        self.assertIn(f"listening on {self.server.info['grpc']}", words)
        self.assertIn("classes.gold.default_output_tokens: 7 -> 9", " ".join(words))
        self.assertTrue(any("policy not reloaded" in word for word in words), words)
        self.assertEqual(words[-1], "stopped")
        self.assertTrue(any(self.server.info["ops"] + "/metrics" in word for word in words), words)

    def test_a_request_is_one_line_with_the_documented_keys(self):
        answer = self.server.ask("--class", "iron", "--max-tokens", 20)
        lines = self.ended()
        self.assertEqual(len(lines), 1)
        line = lines[0]
        self.assertEqual(list(line), KEYS)
        self.assertEqual((line["tenant"], line["class"], line["outcome"]), ("default", "iron", "ok"))
        self.assertEqual(line["reason"], answer["finish_reason"].lower())
        self.assertEqual(line["request_id"], answer["request_id"])
        for key in ("prompt_tokens", "cached_tokens", "output_tokens", "reserved_blocks", "peak_blocks"):
            self.assertEqual(line[key], answer["usage"][key], key)
        self.assertGreater(line["ttft_ms"], 0)

    def test_neither_prompts_nor_answers_are_in_it(self):
        answer = self.server.ask("--max-tokens", 30)
        self.server.ask("--class", "bronze")
        self.assertEqual(len(self.ended()), 2)
        log = "".join(self.server.log)
        for word in re.findall(r"\w{5,}", Server.PROMPT + " " + answer["text"]):
            if word != "Once":
                self.assertNotIn(f" {word} ", log)
        self.assertNotIn("midnight", log)

    def test_refusals_are_lines_too_but_a_flood_of_them_is_a_number(self):
        for _ in range(15):
            self.server.ask("--max-tokens", 1000)
        entries = self.entries()
        lines = [entry for entry in entries if entry["msg"] == "request ended"]
        left_out = sum(entry["left_out"] for entry in entries if entry["msg"] == "requests left out of the log")
        self.assertEqual(len(lines) + left_out, 15)
        for line in lines:
            self.assertEqual((line["outcome"], line["reason"], line["ttft_ms"]), ("rejected", "request_too_large", None))


class TextLog(unittest.TestCase):
    def test_is_for_people_and_says_the_same(self):
        server = Server("--log-format", "text")
        self.addCleanup(server.stop)
        answer = server.ask("--max-tokens", 3)
        self.assertEqual(server.stop(), 0)
        lines = [line for line in server.log if "request ended" in line]
        self.assertEqual(len(lines), 1, server.log)
        self.assertRegex(lines[0], r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}[+-]\d\d:\d\d info request ended request_id=")
        self.assertIn(f'output_tokens={answer["usage"]["output_tokens"]} ', lines[0])


if __name__ == "__main__":
    unittest.main(verbosity=2)
