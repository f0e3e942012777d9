package manifest

import (
	"cmp"
	"strings"

	"github.com/holdfast-io/holdfast/pkg/kube/objmeta"
)

// FormatVersion is written into the manifest, into the tarball's metadata/version and into
// status.formatVersion.
const FormatVersion = "1.2.0"

// Hidden replaces an annotation value that the manifest does not publish.
type Hidden struct {
	// Length of the value in bytes.
	Length int `json:"length"`
	// SHA256 of the value, in hex.
	SHA256 string `json:"sha256"`
}

// Reference is an object another one needs or binds, found in its body.
type Reference struct {
	Group     string `json:"group,omitempty"`
	Kind      string `json:"kind"`
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name"`
	// Relation is the kind of reference; package reference lists them ("claims", "mounts", "runsAs",
	// ...).
	Relation string `json:"relation"`
}

// Item describes one object of the tarball.
type Item struct {
	Group     string `json:"apiGroup,omitempty"`
	Version   string `json:"apiVersion"`
	Kind      string `json:"kind"`
	Resource  string `json:"resource"`
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name"`

	UID               string            `json:"uid,omitempty"`
	ResourceVersion   string            `json:"resourceVersion,omitempty"`
	Labels            map[string]string `json:"labels,omitempty"`
	Annotations       map[string]string `json:"annotations,omitempty"`
	HiddenAnnotations map[string]Hidden `json:"hiddenAnnotations,omitempty"`
	Owners            []objmeta.Owner   `json:"owners,omitempty"`
	References        []Reference       `json:"references,omitempty"`
	Actions           []string          `json:"actions,omitempty"`
	// Cut is the revision the object was listed at, if it is another than Header.Revision.
	Cut string `json:"cut,omitempty"`
	// Live reports that the object was fetched on its own and is not part of a cut.
	Live bool `json:"live,omitempty"`
	// Extra reports that the filters of the backup do not select the object. It is the Namespace of
	// something that they select, and serves only to create that namespace where it is missing.
	Extra bool `json:"extra,omitempty"`
	// Preferred reports that Version is the preferred one of its resource, so that Path is the
	// un-versioned path.
	Preferred bool `json:"preferred"`

	// Path of the tar entry.
	Path string `json:"path"`
	// Size of the body in bytes, and its SHA-256 in hex.
	Size   int64  `json:"size"`
	SHA256 string `json:"sha256"`
	// ContentHash is a hash over what a restore would compare, in hex, as ContentHasher makes it.
	// Empty means unknown: manifests of earlier versions have none.
	ContentHash string `json:"contentHash,omitempty"`
	// Offset and Length of the gzip member in the tarball that holds the entry.
	Offset int64 `json:"offset"`
	Length int64 `json:"length"`
}

// String returns the tarball path.
func (i *Item) String() string { return i.Path }

// Key returns the place of the item in the manifest's order.
func (i *Item) Key() Key {
	return Key{Kind: KindName(i.Group, i.Version, i.Kind), Namespace: i.Namespace, Name: i.Name}
}

// GroupResource returns "pods" or "deployments.apps", as in tarball paths.
func (i *Item) GroupResource() string { return GroupResource(i.Resource, i.Group) }

// IsSecret reports whether the item is a Secret, whose values must not be shown unasked.
func (i *Item) IsSecret() bool { return isSecret(i.Group, i.Resource, i.Kind) }

func isSecret(group, resource, kind string) bool {
	return group == "" && resource == "secrets" || kind == "Secret"
}

// Key names one object. Keys are ordered by kind, then by the bytes of "namespace/name", which is
// the order in which an API server lists a resource.
type Key struct {
	// Kind as KindName returns it.
	Kind      string
	Namespace string
	Name      string
}

// Compare orders keys.
func (k Key) Compare(o Key) int {
	if c := strings.Compare(k.Kind, o.Kind); c != 0 {
		return c
	}
	if k.Namespace == o.Namespace {
		return strings.Compare(k.Name, o.Name)
	}
	return cmp.Compare(k.Namespace+"/"+k.Name, o.Namespace+"/"+o.Name)
}

// String returns "kind namespace/name".
func (k Key) String() string {
	if k.Namespace == "" {
		return k.Kind + " " + k.Name
	}
	return k.Kind + " " + k.Namespace + "/" + k.Name
}

// KindName returns "v1/Pod" or "apps/v1/Deployment": the keys of Velero's resource list and of the
// manifest.
func KindName(group, version, kind string) string {
	if group == "" {
		return version + "/" + kind
	}
	return group + "/" + version + "/" + kind
}

// SplitKindName undoes KindName.
func SplitKindName(name string) (group, version, kind string, ok bool) {
	i := strings.LastIndexByte(name, '/')
	if i < 0 {
		return "", "", "", false
	}
	gv, kind := name[:i], name[i+1:]
	if j := strings.LastIndexByte(gv, '/'); j >= 0 {
		return gv[:j], gv[j+1:], kind, true
	}
	return "", gv, kind, true
}

// GroupResource returns "pods" for the core group, else "deployments.apps".
func GroupResource(resource, group string) string {
	if group == "" {
		return resource
	}
	return resource + "." + group
}

// AppendKey appends k so that the order of the bytes is the order of keys.
func AppendKey(dst []byte, kind, namespace, name string) []byte {
	dst = append(append(dst, kind...), 0)
	dst = append(append(dst, namespace...), '/')
	return append(dst, name...)
}

// ParseKey undoes AppendKey.
func ParseKey(b []byte) (Key, bool) {
	kind, rest, ok := strings.Cut(string(b), "\x00")
	namespace, name, ok2 := strings.Cut(rest, "/")
	return Key{Kind: kind, Namespace: namespace, Name: name}, ok && ok2
}
