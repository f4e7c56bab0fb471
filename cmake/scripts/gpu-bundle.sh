#!/usr/bin/env bash
# Collects what bench/gpu-check runs on a machine with a GPU: gpu-bundle.sh BUILD_FOLDER SHARED_FOLDER
#
# One folder, BUILD_FOLDER/bundle: programs that need the C library and the driver alone (cuBLASLt is loaded when it is
# needed, from that machine), and stories260K with its golden text. Fails beyond 48 MiB, or where a program needs more.
set -euo pipefail
[ $# = 2 ] || { sed -n 2,5p "$0" >&2; exit 2; }
build=$1
shared=$2
bundle=$build/bundle
limit_mib=48

rm -rf "$bundle"
mkdir -p "$bundle/bin" "$bundle/model"
programs=(conformance_device_test cuda_kernels_device_test op_registry_device_test cuda_backend_device_test gpu_bench
  gpu_steps berth_local)
for program in "${programs[@]}"; do
  strip -o "$bundle/bin/$program" "$build/bin/$program"
  foreign=$(ldd "$bundle/bin/$program" | awk '{print $1}' | grep -vE '^(linux-vdso|libc|libm|libdl|librt|libpthread)\.so|^/lib.*/ld-linux' || true)
  [ -z "$foreign" ] || { echo "$program needs $foreign" >&2; exit 1; }
done
cp "$shared/models/stories260K-f32.gguf" "$shared/models/stories260K-f16.gguf" "$shared/models/stories260K-greedy.txt" "$bundle/model/"
git rev-parse --short HEAD >"$bundle/revision" 2>/dev/null || echo unknown >"$bundle/revision"
size_mib=$(($(du -sk "$bundle" | cut -f1) / 1024 + 1))
[ "$size_mib" -le "$limit_mib" ] || { du -ak "$bundle" >&2; echo "$size_mib MiB: more than $limit_mib" >&2; exit 1; }
echo "$bundle: $size_mib MiB"
