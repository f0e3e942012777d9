// Package builtin has the actions on plain objects that Velero 1.18 has built in: what else has to
// be backed up or restored with an object, and what has to change about it. docs/builtin-actions.md
// lists them, with what the restore does by itself.
//
// The actions belong to one job: they remember what they have read of the cluster. They read fields
// that strangers may have written, so a field of another type than Kubernetes gives it is an error
// that wraps ErrField and names it.
package builtin
