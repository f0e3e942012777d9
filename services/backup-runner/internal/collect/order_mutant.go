//go:build mutant_earlycheckpoint

package collect

// recordsFirst is wrong here on purpose: the fault suite has to notice.
const recordsFirst = true
