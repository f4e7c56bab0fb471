#!/usr/bin/env bash
# Installs the Debian packages that a group needs, if they are missing: install-packages.sh build [test] [lint]
# docs/dependencies.md says what each is for. As root, or through sudo.
set -euo pipefail

declare -A groups=(
  [build]="g++ cmake ninja-build ccache pkg-config python3 python3-pip libgrpc++-dev libprotobuf-dev protobuf-compiler
           protobuf-compiler-grpc libabsl-dev libspdlog-dev nlohmann-json3-dev libcli11-dev libutf8proc-dev
           libyaml-cpp-dev libssl-dev prometheus-cpp-dev libmicrohttpd-dev"
  [test]="libgtest-dev libgmock-dev libbenchmark-dev libpcre2-dev python3-venv prometheus python3-yaml
          libboost-context-dev libopenblas-dev"
  [lint]="clang-format clang-tidy"
)
wanted=()
for group in "$@"; do
  [ -n "${groups[$group]:-}" ] || { echo "install-packages.sh: no group '$group' (there are: ${!groups[*]})" >&2; exit 2; }
  read -ra names -d '' <<<"${groups[$group]}" || true
  wanted+=("${names[@]}")
done

if ! command -v apt-get >/dev/null; then
  echo "This is not a Debian system: install these packages' equivalents yourself, then build with cmake --preset cpu:" >&2
  echo "  ${wanted[*]}" >&2
  exit 0
fi

missing=()
for package in "${wanted[@]}"; do
  [ "$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null)" = installed ] || missing+=("$package")
done
[ ${#missing[@]} -gt 0 ] || exit 0

as_root=()
if [ "$(id -u)" != 0 ]; then
  command -v sudo >/dev/null || { echo "Missing packages, and neither root nor sudo to install them: ${missing[*]}" >&2; exit 2; }
  as_root=(sudo)
fi
# The tests run a Prometheus of their own: the package's service, which would take port 9090, stays off.
service=/etc/systemd/system/prometheus.service
if [[ " ${missing[*]} " == *" prometheus "* && -d /etc/systemd/system && ! -e $service ]]; then
  "${as_root[@]}" ln -s /dev/null "$service"
  echo "The service of the package prometheus is masked; to have it: systemctl unmask prometheus"
fi
echo "Installing ${#missing[@]} Debian packages: ${missing[*]}"
"${as_root[@]}" apt-get update -q >/dev/null
# One line in twenty is progress enough.
DEBIAN_FRONTEND=noninteractive "${as_root[@]}" apt-get install -yq --no-install-recommends "${missing[@]}" 2>&1 |
  awk '/^Fetched/ {print "  " $0} /^Setting up/ {if (++n % 20 == 0) print "  " n " packages set up"} /^E: / {print > "/dev/stderr"}'
