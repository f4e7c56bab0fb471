"""Runs pytest on one file in the environment that make_environment.py made.

Usage: run_tests.py ENVIRONMENT FILE

Exit 77, which ctest takes for "skipped", where there is no environment or every test was skipped; 1 where CI=true.
"""

import os
import pathlib
import subprocess
import sys

SKIPPED = 77
HERE = pathlib.Path(__file__).resolve().parent


def main() -> int:
    environment, test_file = (pathlib.Path(argument).resolve() for argument in sys.argv[1:3])
    skipped = 1 if os.environ.get("CI") == "true" else SKIPPED
    if not (environment / "stamp").exists():
        print("the Python environment of the integration tests is missing")
        return skipped
    python_path = os.pathsep.join([str(environment / "stubs"), str(HERE)])
    report = environment / f"{test_file.stem}.xml"
    result = subprocess.run(
        [
            str(environment / "venv" / "bin" / "python"), "-m", "pytest", "-q", "-rs", "-p", "no:cacheprovider",
            f"--junit-xml={report}", f"--rootdir={HERE}", str(test_file),
        ],
        env={**os.environ, "PYTHONPATH": python_path, "PYTHONDONTWRITEBYTECODE": "1"},
        check=False,
    )
    if result.returncode == 0 and "<skipped" in report.read_text() and _all_skipped(report):
        return skipped
    return result.returncode


def _all_skipped(report: pathlib.Path) -> bool:
    import xml.etree.ElementTree as xml

    suite = xml.parse(report).getroot().find("testsuite")
    return suite is not None and suite.get("tests") == suite.get("skipped")


if __name__ == "__main__":
    sys.exit(main())
