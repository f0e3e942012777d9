// Package operations runs backups whose actions begin asynchronous operations: with plugins of both
// protocols, operations that are custom resources, and services that die meanwhile.
package operations
