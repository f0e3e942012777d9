//go:build !linux

package testbed

// extendedAttributes reports whether files below dir may have extended attributes of users, which
// is not tried elsewhere.
func extendedAttributes(string) bool { return false }
