//go:build !mutant_earlycheckpoint

package collect

// recordsFirst would make a part's record durable before the part.
const recordsFirst = false
