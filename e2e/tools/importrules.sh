#!/usr/bin/env bash
# Shows that the linter holds the order of the groups of pkg: in a made-up module with one package for every pair of groups it must report each import
# of a group further up, and none of the same group; and each import of what is for tests alone, unless in a test.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
lint=$PWD/.tools/bin/golangci-lint
# From the ground up. A group that is missing here fails.
order=(telemetry json apis messaging spec kube service extension objectstore archive job volumedata)
ground='errgrpc|extsort|failpoint|joblog|layout|telemetry'
module=github.com/holdfast-io/holdfast/pkg

for path in pkg/*/; do
  name=$(basename "$path")
  [[ $name == plugin || $name =~ ^($ground)$ || " ${order[*]} " == *" $name "* ]] || { echo "importrules: pkg/$name is in no group; add it to .golangci.yml, CONTRIBUTING.md and here" >&2; exit 1; }
done

tree=$(mktemp -d)
trap 'rm -rf "$tree"' EXIT
cp .golangci.yml "$tree"
mkdir "$tree/pkg"
printf 'module %s\n\n%s\n' "$module" "$(grep '^go ' pkg/go.mod)" >"$tree/pkg/go.mod"
for group in "${order[@]}"; do
  mkdir -p "$tree/pkg/$group/leaf"
  printf '// Package leaf is imported.\npackage leaf\n' >"$tree/pkg/$group/leaf/leaf.go"
done
package() { # GROUP IMPORTED: a package of the group that imports the other
  mkdir -p "$tree/pkg/$1/imports$2"
  printf '// Package imports%s imports.\npackage imports%s\n\nimport _ "%s/%s/leaf"\n' "$2" "$2" "$module" "$2" >"$tree/pkg/$1/imports$2/imports.go"
}
for i in "${!order[@]}"; do for j in "${!order[@]}"; do
  ((j < i)) || package "${order[i]}" "${order[j]}"
done; done
mkdir -p "$tree/pkg/kube/kubetest" "$tree/pkg/job/fakes"
printf '// Package kubetest is imported.\npackage kubetest\n' >"$tree/pkg/kube/kubetest/kubetest.go"
for name in product only_test; do
  printf '// Package fakes imports.\npackage fakes\n\nimport _ "%s/kube/kubetest"\n' "$module" >"$tree/pkg/job/fakes/$name.go"
done

found=$(cd "$tree/pkg" && GOWORK=off GOFLAGS= "$lint" run --allow-parallel-runners --config "$tree/.golangci.yml" --enable-only depguard --max-issues-per-linter 0 --max-same-issues 0 --uniq-by-line=false ./... 2>&1 || true)
failed=0
for i in "${!order[@]}"; do for j in "${!order[@]}"; do
  ((j < i)) && continue
  refused=$(grep -c "${order[i]}/imports${order[j]}/imports.go" <<<"$found" || true)
  if ((j > i && refused == 0)) || ((j == i && refused > 0)); then
    echo "importrules: pkg/${order[i]} imports pkg/${order[j]}: the linter reported it $refused times" >&2
    failed=1
  fi
done; done
refused=$(grep -o 'fakes/[a-z_]*\.go' <<<"$found" | sort -u | xargs || true)
if [[ $refused != fakes/product.go ]]; then
  echo "importrules: of the imports of pkg/kube/kubetest the linter reported: $refused" >&2
  failed=1
fi
((failed == 0)) || { head -20 <<<"$found" >&2; exit 1; }
