#!/usr/bin/env python3
"""Format of every source file and static analysis of the product's, findings as errors.

usage: lint.py BUILD_FOLDER JOBS [TEXT]

Tests are compiled with the same warnings; analysing GoogleTest's macros takes longer than everything else together.
The folder must hold compile_commands.json and the generated protobuf headers. With TEXT only files whose path contains
it are analysed.
"""

import itertools
import json
import shlex
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path

# Sources of one module are analysed as one: most of the time goes into the headers that they share. Kernels stay alone, as
# nvcc compiles them: they use the same names.
BATCH = {".cc": 8, ".cu": 1}
# CUDA kernels are C++ to the emulation of the tests, where CUDA's headers are.
ANALYSED = ("src/*.cc", "kernels/*.cc", "kernels/cuda/*.cu")
TIDY = ["clang-tidy", "--quiet", "--extra-arg=-Wno-unknown-warning-option", "--extra-arg=-Wreserved-identifier",
        "--extra-arg=-Wreserved-macro-identifier"]


def listed(*patterns: str) -> list[str]:
    return subprocess.run(["git", "ls-files", *patterns], check=True, capture_output=True, text=True).stdout.split()


def batches(build: Path, text: str) -> dict[str, str]:
    """Writes files that include a few sources with the same flags each, and a compilation database of them.

    Returns what stands in each, by path.
    """
    root = Path.cwd()
    wanted = {str(root / source): source for source in listed(*ANALYSED) if text in source}
    by_flags: dict[tuple, set[str]] = {}
    for entry in json.loads((build / "compile_commands.json").read_text()):
        source = entry["file"]
        # Several targets may compile a file; one is enough, and of nvcc's clang-tidy knows nothing.
        command = shlex.split(entry["command"])
        if source not in wanted or "nvcc" in command[0]:
            continue
        del wanted[source]
        out = command.index("-o")
        flags = tuple(word for i, word in enumerate(command) if i not in (out, out + 1) and word not in ("-c", source))
        by_flags.setdefault((entry["directory"], flags), set()).add(source)
    if missing := [source for source in wanted.values() if not source.endswith(".cu")]:
        sys.exit(f"lint: no target compiles {', '.join(missing)}")

    folder = build / "lint"
    folder.mkdir(exist_ok=True)
    entries, parts = [], {}
    for (directory, flags), sources in by_flags.items():
        for (module, kind), files in itertools.groupby(sorted(sources), lambda path: (Path(path).parent, Path(path).suffix)):
            files = list(files)
            for first in range(0, len(files), BATCH[kind]):
                # The analyser follows includes of sources where the file that has them is called so.
                unified = (folder / f"UnifiedSource-{len(entries)}.cc").resolve()
                some = files[first:first + BATCH[kind]]
                unified.write_text("".join(f'#include "{f}"  // NOLINT(bugprone-suspicious-include)\n' for f in some))
                entries.append({"directory": directory, "file": str(unified), "arguments": [*flags, "-c", str(unified)]})
                parts[str(unified)] = f"{module.relative_to(root)}: {' '.join(Path(f).name for f in some)}"
    (folder / "compile_commands.json").write_text(json.dumps(entries))
    return parts


def main() -> None:
    if len(sys.argv) not in (3, 4):
        sys.exit(__doc__)
    build, jobs, text = Path(sys.argv[1]), int(sys.argv[2]), (*sys.argv, "")[3]
    files = listed("*.h", "*.cc", "*.cu")
    if subprocess.run(["clang-format", "--dry-run", "--Werror", *files]).returncode != 0:
        sys.exit("lint: `make format` rewrites these")

    parts = batches(build, text)
    failed = 0
    with ThreadPoolExecutor(jobs) as pool:
        runs = {pool.submit(subprocess.run, [*TIDY, "-p", str(build / "lint"), unified], capture_output=True, text=True): names
                for unified, names in parts.items()}
        for done, run in enumerate(as_completed(runs), 1):
            print(f"[{done}/{len(parts)}] {runs[run]}", flush=True)
            if run.result().returncode != 0:
                failed += 1
                print(run.result().stdout or run.result().stderr, flush=True)
    if failed > 0:
        sys.exit(f"lint: findings in {failed} of {len(parts)} parts")
    print(f"lint: {len(files)} files clean")


if __name__ == "__main__":
    main()
