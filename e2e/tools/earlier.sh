#!/usr/bin/env bash
# Builds the images and copies the chart of an earlier commit into .out/earlier, for the test of upgrades.
#
#   e2e/tools/earlier.sh COMMIT
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
out=$PWD/.out/earlier
tag=$(git rev-parse --short=8 "$1^{commit}")
if [[ -f $out/tag && $(<"$out/tag") == "$tag" ]]; then exit 0; fi
sources=$(mktemp -d)
trap 'git worktree remove --force "$sources" >/dev/null 2>&1 || rm -rf "$sources"' EXIT
git worktree add --quiet --force --detach "$sources" "$tag"
(cd "$sources" && VERSION=$tag ARCHS=$(go env GOARCH) e2e/tools/images.sh)
rm -rf "$out"
mkdir -p "$out"
mv "$sources/.out/images" "$out/images"
cp -r "$sources/deploy/helm/holdfast" "$out/chart"
echo "$tag" >"$out/tag" # last: the directory is whole
