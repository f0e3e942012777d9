#!/usr/bin/env bash
# Checks what reviewers should not have to: generated files are what the generators make, contracts pass their lint, no commit breaks the wire, every
# module builds without the workspace, and all modules use one Go version and one version of each dependency.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
# As in `make build`, so that nothing is compiled a second time with other settings.
export CGO_ENABLED=0 GOFLAGS='-trimpath -gcflags=all=-dwarf=false' GOGC=400

generated=(proto/gen pkg/apis pkg/plugin/wire deploy/helm/holdfast/crds docs/velero.md)
before=$(mktemp -d)
trap 'rm -rf "$before"' EXIT

echo "verify: generated files"
for path in "${generated[@]}"; do mkdir -p "$before/$(dirname "$path")" && cp -R "$path" "$before/$path"; done
make --no-print-directory generate
for path in "${generated[@]}"; do
  diff -r "$before/$path" "$path" >&2 || { echo "verify: $path was stale; it is regenerated now, commit it" >&2; exit 1; }
done

echo "verify: list of packages"
e2e/tools/packages.sh check

echo "verify: size"
make --no-print-directory size

echo "verify: contracts"
.tools/bin/buf lint
.tools/bin/buf format -d --exit-code || { echo "verify: contracts are not formatted, run .tools/bin/buf format -w" >&2; exit 1; }
if base=$(git rev-parse --verify --quiet "${BREAKING_BASE:-HEAD~1}") && git ls-tree -r --name-only "$base" -- proto/holdfast | grep -q '\.proto$'; then
  .tools/bin/buf breaking --against ".git#ref=$base"
fi

echo "verify: versions"
modules=(proto pkg pkg/plugin pkg/plugin/example services e2e)
manifests=("${modules[@]/%//go.mod}" e2e/tools/*/go.mod go.work)
# The go.mod of containerd and of Prometheus name a patch release, below which modules with them cannot be.
if [[ $(grep -vE '/(containerd|alerts)/' < <(grep -H '^go ' "${manifests[@]}") | awk '{print $2}' | sort -u | wc -l) != 1 ]]; then
  echo "verify: several Go versions:" >&2
  grep -H '^go ' "${manifests[@]}" >&2
  exit 1
fi
versions=$(for module in "${modules[@]}"; do
  (cd "$module" && go mod edit -json) | awk -F'"' '/"Path":/ {path = $4} /"Version":/ {print path, $4} /^\t"Go":/ {print "go", $4}'
done | sort -u | grep -v 'github.com/holdfast-io/')
if clashes=$(cut -d' ' -f1 <<<"$versions" | uniq -d) && [[ -n $clashes ]]; then
  echo "verify: several versions of one dependency:" >&2
  grep -F "$clashes" <<<"$versions" >&2
  exit 1
fi

# Tidy asks for modules that no build needs: mostly waiting for downloads, so beside the builds.
tidy=()
for module in "${modules[@]}"; do
  (cd "$module" && GOWORK=off go mod tidy -diff) &
  tidy+=($!)
done
for module in "${modules[@]}"; do
  echo "verify: $module builds without the workspace"
  discard=()
  if [[ $module == pkg/plugin/example ]]; then discard=(-o /dev/null); fi # one command alone would be written into the tree
  (cd "$module" && GOWORK=off go build "${discard[@]}" ./...)
done
echo "verify: packages that read structures of the kernel build for arm64"
read -ra kernel < <(git grep -lE '\b(unix|syscall)\.(Stat_t|Statfs_t|Timespec|Timeval|Rusage|Rlimit)\b' -- pkg services ':!*_test.go' | xargs -n1 dirname | sort -u | sed 's,^,./,' | xargs)
GOARCH=arm64 go build "${kernel[@]}"
echo "verify: go.mod files are tidy"
for process in "${tidy[@]}"; do wait "$process"; done
