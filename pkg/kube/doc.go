// Package kube connects Holdfast's services to a Kubernetes API server: client configuration, the
// scheme, the manager every service runs, and the one way custom resources are written (Update).
package kube
