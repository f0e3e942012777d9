//go:build !failpoint

package failpoint

// Enabled reports whether this binary can be stopped at its points.
const Enabled = false

// Hit marks the step of that name, such as "backup-runner/reserved". It does nothing in this build.
// Safe for concurrent use.
func Hit(string) {}

// HitIn is Hit for a step of code that several services run: the point is service/step, such as
// "deletion/claimed".
func HitIn(_, _ string) {}
