#!/usr/bin/env bash
# Runs every fuzz target of every module for the given time (10s each by default), the rest also when one fails, and names those that failed.
# Plain tests run only the seed corpora. A failing input is left in testdata/fuzz of its package. FUZZ=regexp picks targets by "directory Name".
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
duration=${1:-10s}
case $duration in
  *[0-9]s) seconds=${duration%s} ;;
  *[0-9]m) seconds=$((60 * ${duration%m})) ;;
  *) echo "fuzz: duration $duration: want for example 10s or 2m" >&2 && exit 2 ;;
esac
# Seeds and the end take time of their own; a target that takes more than this hangs. Inputs that reach new code are minimised too, up to a
# minute each unless told otherwise, so that little else is done in ten seconds.
limit=$((seconds + 90))
cache=$(go env GOCACHE)/fuzz
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

# Only Holdfast's own packages are instrumented. `go test -fuzz` would do it to every cloud's SDK too, compile them anew for many minutes and be
# guided by their branches; with the flags of `make build` the dependencies are there already.
instrument=-gcflags=github.com/holdfast-io/holdfast/...=-d=libfuzzer

build() { # DIRECTORY
  local began=$SECONDS
  CGO_ENABLED=0 GOFLAGS='-trimpath -gcflags=all=-dwarf=false' go test -c -vet=off "$instrument" -o "$scratch/test" "./$1" </dev/null &&
    echo "fuzz: $1 built in $((SECONDS - began)) s"
}

run() { # DIRECTORY TARGET
  cd "$1" &&
    timeout --kill-after=10 "$limit" "$scratch/test" -test.run '^$' -test.fuzz "^$2\$" -test.fuzztime "$duration" -test.fuzzminimizetime 1s \
      -test.fuzzcachedir "$cache/$(go list .)" </dev/null
}

# At the end of its time the fuzzer drops the inputs under way, one that hangs too, and says PASS. Reports come every 3 s.
stalled() {
  local rates
  rates=$(sed -nE 's/.*execs: [0-9]+ \(([0-9]+)\/sec\).*/\1/p' "$scratch/log" | tail -n 3)
  ! grep -qv '^0$' <<<"$rates"
}

passed=0 failed=()
while read -r directory; do
  mapfile -t targets < <(cat "$directory"/*_test.go | sed -nE "s|^func (Fuzz[A-Za-z0-9]+)\(.*|$directory \1|p" | { grep -E "${FUZZ:-.}" || true; } | cut -d' ' -f2)
  [ ${#targets[@]} -gt 0 ] || continue
  if ! build "$directory"; then
    failed+=("$directory (does not build)")
    continue
  fi
  for target in "${targets[@]}"; do
    began=$SECONDS code=0
    (run "$directory" "$target") 2>&1 | tee "$scratch/log" || code=$?
    took=$((SECONDS - began))
    [ $code -ne 0 ] || ! stalled || code=124
    if [ $code -eq 0 ]; then
      passed=$((passed + 1))
      echo "fuzz: $directory $target passed in $took s"
    else
      why=failed
      [ $code -ne 124 ] && [ $code -ne 137 ] || why="hung (limit $limit s)"
      failed+=("$directory $target ($why)")
      echo "fuzz: $directory $target $why after $took s" >&2
    fi
  done
done < <(grep -rlE '^func Fuzz[A-Z][A-Za-z0-9]*\(' --include='*_test.go' proto pkg services e2e | xargs -n1 dirname | sort -u)

[ $((passed + ${#failed[@]})) -gt 0 ] || failed=("no target matches ${FUZZ:-.}")
if [ ${#failed[@]} -gt 0 ]; then
  printf 'fuzz: FAILED: %s\n' "${failed[@]}" >&2
  exit 1
fi
echo "fuzz: all $passed targets passed, $duration each"
