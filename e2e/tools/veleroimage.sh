#!/usr/bin/env bash
# Builds an image of Velero's server and node-agent into .out/velero/velero.tar, from the binaries of `e2e/tools/build.sh velero velero-restore-helper
# velero-plugin-for-aws`, with the plugin in /plugins. Its name is holdfast.test/velero:published.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
export CGO_ENABLED=0 GOFLAGS='-trimpath -gcflags=all=-dwarf=false -buildvcs=false' GOWORK=off
root=$PWD arch=$(go env GOARCH) bin=$(mktemp -d)
trap 'rm -rf "$bin"' EXIT
mkdir -p "$bin/$arch/plugins"
ln -s "$root/.tools/bin/velero" "$root/.tools/bin/velero-restore-helper" "$bin/$arch/"
ln -s "$root/.tools/bin/velero-plugin-for-aws" "$bin/$arch/plugins/"
cd e2e/tools/images
go run . -base -binaries "$bin" -out "$root/.out/velero" -registry holdfast.test -version published -created 0 -limit $((96 << 20)) -archs "$arch" \
  velero=velero+velero-restore-helper+plugins/velero-plugin-for-aws
