// Package reset turns an object as it was stored into one that can be created again: it removes
// what only the old cluster knew (identity, status, assigned addresses and nodes, bindings) and
// adds the labels of the restore.
//
// The rules are those of Velero 1.18's restore and of its built-in restore actions for plain
// objects, applied to the decoded JSON in place. Values of unexpected types are left alone, never a
// reason to panic: the API server judges them.
package reset
