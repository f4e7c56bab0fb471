"""Everything that can be wrong with a command line, an input or an output: one line, exit code 2 (1 for faults at run time)."""

import subprocess
import tempfile
import unittest
from pathlib import Path

from cli_support import BERTH, CliTest, berth, stories

# Arguments, and what the line must say. None of these comes as far as opening a model.
ARGUMENTS = [
    ([], "a command is missing"),
    (["frobnicate"], 'unknown command "frobnicate"'),
    (["--frobnicate"], 'unknown option "--frobnicate"'),
    (["client"], "a command is missing"),
    (["client", "frobnicate"], "unknown command"),
    (["generate"], "a prompt is missing"),
    (["generate", "--prompt"], "--prompt needs a value"),
    (["generate", "--prompt", "a", "--prompt", "b"], "only once"),
    (["generate", "--prompt", "a", "--prompt-ids", "1"], "only one of"),
    (["generate", "--prompt", "a", "b"], 'unexpected argument "b"'),
    (["generate", "--prompt", "a", "--frobnicate"], 'unknown option "--frobnicate"'),
    (["generate", "--prompt", "a", "--temperature", "-0.1"], "--temperature"),
    (["generate", "--prompt", "a", "--temperature", "nan"], "--temperature"),
    (["generate", "--prompt", "a", "--temperature", "inf"], "--temperature"),
    (["generate", "--prompt", "a", "--temperature", "warm"], "warm"),
    (["generate", "--prompt", "a", "--top-p", "0"], "--top-p"),
    (["generate", "--prompt", "a", "--top-p", "1.5"], "--top-p"),
    (["generate", "--prompt", "a", "--min-p", "2"], "--min-p"),
    (["generate", "--prompt", "a", "--top-k", "-1"], "--top-k"),
    (["generate", "--prompt", "a", "--seed", "-1"], "--seed"),
    (["generate", "--prompt", "a", "--seed", "18446744073709551616"], "--seed"),
    (["generate", "--prompt", "a", "--presence-penalty", "2.1"], "--presence-penalty"),
    (["generate", "--prompt", "a", "--repetition-penalty", "0"], "--repetition-penalty"),
    (["generate", "--prompt", "a", "--max-tokens", "0"], "--max-tokens"),
    (["generate", "--prompt", "a", "--max-tokens", "-3"], "--max-tokens"),
    (["generate", "--prompt", "a", "--max-tokens", "2147483648"], "--max-tokens"),
    (["generate", "--prompt", "a", "--max-tokens", "3.5"], "3.5"),
    (["generate", "--prompt", "a", "--max-tokens="], "--max-tokens"),
    (["generate", "--prompt", "a", "--logprobs", "21"], "--logprobs"),
    (["generate", "--prompt", "a", "--logit-bias", "5"], "ID=B"),
    (["generate", "--prompt", "a", "--logit-bias", "5=nan"], "from -1000 to 1000"),
    (["generate", "--prompt", "a", "--logit-bias", "5=1", "--logit-bias", "5=2"], "twice"),
    (["generate", "--prompt", "a", "--stop", ""], "--stop"),
    (["generate", "--prompt", "a", "--stop", "x" * 1025], "1024 bytes"),
    (["generate", "--prompt", "a"] + ["--stop", "x"] * 17, "at most 16"),
    (["generate", "--prompt", "a", "--stop-token-id", "x"], "--stop-token-id"),
    (["generate", "--prompt-ids", "1,x"], '"x"'),
    (["generate", "--prompt-ids", "-1"], '"-1"'),
    (["generate", "--prompt-file", "/absent/prompt.txt"], "/absent/prompt.txt"),
    (["generate", "--prompt-file", "/"], "directory"),
    (["generate", "--prompt", "a", "--compute", "float16"], "float32"),
    (["generate", "--prompt", "a", "--backend", "gpu"], "auto, cpu or cuda"),
    (["generate", "--prompt", "a", "--device", "-1"], "--device"),
    (["generate", "--prompt", "a", "--threads", "0"], "--threads"),
    (["generate", "--prompt", "a", "--kv-memory", "4096"], "unit"),
    (["generate", "--prompt", "a", "--kv-memory", "2gib"], "GiB"),
    (["generate", "--prompt", "a", "--kv-dtype", "int4"], "int8"),
    (["generate", "--prompt", "a", "--block-tokens", "24"], "power of two"),
    (["generate", "--prompt", "a\nb", "--threads", "a\nb"], "--threads"),
    (["serve", "--max-queue", "-1"], "--max-queue"),
    (["serve", "--log-format", "xml"], "json or text"),
    (["batch"], "FILE"),
    (["batch", "/absent/requests.jsonl"], "/absent/requests.jsonl"),
    (["batch", "/"], "directory"),
    (["batch", "/dev/null", "--concurrency", "0"], "--concurrency"),
    (["batch", "/dev/null", "--n", "0"], "--n"),
    (["batch", "-", "--json"], "-o"),
    (["client", "generate"], "a prompt is missing"),
    (["client", "generate", "--prompt", "a", "--server", "nowhere"], "HOST:PORT"),
    (["client", "generate", "--prompt", "a", "--server", "127.0.0.1:65536"], "HOST:PORT"),
    (["client", "generate", "--prompt", "a", "--timeout", "0"], "--timeout"),
    (["tokenize", "--text", "a", "--jsonl"], "only one of"),
    (["detokenize", "--ids", "1", "--jsonl"], "only one of"),
    (["score", "--text", "a", "--ids", "1"], "only one of"),
    (["score", "--top", "21"], "--top"),
    (["inspect", "a.gguf", "b.gguf"], "b.gguf"),
    (["serve", "--drain-delay", "-1"], "--drain-delay"),
    (["status", "--admin", "nowhere"], "HOST:PORT"),
    (["status", "--watch", "--interval", "0"], "--interval"),
    (["status", "--cert", "a.pem"], "--key"),
    (["status", "--api-key-file", "/absent/key"], "/absent/key"),
    (["requests", "--max", "1001"], "--max"),
    (["cancel"], "request id"),
    (["usage", "--since", "soon"], "--since"),
    (["drain", "iron"], 'unexpected argument "iron"'),
    (["check", "/absent/berth.yaml", "--against", "unix:/absent/a.sock"], "/absent/berth.yaml"),
]

# Commands on a model, their input, and what the line must say.
INPUTS = [
    (["generate", "--prompt-ids", "512"], "", "512 tokens"),
    (["generate", "--prompt", "a", "--stop-token-id", "512"], "", "vocabulary"),
    (["generate", "--prompt", "a", "--logit-bias", "512=1"], "", "vocabulary"),
    (["generate", "--prompt-ids", ""], "", "empty"),
    (["generate", "--prompt", "a", "--max-tokens", "1000"], "", "--max-tokens"),
    (["generate", "--prompt-file", "-"], b"\xff\xfe", "UTF-8"),
    (["generate", "--prompt-file", "-"], "a" * 5000, "context"),
    (["generate", "--prompt", "a", "--max-context", "16777217"], "", "--max-context"),
    (["generate", "--prompt", "a", "--kv-memory", "1KiB"], "", "--kv-memory"),
    (["generate", "--prompt", "Once upon a time", "--kv-memory", "10KiB", "--max-tokens", "100"], "", "block"),
    (["tokenize"], b"ab\xff", "UTF-8"),
    (["tokenize", "--jsonl"], "{", "line 1"),
    (["tokenize", "--jsonl"], '[]', "object"),
    (["tokenize", "--jsonl"], '{"txt": "a"}', '"text" is missing'),
    (["tokenize", "--jsonl"], '{"text": "a", "parse_special": 1}', "parse_special"),
    (["tokenize", "--jsonl"], b'{"text": "\xff"}', "line 1"),
    (["detokenize"], "1 two 3", '"two"'),
    (["detokenize", "--ids", "512"], "", "vocabulary"),
    (["detokenize", "--jsonl"], '{"ids": [1, 512]}', "line 1"),
    (["detokenize", "--jsonl"], '{"ids": "1"}', '"ids"'),
    (["detokenize", "--jsonl"], '{"ids": [1.5]}', "element 0"),
    (["score", "--ids", ""], "", "no token"),
    (["score", "--jsonl"], "{}", "one of"),
    (["score", "--jsonl"], '{"text": "a", "ids": [1]}', "one of"),
    (["score", "--jsonl"], '{"ids": [512]}', "line 1"),
    (["score", "--jsonl"], '{"ids": [%s]}' % ",".join(["5"] * 128), "context"),
]


def name_of(arguments):
    words = [word for word in arguments[:2] if word in {"serve", "generate", "client", "tokenize", "detokenize", "score", "inspect", "batch", "status", "requests", "cancel",
                                                      "usage", "drain", "reload", "check"}]
    return " ".join(["berth", *words])


class Arguments(CliTest):
    def test_every_wrong_command_line_is_one_line_and_exit_code_2(self):
        for arguments, part in ARGUMENTS:
            with self.subTest(arguments=arguments):
                self.fails(berth(*arguments), 2, name_of(arguments), part)

    def test_an_argument_error_says_where_the_help_is(self):
        self.assertIn("see berth generate --help", berth("generate", "--frobnicate").stderr.decode())


class Inputs(CliTest):
    def test_every_bad_input_is_one_line_and_exit_code_2(self):
        model = stories()
        for arguments, stdin, part in INPUTS:
            with self.subTest(arguments=arguments, stdin=stdin[:40]):
                self.fails(berth(*arguments, "--model", model, stdin=stdin), 2, name_of(arguments), part)


class Models(CliTest):
    def commands(self, model):
        return [["generate", "--prompt", "a", "--model", model], ["tokenize", "--text", "a", "--model", model],
                ["detokenize", "--ids", "1", "--model", model], ["score", "--text", "a", "--model", model],
                ["inspect", model], ["serve", "--grpc", "127.0.0.1:0", "--model", model]]

    def test_what_is_no_model_is_named_by_every_command(self):
        with tempfile.TemporaryDirectory() as folder:
            empty = Path(folder) / "empty.gguf"
            empty.write_bytes(b"")
            text = Path(folder) / "text.gguf"
            text.write_text("no model at all\n" * 100)
            cut = Path(folder) / "cut.gguf"
            cut.write_bytes(Path(stories()).read_bytes()[:20000])
            for model in (str(Path(folder) / "absent.gguf"), folder, str(empty), str(text), str(cut)):
                for arguments in self.commands(model):
                    with self.subTest(arguments=arguments):
                        self.fails(berth(*arguments), 2, name_of(arguments), model)

    def test_without_a_default_model_the_line_says_how_to_get_it(self):
        for arguments in (["generate", "--prompt", "a"], ["tokenize", "--text", "a"], ["score", "--text", "a"], ["inspect"], ["serve"]):
            with self.subTest(arguments=arguments):
                done = berth(*arguments, env={"XDG_CACHE_HOME": "/absent"})
                self.fails(done, 2, name_of(arguments), "make model", "--model")


class Outputs(CliTest):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def commands(self):
        model = stories()
        return [["--version"], ["--help"], ["generate", "--help"], ["generate", "--model", model, "--prompt", "a", "--max-tokens", "4"],
                ["generate", "--model", model, "--prompt", "a", "--max-tokens", "4", "--json"],
                ["tokenize", "--model", model, "--text", "a"], ["detokenize", "--model", model, "--ids", "403"],
                ["score", "--model", model, "--text", "Once upon"], ["inspect", model],
                ["serve", "--model", model, "--grpc", "127.0.0.1:0", "--ops", "127.0.0.1:0", "--admin", f"unix:{self.folder}/a.sock", "--json"]]

    def test_a_full_device_is_one_line_and_exit_code_2(self):
        for arguments in self.commands():
            with self.subTest(arguments=arguments), open("/dev/full", "wb") as full:
                done = berth(*arguments, stdout=full)
                self.assertEqual(done.returncode, 2, done.stderr)
                self.assertIn("cannot write to standard output", done.stderr.decode().splitlines()[-1])

    def test_a_closed_standard_output_is_no_other_file(self):
        for arguments in self.commands():
            with self.subTest(arguments=arguments):
                done = subprocess.run(["sh", "-c", 'exec "$0" "$@" >&-', BERTH, *arguments], stderr=subprocess.PIPE, timeout=60)
                self.assertEqual(done.returncode, 2, done.stderr)
                self.assertIn("cannot write to standard output", done.stderr.decode().splitlines()[-1])

    def test_a_closed_standard_input_is_an_empty_one(self):
        empty = berth("tokenize", "--model", stories())
        closed = subprocess.run(["sh", "-c", 'exec "$0" "$@" <&-', BERTH, "tokenize", "--model", stories()],
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=60)
        self.assertEqual((closed.returncode, closed.stdout, closed.stderr), (empty.returncode, empty.stdout, empty.stderr))

    def test_a_reader_that_leaves_ends_a_stream_of_lines_quietly(self):
        with subprocess.Popen([BERTH, "tokenize", "--model", stories(), "--jsonl"], stdin=subprocess.PIPE,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE) as running:
            running.stdin.write(b'{"text": "Once"}\n')
            running.stdin.flush()
            running.stdout.readline()
            running.stdout.close()
            running.stdin.write(b'{"text": "Once"}\n')
            running.stdin.flush()
            self.assertEqual(running.wait(timeout=60), 0)
            self.assertEqual(running.stderr.read(), b"")


class Faults(CliTest):
    def test_a_server_that_is_not_there_is_exit_code_1(self):
        self.fails(berth("client", "generate", "--prompt", "a", "--server", "127.0.0.1:1"), 1, "berth client generate",
                   "127.0.0.1:1", "berth serve")
        for command in (["status"], ["requests"], ["cancel", "x"], ["reload"], ["drain"], ["usage"]):
            with self.subTest(command=command):
                self.fails(berth(*command, "--admin", "unix:/absent/a.sock"), 1, f"berth {command[0]}", "nothing listens at unix:/absent/a.sock")


if __name__ == "__main__":
    unittest.main(verbosity=2)
