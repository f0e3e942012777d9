#!/usr/bin/env bash
# Runs every fuzz target of every module for the given time (default 10s each). Plain tests run only the seed corpora.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
duration=${1:-10s}
grep -rlE '^func Fuzz[A-Z][A-Za-z0-9]*\(' --include='*_test.go' proto pkg services e2e | sort | while read -r file; do
  for target in $(sed -nE 's/^func (Fuzz[A-Za-z0-9]+)\(.*/\1/p' "$file"); do
    echo "fuzz: $(dirname "$file") $target for $duration"
    go test -run '^$' -fuzz "^$target\$" -fuzztime "$duration" "./$(dirname "$file")" </dev/null
  done
done
