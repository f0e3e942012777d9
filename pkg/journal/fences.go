//go:build !mutant_nofence

package journal

// fences says that a record of a closed epoch is refused.
const fences = true
