// Package v1 holds the Go types of the API group velero.io/v1, wire-compatible with Velero 1.18:
// the same JSON names, the same phases, the same labels.
//
// The types describe the wire only. Every default named in a field's comment is applied by the
// service that owns the transition, never by decoding. No kind has a status subresource: status is
// written through the main resource.
//
// +kubebuilder:object:generate=true
// +groupName=velero.io
package v1
