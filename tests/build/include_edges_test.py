#!/usr/bin/env python3
"""Checks every #include of src/, kernels/ and include/ against the architecture: who may include whom."""

import re
import sys
from pathlib import Path

# Module -> modules it may include besides itself, include/berth and base.
ALLOWED = {
    "base": set(),
    "config": {"admission"},
    "telemetry": set(),
    "model": set(),
    "tokenizer": {"model"},
    "kv": set(),
    "admission": set(),
    "scheduler": {"kv"},
    "runner": {"model", "kernels"},
    "engine": {"admission", "scheduler", "kv", "runner", "tokenizer"},
    "frontend": {"engine", "tokenizer", "model"},
    "simulator": {"admission", "scheduler", "kv"},
    "cli": {"config", "telemetry", "model", "tokenizer", "kv", "admission", "scheduler", "runner", "kernels", "engine",
            "frontend", "simulator"},
}
COMMON = {"berth", "base"}

# Third-party headers and the only modules that may see them.
FENCES = {
    r"(grpc|grpcpp|google/protobuf|google/rpc)/|\.pb\.h$": {"frontend", "cli"},
    r"yaml-cpp/": {"config"},
    r"openssl/": {"base"},
    r"nlohmann/": {"cli", "config", "model", "frontend", "simulator"},
    r"CLI/": {"cli"},
    r"prometheus/|microhttpd\.h$": {"telemetry"},
    r"utf8proc\.h$": {"tokenizer"},
    r"immintrin\.h$": {"kernels"},
    r"^(cuda\w*|cublas\w*)\.h$": {"kernels", "runner"},
}
# CUDA inside kernels/: what the rest of the product fills in knows none of it, kernels reach it through one header
# alone, and only that header knows that the tests have an emulation of it.
GPU_HEADER = Path("kernels/gpu.h")
CUDA_FOLDER = Path("kernels/cuda")
CUDA_HEADER = r"^(cuda|cublas)\w*\.h$"
LAUNCH_HEADER = "cuda_runtime_api.h"  # cudaStream_t and cudaError_t, for the headers that declare launches
# The backend calls the host's side of CUDA; device code it has none of.
BACKEND_FOLDER = Path("src/runner/cuda")
BACKEND_HEADERS = {LAUNCH_HEADER, "cublasLt.h"}
# What only gpu.h may write: the emulation cannot run it.
DEVICE_ONLY = re.compile(r"\basm\b|__CUDA_ARCH__|<<<|__shared__")
# The deterministic core has no threads, no clock of its own, no randomness and no I/O.
CORE = {"kv", "admission", "scheduler"}
CORE_FORBIDDEN = r"^(thread|mutex|condition_variable|atomic|future|random|iostream|fstream|cstdio|filesystem)$"

INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]', re.MULTILINE)
PROTO = re.compile(r"\.pb\.h$")


def module_of(path: Path) -> str:
    parts = path.parts
    return {"src": parts[1], "kernels": "kernels", "include": "berth"}[parts[0]]


def cuda_faults(relative: Path, text: str):
    if relative == GPU_HEADER:
        return
    if relative.parts[0] != "kernels":
        for _, header in INCLUDE.findall(text):
            if re.match(CUDA_HEADER, header) and not (BACKEND_FOLDER in relative.parents and header in BACKEND_HEADERS):
                yield f"{relative}: <{header}> belongs in {BACKEND_FOLDER} only, and of CUDA's only {sorted(BACKEND_HEADERS)}"
        return
    inside = CUDA_FOLDER in relative.parents
    for _, header in INCLUDE.findall(text):
        if header.startswith("emulation/"):
            yield f'{relative}: "{header}": only {GPU_HEADER} may include the emulation'
        if header == str(GPU_HEADER) and not inside:
            yield f'{relative}: "{header}" is for {CUDA_FOLDER} only'
        if re.match(CUDA_HEADER, header) and not (inside and header == LAUNCH_HEADER):
            yield f"{relative}: <{header}>: kernels include {GPU_HEADER} instead"
    if inside:
        for line, content in enumerate(text.splitlines(), start=1):
            found = DEVICE_ONLY.search(content.split("//")[0])
            if found:
                yield f"{relative}:{line}: {found[0]} belongs in {GPU_HEADER} only"


def faults(root: Path):
    modules = {p.name for p in (root / "src").iterdir() if p.is_dir()} | {"kernels", "berth"}
    files = sorted(p for top in ("src", "kernels", "include") for p in (root / top).rglob("*")
                   if p.suffix in {".h", ".cc", ".cu", ".cuh", ".inc"})
    if len(files) < 20:
        yield f"only {len(files)} source files found under {root}: looking in the wrong place?"
    for path in files:
        relative = path.relative_to(root)
        module = module_of(relative)
        if module not in ALLOWED and module not in {"kernels", "berth"}:
            yield f"{relative}: module '{module}' is not in the list of allowed edges"
            continue
        text = path.read_text(encoding="utf-8")
        yield from cuda_faults(relative, text)
        for quote, header in INCLUDE.findall(text):
            for fence, inside in FENCES.items():
                if re.search(fence, header) and module not in inside:
                    yield f"{relative}: <{header}> belongs in {sorted(inside)} only"
            if module in CORE and re.match(CORE_FORBIDDEN, header):
                yield f"{relative}: <{header}>: the deterministic core has no threads, clock, randomness or I/O"
            if quote == "<" or PROTO.search(header) or header.startswith("absl/"):
                continue
            if header.startswith("emulation/") and module == "kernels":
                continue  # cuda_faults
            if header == str(GPU_HEADER) and module != "kernels":
                yield f'{relative}: "{header}": device code stays in kernels'
            target = header.split("/")[0]
            if "/" not in header or target not in modules:
                yield f'{relative}: "{header}" is not written as "module/file.h"'
            elif target == module:
                continue
            elif module in {"kernels", "berth"}:
                yield f'{relative}: "{header}": {module} includes only itself'
            elif target not in ALLOWED[module] | COMMON:
                yield f'{relative}: "{header}": {module} may not include {target}'


def main() -> int:
    found = list(faults(Path(sys.argv[1])))
    print("\n".join(found) or "all include edges are allowed")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
