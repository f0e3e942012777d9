#!/usr/bin/env bash
# Finds code of the services and of pkg that stands twice, in one package or in two: 120 tokens of the same shape, whatever their names. Tests and
# generated code are left out. golangci-lint has the same search, but looks at one package at a time.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
twice() { .tools/bin/dupl -files -plumbing -threshold 120; }

# A copy of a file must be found, else nothing said would mean nothing.
copy=$(mktemp --suffix=.go)
trap 'rm -f "$copy"' EXIT
cp pkg/kube/update.go "$copy"
[[ -n $(printf '%s\n' pkg/kube/update.go "$copy" | twice) ]] || { echo "duplicates: a copy of a file is not found" >&2; exit 1; }

found=$(find services pkg -name '*.go' ! -name '*_test.go' ! -name '*.pb.go' ! -name 'zz_generated*' | sort | twice | sort)
[[ -z $found ]] || { echo "duplicates: write it once, with what differs as data:" >&2; echo "$found" >&2; exit 1; }
