//go:build mutant_nofence

package claim

// fences is wrong here on purpose: the fault suite has to notice.
const fences = false
