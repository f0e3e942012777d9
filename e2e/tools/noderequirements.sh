#!/usr/bin/env bash
# Fails where a cluster with a node cannot be built or run, and names all that is missing in one message.
set -euo pipefail
obstacles=() packages=()
[[ $OSTYPE == linux* ]] || obstacles+=("Linux")
((EUID == 0)) || obstacles+=("root, for namespaces and mounts")
[[ -d /sys/fs/cgroup/memory ]] || obstacles+=("cgroups of version 1 in /sys/fs/cgroup")

need() { # PACKAGE COMMAND...: the Debian package that has what the command looks for
  local package=$1
  shift
  "$@" >/dev/null 2>&1 || packages+=("$package")
}
need iproute2 command -v ip
need mount command -v mount
need iptables command -v iptables-restore
need containernetworking-plugins test -x /usr/lib/cni/bridge
need busybox-static test -x /bin/busybox
need gcc command -v "${CC:-gcc}"
need pkg-config command -v pkg-config
need libseccomp-dev pkg-config --exists libseccomp

if ((${#packages[@]})); then obstacles+=("Debian packages: apt-get install --no-install-recommends --yes ${packages[*]}"); fi
if ((${#obstacles[@]} == 0)); then exit 0; fi
printf 'A cluster with a node needs:\n' >&2
printf '  %s\n' "${obstacles[@]}" >&2
exit 1
