//go:build mutant_earlyack

package restore

// outcomesFirst is wrong here on purpose: the fault suite has to notice.
const outcomesFirst = true
