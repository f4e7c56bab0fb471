#!/usr/bin/env bash
# Format of every source file and static analysis of the product's, findings as errors: lint.sh BUILD_FOLDER JOBS
# (Tests are compiled with the same warnings; analysing GoogleTest's macros takes longer than everything else together.)
# The folder must hold compile_commands.json and the generated protobuf headers.
set -euo pipefail
build=$1
jobs=$2

mapfile -t files < <(git ls-files '*.h' '*.cc' '*.cu')
clang-format --dry-run --Werror "${files[@]}"

mapfile -t sources < <(git ls-files 'src/*.cc' 'kernels/*.cc')
# CUDA kernels are C++ to the emulation of the tests, where CUDA's headers are.
if grep -q 'kernels/cuda/.*\.cu"' "$build/compile_commands.json"; then
  mapfile -t -O "${#sources[@]}" sources < <(git ls-files 'kernels/cuda/*.cu')
fi
printf '%s\n' "${sources[@]}" |
  xargs -P "$jobs" -n 1 clang-tidy -p "$build" --quiet --warnings-as-errors='*' --extra-arg=-Wno-unknown-warning-option \
    --extra-arg=-Wreserved-identifier --extra-arg=-Wreserved-macro-identifier 2> >(grep -v 'warnings generated' >&2 || true)
echo "lint: ${#files[@]} files clean"
