#!/usr/bin/env bash
# Builds tools from source into .tools/bin, at the versions pinned in e2e/tools/*/go.mod.
#
#   e2e/tools/build.sh [NAME...]     all tools but Velero's, Cluster API's, Jaeger and a node's when no name is given
#
# Two modules at a time: while one downloads or links, the other compiles. A tool is built again when its go.mod, its go.sum or the Go version changes.
# With KUBEBUILDER_ASSETS set, the control plane's binaries that lie there are taken instead of being built.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
# As in `make build`, so that nothing is compiled a second time with other settings.
export CGO_ENABLED=0 GOFLAGS='-trimpath -gcflags=all=-dwarf=false' GOGC=400
root=$PWD
bin=$root/.tools/bin

# name | module below e2e/tools | package | what else go build is given; the longest first
tools='
kube-apiserver|k8s|k8s.io/kubernetes/cmd/kube-apiserver
kube-controller-manager|k8s|k8s.io/kubernetes/cmd/kube-controller-manager
kubectl|k8s|k8s.io/kubernetes/cmd/kubectl
etcd|etcd|go.etcd.io/etcd/server/v3
versitygw|s3server|github.com/versity/versitygw/cmd/versitygw
csi-provisioner|provisioner|github.com/kubernetes-csi/external-provisioner/v5/cmd/csi-provisioner
snapshot-controller|snapshotter|github.com/kubernetes-csi/external-snapshotter/v8/cmd/snapshot-controller
csi-snapshotter|snapshotter|github.com/kubernetes-csi/external-snapshotter/v8/cmd/csi-snapshotter
csi-sanity|csisanity|github.com/kubernetes-csi/csi-test/v5/cmd/csi-sanity
helm|helm|helm.sh/helm/v4/cmd/helm
grpcurl|grpcurl|github.com/fullstorydev/grpcurl/cmd/grpcurl
buf|buf|github.com/bufbuild/buf/cmd/buf
protoc-gen-go|dev|google.golang.org/protobuf/cmd/protoc-gen-go
protoc-gen-go-grpc|dev|google.golang.org/grpc/cmd/protoc-gen-go-grpc
controller-gen|controllergen|sigs.k8s.io/controller-tools/cmd/controller-gen
golangci-lint|golangci|github.com/golangci/golangci-lint/v2/cmd/golangci-lint
dupl|golangci|github.com/golangci/dupl
kubelet|node|k8s.io/kubernetes/cmd/kubelet
kube-proxy|node|k8s.io/kubernetes/cmd/kube-proxy
kube-scheduler|node|k8s.io/kubernetes/cmd/kube-scheduler
coredns|coredns|github.com/holdfast-io/holdfast/e2e/tools/coredns
containerd|containerd|github.com/containerd/containerd/v2/cmd/containerd
containerd-shim-runc-v2|containerd|github.com/containerd/containerd/v2/cmd/containerd-shim-runc-v2
ctr|containerd|github.com/containerd/containerd/v2/cmd/ctr
runc|runc|github.com/opencontainers/runc|-tags=seccomp
kopia|kopia|github.com/kopia/kopia
jaeger|jaeger|github.com/jaegertracing/jaeger/cmd/all-in-one
cluster-api-manager|clusterapi|sigs.k8s.io/cluster-api
velero|velero|github.com/vmware-tanzu/velero/cmd/velero
velero-restore-helper|velero|github.com/vmware-tanzu/velero/cmd/velero-restore-helper
velero-plugin-for-aws|veleroaws|github.com/vmware-tanzu/velero-plugin-for-aws/velero-plugin-for-aws
'

stamp_of() { # MODULE
  { go env GOVERSION GOOS GOARCH; cat "e2e/tools/$1/go.mod" "e2e/tools/$1/go.sum"; } | sha256sum | cut -d' ' -f1
}

build() { # NAME
  local entry name module package flags stamp began cgo=0
  entry=$(grep "^$1|" <<<"$tools")
  IFS='|' read -r name module package flags <<<"$entry"
  case $name in
    etcd | kube-* | kubectl) if [[ -n ${KUBEBUILDER_ASSETS:-} && -x $KUBEBUILDER_ASSETS/$name ]]; then return; fi ;;
  esac
  stamp=$(stamp_of "$module")
  if [[ -x $bin/$name && -f $bin/.$name.stamp && $(<"$bin/.$name.stamp") == "$stamp" ]]; then return; fi
  if [[ $name == runc ]]; then cgo=1; fi # for seccomp profiles
  began=$SECONDS
  echo "tools: building $name from source (once; $module/go.mod pins it)"
  (cd "e2e/tools/$module" && GOWORK=off CGO_ENABLED=$cgo go build ${flags:+"$flags"} -ldflags "-s -w" -o "$bin/.$name.$$" "$package")
  mv "$bin/.$name.$$" "$bin/$name"
  echo "$stamp" >"$bin/.$name.stamp"
  echo "tools: $name built in $((SECONDS - began)) s"
}

# build_module builds those of the named tools that are in one module, one after the other: they share most of their packages.
build_module() { # MODULE NAME...
  local module=$1 name
  shift
  for name in "$@"; do
    if grep -q "^$name|$module|" <<<"$tools"; then build "$name"; fi
  done
}

mkdir -p "$bin"
if [[ ${1:-} == --module ]]; then
  shift
  build_module "$@"
  exit
fi
if (($# == 0)); then
  # Only `make test-all` needs Velero, Cluster API and Jaeger, only `make bench` kopia, and only `make cluster-up` a node: they take minutes to build.
  mapfile -t names < <(grep . <<<"$tools" | grep -vE '^(velero|cluster-api|jaeger|kopia)|\|(node|containerd|runc|coredns)\|' | cut -d'|' -f1)
  set -- "${names[@]}"
fi
for name in "$@"; do grep -q "^$name|" <<<"$tools" || { echo "build.sh: no tool is called $name" >&2; exit 2; }; done
grep . <<<"$tools" | cut -d'|' -f2 | awk '!seen[$0]++' | xargs -P 2 -I{} "$BASH" e2e/tools/build.sh --module {} "$@"
