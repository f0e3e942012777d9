//go:build !failpoint

package failpoint

// Enabled tells whether this binary can be stopped at its points.
const Enabled = false

// Hit marks the step of that name, such as "backup-runner/reserved". It does
// nothing in this build. Safe for concurrent use.
func Hit(string) {}
