package testbed

import "syscall"

// extendedAttributes reports whether files below dir may have extended attributes of users.
func extendedAttributes(dir string) bool {
	const name = "user.holdfast-testbed"
	if syscall.Setxattr(dir, name, []byte("1"), 0) != nil {
		return false
	}
	return syscall.Removexattr(dir, name) == nil
}
