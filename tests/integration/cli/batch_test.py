"""berth batch: the answers, and that a run goes on where an earlier one was stopped."""

import json
import os
import pty
import re
import signal
import subprocess
import tempfile
import unittest
from pathlib import Path

from cli_support import BERTH, SANITIZED, TIMEOUT_S, CliTest, berth, start, stories

# Runs that are to be interrupted must last a while on a fast machine, and not for ever on a slow one.
MANY = 40 if SANITIZED else 150


def jsonl(objects):
    return "".join(json.dumps(line) + "\n" for line in objects)


class BatchTest(CliTest):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.input = Path(self.folder.name) / "in.jsonl"
        self.output = Path(self.folder.name) / "in.out.jsonl"

    def write(self, objects):
        self.input.write_text(jsonl(objects))

    def flags(self, *more, path=None):
        return ("batch", path or self.input, "--model", stories(), *more)

    def run_batch(self, *more, code=0, **options):
        """Standard error of a run that ends with `code`."""
        done = berth(*self.flags(*more), **options)
        self.assertEqual(done.returncode, code, done.stderr.decode())
        return done.stderr.decode()

    def answers(self, path=None):
        """By index; each index once."""
        lines = [json.loads(line) for line in (path or self.output).read_text().splitlines()]
        by_index = {line["index"]: line for line in lines}
        self.assertEqual(len(by_index), len(lines))
        return by_index

    def outcomes(self, path=None):
        """What does not depend on the time it took, nor on the order."""
        return {index: (line.get("id"), line.get("choices"), line.get("error")) for index, line in self.answers(path).items()}


class Answers(BatchTest):
    def test_each_line_gets_what_generate_answers(self):
        requests = [
            {"prompt": "Once upon a time", "max_tokens": 20},
            {"prompt": "The cat", "max_output_tokens": 9, "temperature": 0.9, "seed": 11, "top_k": 40},
            {"token_ids": [1, 403, 407], "max_tokens": 12, "stop": ["girl"]},
            {"prompt": "One day", "max_tokens": 30, "ignore_eos": True, "echo_prompt": True},
        ]
        as_flags = [
            ["--prompt", "Once upon a time", "--max-tokens", 20],
            ["--prompt", "The cat", "--max-tokens", 9, "--temperature", 0.9, "--seed", 11, "--top-k", 40],
            ["--prompt-ids", "1,403,407", "--max-tokens", 12, "--stop", "girl"],
            ["--prompt", "One day", "--max-tokens", 30, "--ignore-eos", "--echo"],
        ]
        self.write(requests)
        self.run_batch("--return-token-ids")
        answers = self.answers()
        self.assertEqual(sorted(answers), [0, 1, 2, 3])
        for index, flags in enumerate(as_flags):
            with self.subTest(request=requests[index]):
                want = self.ok_json("generate", "--model", stories(), *flags)
                choice = answers[index]["choices"][0]
                self.assertEqual((choice["text"], choice["output_ids"], choice["finish_reason"], choice["stop_match"]),
                                 (want["text"], want["output_ids"], want["finish_reason"], want["stop_match"]))
                self.assertEqual(answers[index]["prompt_ids"], want["prompt_ids"])
                self.assertEqual(answers[index]["usage"]["output_tokens"], len(want["output_ids"]))

    def test_an_answer_carries_the_id_and_the_place_of_its_line(self):
        self.input.write_text('{"id": "a", "prompt": "Once", "max_tokens": 1}\n\n  \n{"id": 7, "prompt": "Once", "max_tokens": 1}\r\n'
                              '{"prompt": "Once", "max_tokens": 1, "logprobs": 1}')
        self.run_batch()
        answers = self.answers()
        self.assertEqual({index: line.get("id") for index, line in answers.items()}, {0: "a", 3: 7, 4: None})
        self.assertEqual(list(answers[0]), ["index", "id", "request_hash", "choices", "seed", "usage", "timing"])
        self.assertNotIn("logprobs", answers[0]["choices"][0])
        self.assertEqual(len(answers[4]["choices"][0]["logprobs"]), 1)

    def test_flags_hold_for_lines_that_do_not_say_otherwise(self):
        self.write([{"prompt": "Once"}, {"prompt": "Once", "max_tokens": 3}])
        self.run_batch("--max-tokens", 5, "--temperature", 0.7, "--seed", 3)
        answers = self.answers()
        self.assertEqual([answers[i]["usage"]["output_tokens"] for i in (0, 1)], [5, 3])
        self.assertEqual(answers[0]["seed"], 3)

    def test_a_line_may_ask_for_several_choices(self):
        self.write([{"prompt": "Once", "max_tokens": 8, "temperature": 1, "seed": 5, "n": 3}, {"prompt": "Once", "n": 65}])
        self.run_batch(code=1)
        answers = self.answers()
        choices = answers[0]["choices"]
        self.assertEqual([choice["index"] for choice in choices], [0, 1, 2])
        self.assertGreater(len({choice["text"] for choice in choices}), 1)
        self.assertEqual(answers[0]["usage"]["output_tokens"], 24)
        self.assertEqual(answers[1]["error"]["reason"], "INVALID_REQUEST")

    def test_how_many_run_at_once_changes_nothing(self):
        self.write({"prompt": prompt, "max_tokens": 24} for prompt in ("Once", "The dog", "A girl", "Tom", "They", "It was") * 3)
        outcomes = []
        for concurrency in (1, 5, 64):
            self.run_batch("--concurrency", concurrency, "--overwrite")
            outcomes.append(self.outcomes())
        self.assertEqual(len(outcomes[0]), 18)
        self.assertEqual(outcomes[0], outcomes[1])
        self.assertEqual(outcomes[0], outcomes[2])

    def test_standard_input_is_answered_on_standard_output(self):
        done = berth(*self.flags(path="-"), stdin=jsonl([{"prompt": "Once", "max_tokens": 2}] * 3))
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(sorted(json.loads(line)["index"] for line in done.stdout.splitlines()), [0, 1, 2])

    def test_an_empty_file_is_no_error(self):
        self.write([])
        summary = self.ok_json(*self.flags())
        self.assertEqual((summary["lines"], summary["answered"], summary["failed"]), (0, 0, 0))
        self.assertEqual(self.output.read_bytes(), b"")

    def test_the_summary_counts_lines_and_tokens(self):
        self.write([{"prompt": "Once", "max_tokens": 4, "ignore_eos": True}] * 5)
        summary = self.ok_json(*self.flags())
        self.assertEqual({key: summary[key] for key in ("lines", "answered", "failed", "skipped", "interrupted", "output_tokens")},
                         {"lines": 5, "answered": 5, "failed": 0, "skipped": 0, "interrupted": False, "output_tokens": 20})
        self.assertEqual(summary["prompt_tokens"], 10)
        self.assertEqual(self.ok_json(*self.flags())["skipped"], 5)


class Errors(BatchTest):
    def test_a_bad_line_is_answered_with_its_fault_and_the_others_go_on(self):
        self.input.write_text("\n".join([
            '{"prompt": "Once", "max_tokens": 2}', "{", '{"id": 3, "prompt": "Once", "temprature": 1}', "[]", '{"id": "x"}',
            '{"prompt": "Once", "max_tokens": 5000}', '{"token_ids": [512]}', '{"token_ids": []}', '{"prompt": "' + "a " * 2000 + '"}',
            '{"prompt": "Once", "max_tokens": 3}']))
        error = self.run_batch(code=1)
        self.assertIn("8 of 10 lines failed", error)
        answers = self.answers()
        self.assertEqual(sorted(answers), list(range(10)))
        want = {1: ("INVALID_REQUEST", "JSON"), 2: ("INVALID_REQUEST", "temprature"), 3: ("INVALID_REQUEST", "object"),
                4: ("INVALID_REQUEST", "prompt"), 5: ("REQUEST_TOO_LARGE", "context"), 6: ("INVALID_REQUEST", "vocabulary"),
                7: ("INVALID_REQUEST", "empty"), 8: ("REQUEST_TOO_LARGE", "context")}
        for index, line in answers.items():
            if index in want:
                self.assertEqual(line["error"]["reason"], want[index][0], line)
                self.assertIn(want[index][1], line["error"]["message"])
            else:
                self.assertEqual(line["choices"][0]["finish_reason"], "length")
        self.assertEqual((answers[2]["id"], answers[4]["id"]), (3, "x"))

    def test_a_line_that_is_too_long_is_an_error_of_its_own(self):
        with self.input.open("w") as file:
            file.write('{"prompt": "Once", "max_tokens": 1}\n{"prompt": "')
            file.write("a" * (16 << 20))
            file.write('"}\n{"prompt": "Once", "max_tokens": 1}\n')
        self.run_batch(code=1)
        answers = self.answers()
        self.assertIn("16.0 MiB", answers[1]["error"]["message"])
        self.assertTrue(answers[0]["choices"] and answers[2]["choices"])

    def test_a_full_device_ends_the_run(self):
        self.write([{"prompt": "Once", "max_tokens": 2}] * 3)
        self.fails(berth(*self.flags("-o", "/dev/full")), 2, "berth batch", "/dev/full: No space left")

    def test_a_reader_that_leaves_ends_the_run_quietly(self):
        self.write([{"prompt": "Once", "max_tokens": 100, "ignore_eos": True}] * MANY)
        with start(*self.flags("-o", "-")) as running:
            running.stdout.readline()
            running.stdout.close()
            error = running.stderr.read()
        self.assertEqual((running.returncode, error), (0, b""))

    def test_the_requests_are_not_overwritten_by_the_answers(self):
        self.write([{"prompt": "Once"}])
        before = self.input.read_bytes()
        self.fails(berth(*self.flags("-o", self.input, "--overwrite")), 2, "berth batch", "another -o")
        self.assertEqual(self.input.read_bytes(), before)


class Resuming(BatchTest):
    def many(self):
        return [{"id": f"r{i}", "prompt": ("Once", "The dog", "A girl", "Tom")[i % 4] + " " * (i % 7), "max_tokens": 60 + i % 40,
                 "ignore_eos": True} for i in range(MANY)]

    def whole(self):
        """The outcomes of a run that nobody stops."""
        path = Path(self.folder.name) / "whole.jsonl"
        self.run_batch("-o", path)
        return self.outcomes(path)

    def test_what_is_answered_is_not_run_again(self):
        self.write({"prompt": "Once", "max_tokens": 3} for _ in range(6))
        self.run_batch()
        lines = self.output.read_text().splitlines(keepends=True)
        # As a killed run leaves it: some answers, one of them torn.
        self.output.write_text("".join(lines[:3]) + lines[3][:20])
        summary = self.ok_json(*self.flags())
        self.assertEqual((summary["skipped"], summary["answered"]), (3, 3))
        self.assertEqual(self.output.read_text().splitlines(keepends=True)[:3], lines[:3])
        self.assertEqual(sorted(self.answers()), list(range(6)))

    def test_a_killed_run_resumed_gives_what_one_run_gives(self):
        self.write(self.many())
        want = self.whole()
        kills = 0
        for after in range(1, 4):
            with start(*self.flags("--concurrency", 8)) as running:
                # Until it has done another piece of the work, or all of it.
                goal = MANY * after // 5
                while running.poll() is None:
                    if self.output.exists() and self.output.read_bytes().count(b"\n") >= goal:
                        running.kill()
                        break
                running.wait(timeout=TIMEOUT_S)
            kills += running.returncode == -signal.SIGKILL
        self.assertGreater(kills, 0, "the runs were too short to be killed")
        self.assertLess(len(self.output.read_bytes().splitlines()), MANY)
        self.run_batch()
        self.assertEqual(self.outcomes(), want)

    def test_an_interrupted_run_keeps_what_is_done_and_says_how_to_go_on(self):
        self.write(self.many())
        with start(*self.flags("--json")) as running:
            while running.poll() is None and not (self.output.exists() and self.output.read_bytes().count(b"\n") > 2):
                pass
            running.send_signal(signal.SIGINT)
            summary, error = running.communicate(timeout=TIMEOUT_S)
        self.assertEqual(running.returncode, 130, error)
        self.assertIn("the same command goes on", error.decode())
        self.assertTrue(json.loads(summary)["interrupted"])
        done = self.output.read_text()
        self.assertTrue(done.endswith("\n"))
        kept = self.answers()
        self.assertLess(len(kept), MANY)
        self.assertFalse([line for line in kept.values() if "error" in line], "what was cancelled leaves no line")
        self.run_batch()
        self.assertTrue(self.output.read_text().startswith(done))
        self.assertEqual(self.outcomes(), self.whole())

    def test_lines_that_failed_are_tried_again_also_when_they_were_mended(self):
        self.write([{"prompt": "Once", "max_tokens": 2}, {"prompt": "Once", "max_tokens": "2"}])
        self.run_batch(code=1)
        first = self.answers()[0]
        self.write([{"prompt": "Once", "max_tokens": 2}, {"prompt": "Once", "max_tokens": 3}])
        self.run_batch()
        answers = self.answers()
        self.assertEqual(answers[0], first)
        self.assertEqual(answers[1]["usage"]["output_tokens"], 3)

    def test_lines_behind_the_old_ones_are_run(self):
        self.write([{"prompt": "Once", "max_tokens": 2}])
        self.run_batch()
        self.write([{"prompt": "Once", "max_tokens": 2}, {"prompt": "The", "max_tokens": 2}])
        self.assertEqual(self.ok_json(*self.flags())["answered"], 1)

    def test_other_requests_options_or_models_do_not_mix_with_old_answers(self):
        requests = [{"prompt": "Once", "max_tokens": 2}, {"prompt": "The", "max_tokens": 2}]
        self.write(requests)
        self.run_batch()
        before = self.output.read_bytes()

        def refused(*more):
            self.fails(berth(*self.flags(*more)), 2, "berth batch", "in.out.jsonl", "--overwrite")
            self.assertEqual(self.output.read_bytes(), before)

        refused("--temperature", 1)
        refused("--stop", "x")
        refused("--kv-dtype", "float32")
        refused("--compute", "float32")
        self.fails(berth("batch", self.input, "--model", stories("q4_k_m")), 2, "berth batch", "--overwrite")
        self.write(reversed(requests))
        refused()
        self.write(requests[:1])
        refused()
        # What changes no answer is no reason to refuse.
        self.write(requests)
        self.run_batch("--threads", 1, "--block-tokens", 8, "--concurrency", 3)
        self.write(reversed(requests))
        self.run_batch("--overwrite")
        self.assertNotEqual(self.output.read_bytes(), before)

    def test_a_file_of_something_else_is_not_touched(self):
        self.write([{"prompt": "Once"}])
        self.output.write_text("my notes\n")
        self.fails(berth(*self.flags()), 2, "berth batch", "in.out.jsonl line 1", "-o")
        self.assertEqual(self.output.read_text(), "my notes\n")

    def test_two_runs_do_not_share_a_file(self):
        self.write(self.many())
        with start(*self.flags()) as running:
            while running.poll() is None and not (self.output.exists() and self.output.read_bytes()):
                pass
            self.fails(berth(*self.flags()), 2, "berth batch", "another run")
            running.kill()


class Progress(BatchTest):
    def test_a_terminal_gets_a_bar_that_leaves_no_trace(self):
        self.write([{"prompt": "Once", "max_tokens": 100, "ignore_eos": True}] * MANY)
        leader, follower = pty.openpty()
        with subprocess.Popen([BERTH, *map(str, self.flags())], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                              stderr=follower) as running:
            os.close(follower)
            shown = b""
            try:
                while chunk := os.read(leader, 4096):
                    shown += chunk
            except OSError:  # how a terminal ends
                pass
            os.close(leader)
        self.assertEqual(running.returncode, 0)
        text = shown.decode()
        self.assertRegex(text, r"\r\[#*\.*\] \d+% · \d+ of " + str(MANY) + " lines")
        self.assertRegex(text, r"tokens/s")
        last = re.split(r"\r\x1b\[K", text)[-1]
        self.assertIn(f"{MANY} lines answered", last)
        self.assertNotIn("%", last)

    def test_what_is_no_terminal_gets_whole_lines(self):
        self.write([{"prompt": "Once", "max_tokens": 2}])
        error = self.run_batch()
        self.assertNotIn("\r", error)
        self.assertEqual(error.count("\n"), 1, error)
        self.assertIn("1 lines answered", error)


if __name__ == "__main__":
    unittest.main(verbosity=2)
