// Package node has the test of the cluster with a node: what a Pod finds there, and that nothing is
// left on the machine after it. It takes root: `make e2e-cluster`.
package node
