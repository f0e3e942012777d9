//go:build !mutant_nofence

package claim

// fences says that a holder looks whether the claim is still its own.
const fences = true
