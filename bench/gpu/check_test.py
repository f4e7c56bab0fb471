#!/usr/bin/env python3
"""bench/gpu-check on a bundle of programs that run on the emulation: check_test.py BIN_FOLDER SHARED_FOLDER"""

import importlib.machinery
import importlib.util
import json
import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

SHARED, BIN = Path(sys.argv.pop()), Path(sys.argv.pop()).absolute()
CHECK = Path(__file__).resolve().parent.parent / "gpu-check"
PROGRAMS = {"conformance_device_test": "conformance_test", "op_registry_device_test": "op_registry_test",
            "cuda_kernels_device_test": "cuda_kernels_test", "cuda_backend_device_test": "cuda_backend_test",
            "gpu_bench": "gpu_bench_emulated", "gpu_steps": "gpu_steps_emulated", "berth_local": "berth_local_emulated"}
MODEL_FILES = ("stories260K-f32.gguf", "stories260K-f16.gguf", "stories260K-greedy.txt")


def load_check():
    """The program as a module: its name has no .py."""
    sys.dont_write_bytecode = True
    loader = importlib.machinery.SourceFileLoader("gpu_check", str(CHECK))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader("gpu_check", loader))
    loader.exec_module(module)
    return module


class GpuCheck(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.bundle = Path(self.folder.name) / "bundle"
        (self.bundle / "bin").mkdir(parents=True)
        (self.bundle / "model").mkdir()
        (self.bundle / "revision").write_text("test\n", encoding="utf-8")
        for name, program in PROGRAMS.items():
            (self.bundle / "bin" / name).symlink_to(BIN / program)

    def tearDown(self):
        self.folder.cleanup()

    def check(self, *parts, path=""):
        report = Path(self.folder.name) / "report.json"
        arguments = [a for part in parts for a in ("--only", part)]
        run = subprocess.run([CHECK, "--bundle", self.bundle, "--output", report, *arguments], capture_output=True, text=True,
                             check=False, env={**os.environ, "PATH": path + os.environ["PATH"]})
        return run, json.loads(report.read_text(encoding="utf-8"))

    def give_models(self):
        for name in MODEL_FILES:
            if not (SHARED / "models" / name).exists():
                if os.environ.get("CI") == "true":
                    self.fail(f"{name} is not in {SHARED}")
                self.skipTest(f"{name} is not in {SHARED}")
            (self.bundle / "model" / name).symlink_to(SHARED / "models" / name)

    def test_what_holds_is_told_as_passed(self):
        self.give_models()
        run, report = self.check("wrappers", "text")
        self.assertEqual(run.returncode, 0, run.stdout + run.stderr)
        self.assertEqual({name: part["outcome"] for name, part in report["parts"].items()},
                         {"wrappers": "passed", "text": "passed"})
        self.assertEqual(report["revision"], "test")

    def test_a_part_that_fails_takes_no_other_with_it(self):
        self.give_models()
        (self.bundle / "bin" / "conformance_device_test").unlink()
        golden = self.bundle / "model" / "stories260K-greedy.txt"
        text = golden.read_text(encoding="utf-8")
        golden.unlink()
        golden.write_text(text.replace("She loved to play", "She loved to work"), encoding="utf-8")
        run, report = self.check("wrappers", "text", "torch")
        self.assertEqual(run.returncode, 1, run.stdout + run.stderr)
        self.assertIn("No such file", report["parts"]["wrappers"]["why"])
        self.assertIn("differs from character", report["parts"]["text"]["why"])
        self.assertEqual(report["parts"]["torch"]["outcome"], "left out")

    def test_the_sanitizer_runs_tests_and_what_it_finds_is_told(self):
        tools = Path(self.folder.name) / "tools"
        tools.mkdir()
        tool = tools / "compute-sanitizer"
        # --tool KIND --error-exitcode N PROGRAM ARGUMENTS...
        for does, outcome in (('"$@" && echo "========= ERROR SUMMARY: 0 errors"', "passed"),
                              ('echo "========= Error: Device not supported"; exit 1', "left out"),
                              ('echo "========= RACECHECK SUMMARY: 3 hazards displayed (0 errors, 3 warnings)"; exit 9', "passed"),
                              ('echo "========= ERROR SUMMARY: as told"; exit 9', "FAILED")):
            tool.write_text(f"#!/bin/sh\nshift 4; {does}\n", encoding="utf-8")
            tool.chmod(0o755)
            run, report = self.check("sanitizer", path=f"{tools}:")
            self.assertEqual(report["parts"]["sanitizer"]["outcome"], outcome, run.stdout + run.stderr)
        for kind in ("memcheck", "racecheck", "synccheck"):
            self.assertIn(f"{kind} of op_registry_device_test: ERROR SUMMARY", report["parts"]["sanitizer"]["why"])

    def test_what_hangs_ends_with_all_that_it_started(self):
        module = load_check()
        check = module.Check(self.options(module))
        # The output ends when nobody holds the pipe any more: what went on in the background is gone too.
        status, output = check.run(["sh", "-c", "sleep 3600 & echo begun; wait"], 1)
        self.assertEqual(status, 124)
        self.assertIn("begun", output)
        self.assertNotIn("not gone", output)

    def test_each_part_is_written_when_it_is_over(self):
        module = load_check()
        check = module.Check(self.options(module))

        def stopped():
            raise KeyboardInterrupt

        check.part("first", lambda: (module.PASSED, {"figure": 1}))
        with self.assertRaises(KeyboardInterrupt):
            check.part("second", stopped)
        report = json.loads(Path(check.path).read_text(encoding="utf-8"))
        self.assertEqual(report["parts"]["first"]["figure"], 1)

    def test_pytorch_finds_its_own_libraries(self):
        module = load_check()
        check = module.Check(self.options(module))
        check.environment["LD_LIBRARY_PATH"] = "/ours"
        seen = []

        def run(command, seconds, environment=None):
            seen.append((environment or check.environment).get("LD_LIBRARY_PATH"))
            return 3, "no PyTorch"

        check.run = run
        self.assertEqual(check.torch("sdpa")[0], module.LEFT_OUT)
        self.assertEqual(seen, [os.environ.get("LD_LIBRARY_PATH")])

    def options(self, module):
        return module.argparse.Namespace(bundle=self.bundle, only=None, output=Path(self.folder.name) / "report.json")

    def test_an_unknown_part_and_a_missing_bundle_are_told(self):
        run = subprocess.run([CHECK, "--bundle", self.bundle, "--only", "nothing"], capture_output=True, text=True, check=False)
        self.assertEqual(run.returncode, 2)
        self.assertIn("wrappers", run.stderr)
        run = subprocess.run([CHECK, "--bundle", "/absent"], capture_output=True, text=True, check=False)
        self.assertEqual(run.returncode, 2)
        self.assertIn("make gpu-bundle", run.stderr)


if __name__ == "__main__":
    unittest.main()
