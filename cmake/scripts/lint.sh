#!/usr/bin/env bash
# Format and static analysis of every source file, findings as errors: lint.sh BUILD_FOLDER JOBS
# The folder must hold compile_commands.json and the generated protobuf headers.
set -euo pipefail
build=$1
jobs=$2

mapfile -t files < <(git ls-files '*.h' '*.cc')
clang-format --dry-run --Werror "${files[@]}"

mapfile -t sources < <(git ls-files 'src/*.cc' 'kernels/*.cc' 'tests/*.cc' 'bench/*.cc')
printf '%s\n' "${sources[@]}" |
  xargs -P "$jobs" -n 4 clang-tidy -p "$build" --quiet --warnings-as-errors='*' --extra-arg=-Wno-unknown-warning-option 2> >(grep -v 'warnings generated' >&2 || true)
echo "lint: ${#files[@]} files clean"
