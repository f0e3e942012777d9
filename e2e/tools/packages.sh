#!/usr/bin/env bash
# The list of packages in CONTRIBUTING.md. `packages.sh write` makes it anew from the first sentences of the packages' comments and from the import
# rules in .golangci.yml; `packages.sh check` fails unless it names every package of pkg and every internal package of a service, and none that is
# gone, and unless every package that docs/glossary.md names is there.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
export CGO_ENABLED=0 GOFLAGS='-trimpath -gcflags=all=-dwarf=false'
page=CONTRIBUTING.md
module=github.com/holdfast-io/holdfast
begin='<!-- packages -->'
end='<!-- end of packages -->'

# packages prints "path<TAB>first sentence" for each; generated code has no comment and is left out.
packages() {
  go list -f '{{.ImportPath}}{{"\t"}}{{.Doc}}' ./pkg/... ./pkg/plugin/... ./services/... |
    sed "s|^$module/||" | grep -E '^(pkg/|services/[^/]*/(app|internal)\b)' | grep -v '^pkg/plugin/wire/' | sort -u
}

# imports prints what packages of a group of pkg may import, besides the ground and the group itself.
imports() { # GROUP
  awk -v rule="        pkg-$1:" '$0 == rule {inside = 1; next} inside && /^        [^ ]/ {exit} inside && /allow:/ {print; exit}' .golangci.yml |
    grep -oE "$module/pkg/[a-z]+" | sed "s|.*/||" |
    grep -vxE "$1|errgrpc|extsort|failpoint|joblog|layout|telemetry" | sed 's|.*|`&`|' | paste -sd ' ' || true
}

heading() { # PATH
  local group=${1#pkg/} allowed
  case $1 in
    pkg) printf '\n**The ground of `pkg`**, which all of `pkg` may import and which imports itself only:\n\n' ;;
    pkg/plugin) printf '\n**`pkg/plugin`**, the SDK for authors of plugins, a module of its own that imports nothing of ours:\n\n' ;;
    pkg/*)
      allowed=$(imports "$group")
      printf '\n**`%s`** may import %s:\n\n' "$1" "${allowed:+$allowed of \`pkg\` and }the ground" ;;
    services/holdfast) printf '\n**`services/holdfast`** may import `pkg`, `proto`, its own packages, and `app` of each service:\n\n' ;;
    *) printf '\n**`%s`** may import `pkg`, `proto` and its own packages:\n\n' "$1" ;;
  esac
}

list() {
  local path doc group last=none
  while IFS=$'\t' read -r path doc; do
    [[ -n $doc ]] || { echo "packages: $path has no package comment" >&2; return 1; }
    case $path in
      pkg/*/* | services/*) group=$(cut -d/ -f1,2 <<<"$path") ;;
      *) group=$path ;;
    esac
    if [[ $group == pkg/* && ! -d $group ]] || [[ $group =~ ^pkg/(errgrpc|extsort|failpoint|joblog|layout|telemetry)$ ]]; then group=pkg; fi
    [[ $group == "$last" ]] || heading "$group"
    last=$group
    doc=${doc#Package "$(basename "$path")" }
    printf -- '- `%s` %s\n' "$path" "$(sed -E 's/^(Package|Command) [0-9a-z-]+ //; s/\.$//' <<<"$doc")"
  done
}

ordered() { # the ground first, then the groups of pkg, the SDK, and the services
  awk -F'\t' '{
    order = $1 ~ /^services\// ? 3 : $1 ~ /^pkg\/plugin(\/|\t|$)/ ? 2 : $1 ~ /^pkg\/(errgrpc|extsort|failpoint|joblog|layout|telemetry)$/ ? 0 : 1
    print order "\t" $0
  }' | sort -s -k1,1n | cut -f2-
}

case ${1-} in
  write)
    text=$(packages | ordered | list)
    { sed "/^$begin\$/q" "$page"; printf '%s\n\n' "$text"; sed -n "/^$end\$/,\$p" "$page"; } >"$page.new"
    mv "$page.new" "$page"
    ;;
  check)
    if ! missing=$(diff <(packages | cut -f1) <(sed -n "/^$begin\$/,/^$end\$/p" "$page" | sed -nE 's/^- `([^`]*)` .*/\1/p' | sort -u)); then
      printf 'packages: %s does not list the packages that there are; run e2e/tools/packages.sh write\n%s\n' "$page" "$missing" >&2
      exit 1
    fi
    for path in $(grep -oE '`(pkg|services|e2e)/[^`]*`' docs/glossary.md | tr -d '`'); do
      [[ -d $path ]] || { echo "packages: docs/glossary.md names $path, which is gone" >&2; exit 1; }
    done
    ;;
  *) echo "usage: packages.sh write|check" >&2; exit 2 ;;
esac
