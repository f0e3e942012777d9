#!/usr/bin/env bash
# Builds the images of Holdfast's services, of its command line, and of the NATS server that the chart runs, into .out/images: no container engine, no
# base image, no registry. See docs/install.md.
#
#   e2e/tools/images.sh [check]     check: builds one image a second time, elsewhere, and fails unless its files are the same
#
# IMAGES (the default: all) and ARCHS (amd64,arm64) choose less. VERSION is the tag, REGISTRY stands before the names in lists of modules.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
# As in `make build`, so that nothing is compiled a second time with other settings. Paths and the state of the working tree stay out of binaries.
export CGO_ENABLED=0 GOFLAGS='-trimpath -gcflags=all=-dwarf=false -buildvcs=false' GOGC=400 GOOS=linux
out=$PWD/.out/images
archs=${ARCHS:-amd64,arm64}
version=${VERSION:-$(git describe --tags --always --dirty)}
commit=$(git rev-parse HEAD)
created=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct)}
buildinfo=github.com/holdfast-io/holdfast/pkg/telemetry
services=${IMAGES:-backup-runner restore-runner queue-scheduler manifest-indexer deletion async-operation-monitor volume-mover holdfast nats-server}

images() { # OUT
  local bin arch name specs=()
  bin=$(mktemp -d)
  for arch in ${archs//,/ }; do
    for name in $services; do
      case $name in # an image per binary; NATS's server at the version of go.mod, from which `holdfast up` has it too
        nats-server) (cd pkg && GOWORK=off GOARCH=$arch go build -ldflags '-s -w' -o "$bin/$arch/$name" github.com/nats-io/nats-server/v2) ;;
        *) GOARCH=$arch go build -ldflags "-s -w -X $buildinfo.version=$version -X $buildinfo.commit=$commit" -o "$bin/$arch/$name" "./services/$name" ;;
      esac
    done
  done
  for name in $services; do
    case $name in nats-server | holdfast) specs+=("$name=$name") ;; *) specs+=("holdfast-$name=$name") ;; esac
  done
  (cd e2e/tools/images && GOWORK=off GOOS='' go run . -binaries "$bin" -out "$1" -registry "${REGISTRY:-ghcr.io/holdfast-io}" -version "$version" \
    -revision "$commit" -created "$created" -archs "$archs" "${specs[@]}")
  rm -rf "$bin"
}

rm -rf "$out"
images "$out"
if [[ ${1:-} == check ]]; then # one image, since all are made in the same way; from a copy of the sources, so that a path in it would show
  again=$(mktemp -d)
  trap 'rm -rf "$again"' EXIT
  mkdir "$again/sources"
  git ls-files -z --cached --others --exclude-standard | tar --null --files-from - -cf - | tar -xf - -C "$again/sources"
  services=${IMAGES:-deletion}
  services=${services%% *}
  (cd "$again/sources" && images "$again/images" >/dev/null)
  for file in "$again"/images/*; do
    cmp "$file" "$out/${file##*/}" >&2 || { echo "images: two builds of the same commit differ" >&2; exit 1; }
  done
  echo "images: a second build of $services, of $archs, gave the same files"
fi
