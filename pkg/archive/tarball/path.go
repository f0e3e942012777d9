package tarball

import (
	"fmt"
	"strings"
)

// preferredSuffix ends the directory of the second copy of every object (Velero 1.18 layout, format
// 1.1.0).
const preferredSuffix = "-preferredversion"

// Path is what the name of a tar entry consists of (Velero's format 1.1.0 and before).
type Path struct {
	// Resource is the plural, Group its group.
	Resource, Group string
	// Version is empty for the un-versioned path.
	Version string
	// Preferred reports that the versioned path is the second copy of the un-versioned one.
	Preferred bool
	// Namespace is empty for cluster-scoped objects.
	Namespace string
	Name      string
}

// ParsePath takes the name of a tar entry apart. Absolute names, names with "." or ".." in them,
// and names that are not of an object are ErrPath.
func ParsePath(name string) (Path, error) {
	parts := strings.Split(strings.TrimPrefix(name, "./"), "/")
	for _, p := range parts {
		if p == "" || p == "." || p == ".." || strings.ContainsRune(p, 0) {
			return Path{}, fmt.Errorf("%w: %q leaves the archive", ErrPath, name)
		}
	}
	odd := fmt.Errorf("%w: %q is not of an object", ErrPath, name)
	file, ok := strings.CutSuffix(parts[len(parts)-1], ".json")
	if !ok || file == "" || parts[0] != "resources" || len(parts) < 4 {
		return Path{}, odd
	}
	p := Path{Name: file}
	p.Resource, p.Group, _ = strings.Cut(parts[1], ".")
	rest := parts[2 : len(parts)-1]
	if rest[0] != "namespaces" && rest[0] != "cluster" {
		p.Version, p.Preferred = strings.CutSuffix(rest[0], preferredSuffix)
		rest = rest[1:]
	}
	switch {
	case p.Resource == "":
		return Path{}, odd
	case len(rest) == 1 && rest[0] == "cluster":
	case len(rest) == 2 && rest[0] == "namespaces":
		p.Namespace = rest[1]
	default:
		return Path{}, odd
	}
	return p, nil
}
