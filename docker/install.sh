#!/usr/bin/env bash
# Makes a Debian 12 ready to run what build.sh made: install.sh BUILT [ROOT_OF_INSTALLATION, default /usr/local]
#
# Installs the libraries, copies the program, and makes the user berth (65532) and the folder of its admin socket. The last
# stage of docker/Dockerfile; as root.
set -euo pipefail
[ $# -ge 1 ] || { sed -n 2,5p "$0" >&2; exit 2; }
built=$1
prefix=${2:-/usr/local}

mapfile -t packages <"$built/share/berth/runtime-packages.txt"
apt-get update -q >/dev/null
DEBIAN_FRONTEND=noninteractive apt-get install -yq --no-install-recommends "${packages[@]}" >/dev/null
rm -rf /var/lib/apt/lists/*
install -D "$built/bin/berth" "$prefix/bin/berth"
# cuBLASLt, of a build for GPUs.
if [ -d "$built/lib" ]; then
  install -D -t "$prefix/lib" "$built"/lib/*
  ldconfig
fi
# A number above those that Debian gives away by itself, so that it can be named in manifests.
getent group berth >/dev/null || groupadd -K SYS_GID_MAX=65533 --system --gid 65532 berth
getent passwd berth >/dev/null ||
  useradd -K SYS_UID_MAX=65533 --system --uid 65532 --gid 65532 --no-create-home --shell /usr/sbin/nologin berth
install -d -o berth -g berth -m 0700 /run/berth
"$prefix/bin/berth" --version
