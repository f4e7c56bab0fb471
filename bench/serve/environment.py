"""The Python of the integration tests, with gRPC and the stubs of our protos: made where it is missing, and entered."""

import os
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
ENVIRONMENT = ROOT / "build" / "python"


def enter() -> None:
    """Runs this very program again in the environment, unless it runs there already."""
    python = ENVIRONMENT / "venv" / "bin" / "python"
    if pathlib.Path(sys.prefix) == python.parents[1]:
        sys.path.insert(0, str(ENVIRONMENT / "stubs"))
        return
    maker = ROOT / "tests" / "integration" / "make_environment.py"
    if subprocess.run([sys.executable, str(maker), str(ENVIRONMENT), str(ROOT / "proto")], check=False).returncode != 0:
        sys.exit("the Python environment with gRPC cannot be made here")
    os.execv(python, [str(python), *sys.argv])
