// Package install has the test of the helm chart on a cluster with a node, where Pods of it run:
// what its users do with it, Pods that end, upgrades under load, and what an uninstallation leaves.
// It takes root: `make e2e-cluster`, and `make e2e-exchange` for Pods of Velero's beside it.
package install
