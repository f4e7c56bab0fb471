"""What the command line's tests share: where the program and the data are, how a command is run and judged."""

import json
import os
import subprocess
import unittest
from pathlib import Path

BERTH = os.environ["BERTH_BINARY"]
DATA = Path(__file__).resolve().parents[2] / "data"
SANITIZED = bool(os.environ.get("BERTH_SANITIZE"))
TIMEOUT_S = 300


def _require(path, what):
    """The path; skips the test where it is absent, fails it where CI=true."""
    if path.exists():
        return str(path)
    if os.environ.get("CI") == "true":
        raise AssertionError(f"{what} is missing")
    raise unittest.SkipTest(f"{what} is missing")


def shared(relative):
    return _require(Path(os.environ["BERTH_SHARED_DIR"]) / relative, f"shared test data {relative}")


def stories(variant="f32"):
    return shared(f"models/stories260K-{variant}.gguf")


def smollm2():
    folder = os.environ.get("BERTH_MODEL_DIR")
    if not folder:
        cache = os.environ.get("XDG_CACHE_HOME") or Path(os.environ.get("HOME", "/")) / ".cache"
        folder = Path(cache) / "berth" / "models"
    return _require(Path(folder) / "SmolLM2-135M-Instruct.Q4_1.gguf", "the default model ('make model' fetches it)")


def berth(*args, stdin=b"", stdout=subprocess.PIPE, env=None):
    """Runs the program to its end; bytes in, bytes out."""
    if isinstance(stdin, str):
        stdin = stdin.encode()
    return subprocess.run([BERTH, *map(str, args)], input=stdin, stdout=stdout, stderr=subprocess.PIPE,
                          timeout=TIMEOUT_S, env={**os.environ, **(env or {})})


def start(*args, **options):
    """Starts the program; use it as a context."""
    return subprocess.Popen([BERTH, *map(str, args)], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                            stderr=subprocess.PIPE, **options)


class CliTest(unittest.TestCase):
    maxDiff = 2000

    def ok(self, *args, **options):
        """Standard output of a command that succeeds."""
        done = berth(*args, **options)
        self.assertEqual(done.returncode, 0, done.stderr.decode())
        return done.stdout.decode()

    def ok_json(self, *args, **options):
        """The one object that a command prints."""
        text = self.ok(*args, "--json", **options)
        self.assertEqual(text.count("\n"), 1, "one object is one line")
        return json.loads(text)

    def fails(self, done, code, command, *parts):
        """One line on standard error that names the command and has each part; nothing on standard output. A server says it as
        an entry of its log, which is JSON where nobody watches."""
        line = done.stderr.decode()
        if line.startswith("{"):
            entry = json.loads(line)
            self.assertEqual(entry["level"], "error", line)
            line = entry["msg"] + "\n"
        self.assertEqual(done.returncode, code, line)
        self.assertTrue(line.startswith(f"{command}: "), line)
        self.assertEqual(line.count("\n"), 1, line)
        self.assertTrue(line.endswith("\n"), line)
        for part in parts:
            self.assertIn(part, line)
        self.assertFalse(done.stdout, done.stdout)
