module github.com/holdfast-io/holdfast/e2e/tools/definitions

go 1.26.0

// Their files with definitions are read by tests. Nothing of them is compiled.
require (
	github.com/cert-manager/cert-manager v1.18.2
	github.com/cloudnative-pg/cloudnative-pg v1.27.0
	sigs.k8s.io/cluster-api v1.11.1
	sigs.k8s.io/cluster-api/test v1.11.1
)
