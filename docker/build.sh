#!/usr/bin/env bash
# Builds a release of berth and notes what it needs at run time: build.sh DESTINATION
#
# With CUDA=1 it is one that runs on NVIDIA GPUs too, and nvcc has to be on PATH: DESTINATION then also gets cuBLASLt.
# DESTINATION gets bin/berth, and share/berth/runtime-packages.txt with the Debian packages that hold its libraries. This is
# the first stage of docker/Dockerfile, and runs as well without Docker, as root on any Debian 12.
set -euo pipefail
[ $# = 1 ] || { sed -n 2,7p "$0" >&2; exit 2; }
mkdir -p "$1"
destination=$(cd "$1" && pwd)
cd "$(dirname "$0")/.."

cmake/scripts/install-packages.sh build
options=()
if [ "${CUDA:-0}" = 1 ]; then
  options=(-DBERTH_CUDA=ON "-DBERTH_CUDA_ARCHITECTURES=${CUDA_ARCHITECTURES:-80;89;90a}")
fi
cmake --preset cpu "${options[@]}" -DBERTH_BUILD_TESTS=OFF -DBERTH_BUILD_BENCHMARKS=OFF -B build/image >/dev/null
cmake --build build/image -j"${JOBS:-2}" --target berth_cli
install -D --strip build/image/bin/berth "$destination/bin/berth"
if [ "${CUDA:-0}" = 1 ]; then
  library=$(find -L "$(dirname "$(command -v nvcc)")/.." -name 'libcublasLt.so.*' | sort | head -n 1)
  install -D "$library" "$destination/lib/$(basename "$library" | cut -d . -f 1-3)"
fi

# The package of each shared library. A library under /lib may be listed under /usr/lib, and the other way round.
package_of() {
  dpkg-query -S "$1" 2>/dev/null || dpkg-query -S "/usr$1" 2>/dev/null || dpkg-query -S "${1#/usr}"
}
mkdir -p "$destination/share/berth"
ldd "$destination/bin/berth" | grep -o '/[^ ]*' | while read -r library; do
  package_of "$library" | cut -d : -f 1
done | sort -u >"$destination/share/berth/runtime-packages.txt"
