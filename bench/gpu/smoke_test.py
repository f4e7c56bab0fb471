#!/usr/bin/env python3
"""Runs every case of gpu_bench at toy size and checks what it reports: smoke_test.py PROGRAM"""

import json
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

PROGRAM = sys.argv.pop(1)
GROUPS = {"ceiling", "decode", "decode_plain", "prefill", "gemm", "quantized", "dequantize", "rms_norm", "rope_kv_write", "gate", "embedding",
          "block_copies", "sampling"}


def bench(*arguments: str):
    return subprocess.run([PROGRAM, *arguments], capture_output=True, text=True, check=False)


class SmokeTest(unittest.TestCase):
    def test_every_case_runs_and_is_reported(self):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "results.json"
            run = bench("--smoke", "--json", str(path))
            self.assertEqual(run.returncode, 0, run.stdout + run.stderr)
            report = json.loads(path.read_text(encoding="utf-8"))
        names = [row["name"] for row in report["cases"]]
        self.assertEqual(len(names), len(set(names)), "two cases have one name")
        self.assertEqual({name.split("/")[0] for name in names}, GROUPS)
        for row in report["cases"]:
            self.assertEqual(row["status"], "measured", row)
            self.assertGreater(row["seconds"]["median"], 0, row)
            self.assertIn(row["name"], run.stdout)
        self.assertTrue(names[0].startswith("ceiling/"))
        self.assertGreater(report["ceilings"]["bytes_per_second"], 0)
        self.assertGreater(report["ceilings"]["flops_per_second"], 0)

    def test_what_does_not_fit_is_skipped_with_a_line(self):
        run = bench("--repetitions", "1", "--memory-gib", "0.001", "--filter", "^decode/d128/bf16/gqa4/batch256/ctx16384$")
        self.assertEqual(run.returncode, 0, run.stdout + run.stderr)
        self.assertIn("skipped: needs more than", run.stdout)

    def test_a_case_that_fails_is_told_and_the_rest_go_on(self):
        run = bench("--smoke", "--chunk-tokens", "63", "--filter", "^(decode/|embedding)")
        self.assertEqual(run.returncode, 1, run.stdout + run.stderr)
        self.assertIn("failed: cuda::LaunchPagedDecode: cudaErrorInvalidValue", run.stdout)
        embedding = [line for line in run.stdout.splitlines() if line.startswith("embedding/")]
        self.assertEqual(len(embedding), 1)
        self.assertNotIn("failed", embedding[0])

    def test_a_bad_expression_is_told(self):
        run = bench("--filter", "(")
        self.assertEqual(run.returncode, 2)
        self.assertIn("--filter is no regular expression", run.stderr)


if __name__ == "__main__":
    unittest.main()
