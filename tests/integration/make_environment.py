"""Makes the Python environment of the integration tests: a venv with the pinned packages, and the stubs of our protos.

Usage: make_environment.py ENVIRONMENT PROTO_ROOT

Does nothing where it is made already. Exit 77, which ctest takes for "skipped", where it cannot be made; 1 where CI=true.
"""

import hashlib
import os
import pathlib
import shutil
import subprocess
import sys

SKIPPED = 77
REQUIREMENTS = pathlib.Path(__file__).with_name("requirements.txt")


def main() -> int:
    environment, proto_root = (pathlib.Path(argument).resolve() for argument in sys.argv[1:3])
    protos = sorted(proto_root.rglob("*.proto"))
    digest = hashlib.sha256(sys.version.encode())
    for path in [REQUIREMENTS, *protos]:
        digest.update(path.read_bytes())
    stamp = environment / "stamp"
    if stamp.exists() and stamp.read_text() == digest.hexdigest():
        return 0

    shutil.rmtree(environment, ignore_errors=True)
    python = environment / "venv" / "bin" / "python"
    stubs = environment / "stubs"
    stubs.mkdir(parents=True)
    pip = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "-r", str(REQUIREMENTS)]
    protoc = ["-m", "grpc_tools.protoc", f"-I{proto_root}", f"--python_out={stubs}", f"--grpc_python_out={stubs}"]
    try:
        subprocess.run([sys.executable, "-m", "venv", str(environment / "venv")], check=True, timeout=120)
        subprocess.run([str(python), *pip], check=True, timeout=420)
    except (subprocess.CalledProcessError, subprocess.TimeoutExpired, OSError) as error:
        print(f"the Python environment of the integration tests cannot be made here: {error}")
        return 1 if os.environ.get("CI") == "true" else SKIPPED
    subprocess.run([str(python), *protoc, *(str(path) for path in protos)], check=True, timeout=60)
    stamp.write_text(digest.hexdigest())
    return 0


if __name__ == "__main__":
    sys.exit(main())
