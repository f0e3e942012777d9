# Everything a contributor types. `make help` lists it.
SHELL := /usr/bin/env bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

MODULES := proto pkg pkg/plugin pkg/plugin/example services e2e
SERVICES := backup-runner restore-runner queue-scheduler manifest-indexer deletion async-operation-monitor volume-mover
CONTROL_PLANE := etcd kube-apiserver kube-controller-manager kubectl
CSI := csi-provisioner snapshot-controller csi-snapshotter csi-sanity
NODE := kubelet kube-proxy kube-scheduler coredns containerd containerd-shim-runc-v2 ctr runc
# Ends what hangs, on a machine with other work to do too.
TEST_TIMEOUT := 60m
# What the test of upgrades on a node upgrades from.
EARLIER ?= HEAD~20
VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo unknown)
COMMIT ?= $(shell git rev-parse HEAD 2>/dev/null || echo unknown)
BUILDINFO := github.com/holdfast-io/holdfast/pkg/telemetry
LDFLAGS := -s -w -X $(BUILDINFO).version=$(VERSION) -X $(BUILDINFO).commit=$(COMMIT)
# Only a KUBECONFIG given to make itself points the demo at another cluster; one that a shell happens to export does not.
DEMO_ARGS ?= $(if $(filter command line,$(origin KUBECONFIG)),--kubeconfig $(KUBECONFIG))$(if $(SHARE), --share)

# For compilers, linters and unit tests: memory is cheaper than their garbage collections (an eighth of the processor time).
COMPILE := GOGC=400
PACKAGES = $(patsubst %,./%/...,$(MODULES))
UNIT = $(filter-out ./e2e/...,$(PACKAGES))
# Debug information, which nothing here reads, costs compilers another eighth. e2e/tools/*.sh use the same, so that nothing is compiled twice.
PLAIN := CGO_ENABLED=0 GOFLAGS='-trimpath -gcflags=all=-dwarf=false'
# Processes under the race detector sleep for a second before they exit, test plugins too, to let others report what they found.
RACE := GOFLAGS=-gcflags=all=-dwarf=false GORACE=atexit_sleep_ms=10
# Most scenarios run the services as processes, where the race detector would see the harness only: those run $(PLAIN).
# Tests wait for much of their time: half as many packages more than processors, and twice as many scenarios.
WIDE := -p $(shell expr $$(getconf _NPROCESSORS_ONLN) '*' 3 / 2)
WIDE_E2E := -p $(shell expr $$(getconf _NPROCESSORS_ONLN) '*' 2)
# go test begins packages in the order of its arguments: the longest first, so that none runs alone at the end. What is missing here is begun later.
LONG_UNIT := $(patsubst %,./services/%/...,backup-runner/internal/collect restore-runner/internal/job volume-mover queue-scheduler/internal/queue) \
	$(patsubst %,./pkg/%/...,archive/manifest extension/pluginhost) \
	$(patsubst %,./services/%/...,backup-runner/internal/job restore-runner/internal/restore deletion/internal/remove)
LONG_E2E := ./e2e/fault/... $(patsubst %,./e2e/suites/%/...,chart restore disturbance field operator datamovement podvolume shared scenario backup csi queue cancel references operations badinput up hooks volumedata)
# Tests that end a job at each of its writes do so at a thirteenth of them with all other tests, and here at every one, without the race detector. They
# wait for files more than they compute.
COMPLETE := ./services/backup-runner/internal/collect/... ./services/restore-runner/internal/job/...
IN_MEMORY := $(shell [ -w /dev/shm ] && [ $$(df -Pk /dev/shm | awk 'NR == 2 {print $$4}') -gt 2000000 ] && echo TMPDIR=/dev/shm)
# Left to test-all: what takes minutes of waiting, and what kubectl shows.
LATER := -skip '^TestIdleServicesMakeFewRequests$$|^TestDefinitions$$/^kubectl_knows_the_short_names$$'
# What scenarios run lies in bin/, which go's cache of test results does not look at.
E2E = go test $(WIDE_E2E) -count=1 -vet=off -timeout $(TEST_TIMEOUT)
# Where suites record what services were allowed, for bin/e2e/rights.
RIGHTS_DIR := $(CURDIR)/.out/rights
IN_PROCESS := ./e2e/suites/backup ./e2e/suites/restore

.PHONY: help
help: ## list the targets
	@grep -hE '^[a-z0-9-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | while IFS=$$'\t' read -r name text; do printf '  %-12s %s\n' "$$name" "$$text"; done

.PHONY: tools
tools: ## build every tool from source into .tools/bin (once; cached)
	@e2e/tools/build.sh

.PHONY: build
build: ## build the binaries into bin/
	@mkdir -p bin/e2e
	@$(COMPILE) $(PLAIN) go build -ldflags '$(LDFLAGS)' -o bin/ $(patsubst %/main.go,./%,$(wildcard services/*/main.go))
	@$(COMPILE) $(PLAIN) go build -ldflags '$(LDFLAGS)' -o bin/e2e/ $(patsubst %/main.go,./%,$(wildcard e2e/cmd/*/main.go)) ./services/restore-runner/internal/footprint ./services/manifest-indexer/internal/footprint/searchindex
	@echo "built: bin/: $$(cd bin && echo *)"

.PHONY: images
images: ## build the images of the services, the command line and NATS into .out/images (ARCHS=amd64: of one architecture)
	@VERSION=$(VERSION) e2e/tools/images.sh

.PHONY: chart
chart: ## check the helm chart: what it renders and refuses, and that a real API server takes it
	@e2e/tools/build.sh $(CONTROL_PLANE) helm
	@$(MAKE) --no-print-directory build
	@$(PLAIN) $(E2E) ./e2e/suites/chart

.PHONY: build-fault
build-fault: ## build the services with failpoints, for tests, into bin/fault/
	@mkdir -p bin/fault
	@$(COMPILE) $(PLAIN) go build -tags failpoint -o bin/fault/ $(patsubst %,./services/%,$(SERVICES))

# Everything is compiled first, so that tests do not run beside compilers. Without vet, which is part of lint.
.PHONY: test
test: ## what CI runs: all unit tests under the race detector, and every scenario on a real API server
	@e2e/tools/build.sh $(CONTROL_PLANE) $(CSI) versitygw helm
	@$(MAKE) --no-print-directory build build-fault
	@$(COMPILE) $(RACE) go list -race -test -deps -export $(UNIT) >/dev/null
	@$(COMPILE) $(PLAIN) go list -test -deps -export $(COMPLETE) ./e2e/... >/dev/null
	@$(COMPILE) $(RACE) go test $(WIDE) -race -vet=off -timeout $(TEST_TIMEOUT) $(LONG_UNIT) $(UNIT)
	@$(COMPILE) $(PLAIN) $(IN_MEMORY) EVERY_WRITE=1 go test $(WIDE) -vet=off -timeout $(TEST_TIMEOUT) $(COMPLETE)
	@rm -rf $(RIGHTS_DIR) && mkdir -p $(RIGHTS_DIR)
	@$(PLAIN) RIGHTS_DIR=$(RIGHTS_DIR) $(E2E) $(LATER) $(LONG_E2E) ./e2e/...
	@cd e2e/tools/images && GOWORK=off $(PLAIN) go test -vet=off ./...
	@cd e2e/tools/alerts && GOWORK=off $(PLAIN) go test -vet=off ./...

.PHONY: test-all
test-all: export FAULT_PART := all
test-all: export LONG_TESTS := 1
test-all: TEST_TIMEOUT := 180m
test-all: WIDE :=
test-all: WIDE_E2E :=
test-all: LATER :=
test-all: test ## test with every failpoint, then every fuzz target (FUZZTIME=10s each)
	@bin/e2e/rights $(RIGHTS_DIR)
	@$(COMPILE) $(RACE) $(E2E) -race $(IN_PROCESS)
	@$(PLAIN) go test -vet=off -timeout $(TEST_TIMEOUT) -run '^TestModel$$' ./services/queue-scheduler/internal/queue -histories 30000
	@e2e/tools/build.sh velero velero-plugin-for-aws cluster-api-manager
	@$(PLAIN) $(E2E) -tags velero ./e2e/suites/velero ./e2e/suites/veleroplugin
	@$(PLAIN) $(E2E) -tags velero -p 1 -run Velero ./e2e/suites/podvolume ./e2e/suites/datamovement
	@$(PLAIN) $(E2E) -tags clusterapi -run Manager ./e2e/suites/references
	@$(MAKE) --no-print-directory test-traces
	@cd e2e/tools/velerohost && GOWORK=off $(PLAIN) go test ./...
	@e2e/tools/images.sh check
	@$(MAKE) --no-print-directory mutants
	@e2e/tools/fuzz.sh $(or $(FUZZTIME),10s)

.PHONY: field
field: ## try what people reported about Velero on a real API server (CASE=velero-9393: one report; PENDING=1: those to be mended too)
	@e2e/tools/build.sh $(CONTROL_PLANE)
	@$(MAKE) --no-print-directory build
	@$(PLAIN) $(E2E) -run 'TestField/$(CASE)' ./e2e/suites/field

.PHONY: test-traces
test-traces: ## test the traces of a backup that is taken over, a restore and a deletion, as Jaeger's query API shows them
	@e2e/tools/build.sh $(CONTROL_PLANE) versitygw jaeger
	@$(MAKE) --no-print-directory build
	@$(PLAIN) $(E2E) -v -tags jaeger ./e2e/suites/traces

# That every text and test of the table is there, `make test` looks.
.PHONY: mutants
mutants: ## plant every mistake of e2e/mutants, and fail unless each makes its test fail
	@$(COMPILE) $(PLAIN) go run ./e2e/cmd/mutants

.PHONY: demo
demo: ## back up, destroy, restore and compare a sample estate (KUBECONFIG=file: on your cluster, SHARE=1: beside Velero's CRDs)
	@$(if $(filter command line,$(origin KUBECONFIG)),,e2e/tools/build.sh $(CONTROL_PLANE))
	@$(MAKE) --no-print-directory build
	@bin/e2e/demo $(DEMO_ARGS)

.PHONY: cluster-up
cluster-up: ## start a control plane that stays, in .out/cluster (NODES=1: with a node and the images, as root)
ifeq ($(NODES),1)
	@e2e/tools/noderequirements.sh
	@e2e/tools/build.sh $(CONTROL_PLANE) $(NODE) versitygw helm
	@$(COMPILE) $(PLAIN) go build -o bin/e2e/ ./e2e/cmd/cluster
	@$(MAKE) --no-print-directory images ARCHS=$$(go env GOARCH)
	@bin/e2e/cluster up --images "$$(echo .out/images/*.tar | tr ' ' ,)"
else
	@e2e/tools/build.sh $(CONTROL_PLANE)
	@$(COMPILE) $(PLAIN) go build -o bin/e2e/ ./e2e/cmd/cluster
	@bin/e2e/cluster up --control-plane-only
endif

.PHONY: cluster-down
cluster-down: ## stop it and remove its data
	@$(COMPILE) $(PLAIN) go build -o bin/e2e/ ./e2e/cmd/cluster
	@bin/e2e/cluster down

# Not part of `make test`: it takes root, and is compared with the whole machine, where nothing else starts or stops a node meanwhile.
.PHONY: e2e-cluster
e2e-cluster: TEST_TIMEOUT := 90m
e2e-cluster: ## test the cluster with a node, as root, its CSI driver, that nothing of it is left, and the chart on it (EARLIER=commit to upgrade from)
	@e2e/tools/noderequirements.sh
	@e2e/tools/build.sh $(CONTROL_PLANE) $(NODE) $(CSI) versitygw helm grpcurl velero
	@$(MAKE) --no-print-directory build
	@$(MAKE) --no-print-directory images ARCHS=$$(go env GOARCH)
	@e2e/tools/earlier.sh $(EARLIER)
	@$(PLAIN) $(E2E) -count=1 -tags node ./e2e/harness/directorydriver
	@$(PLAIN) $(E2E) -count=1 -tags node ./e2e/suites/node
	@$(PLAIN) $(E2E) -count=1 -tags node ./e2e/suites/install

.PHONY: e2e-exchange
e2e-exchange: TEST_TIMEOUT := 30m
e2e-exchange: ## test the exchange of volume data with images of Velero's server and node-agent on a cluster with a node, as root
	@e2e/tools/noderequirements.sh
	@e2e/tools/build.sh $(CONTROL_PLANE) $(NODE) $(CSI) versitygw helm velero velero-restore-helper velero-plugin-for-aws
	@$(MAKE) --no-print-directory build
	@$(MAKE) --no-print-directory images ARCHS=$$(go env GOARCH)
	@e2e/tools/veleroimage.sh
	@$(PLAIN) $(E2E) -tags node,velero -run '^TestExchangeWithVelero$$' ./e2e/suites/install

.PHONY: bench
bench: ## measure, and write .out/bench.json (BENCH=quick takes a few minutes; BENCH=resume: takeover only)
	@e2e/tools/build.sh $(CONTROL_PLANE) versitygw kopia
	@$(MAKE) --no-print-directory build
	@BENCH=$(BENCH) bin/e2e/bench

.PHONY: generate
generate: ## regenerate Go from proto, deep copies, CRDs and the table of reports
	@e2e/tools/build.sh buf protoc-gen-go protoc-gen-go-grpc controller-gen
	@.tools/bin/buf generate
	@.tools/bin/buf generate --template buf.gen.plugin.yaml
	@cd pkg && go generate ./apis/crds/...
	@$(COMPILE) $(PLAIN) go run ./e2e/cmd/reports
	@rm -f deploy/helm/holdfast/crds/*.yaml && cp pkg/apis/crds/*.yaml deploy/helm/holdfast/crds/

.PHONY: verify
verify: ## check that generated code is fresh, contracts are clean, modules build alone and agree on versions
	@e2e/tools/verify.sh

.PHONY: size
size: ## print how large the code is, and check its bounds; part of verify
	@$(COMPILE) $(PLAIN) go run ./e2e/cmd/size

.PHONY: lint
lint: ## run the linters over every module (in one run: each would load the dependencies again)
	@e2e/tools/build.sh golangci-lint dupl buf
	@.tools/bin/buf lint
	@e2e/tools/importrules.sh
	@e2e/tools/duplicates.sh
	@$(COMPILE) $(PLAIN) .tools/bin/golangci-lint run --allow-parallel-runners $(PACKAGES)
