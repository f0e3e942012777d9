package server

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/selection"

	"github.com/holdfast-io/holdfast/pkg/archive/manifest"
	"github.com/holdfast-io/holdfast/pkg/errgrpc"
	"github.com/holdfast-io/holdfast/pkg/kube/objmeta"
	manifestv1 "github.com/holdfast-io/holdfast/proto/gen/holdfast/manifest/v1"
)

// findKinds returns the kinds that a name means. An error that other input avoids names the field.
func findKinds(kinds []manifest.KindInfo, field, name string) ([]manifest.KindInfo, error) {
	found, err := manifest.FindKinds(kinds, name)
	if ambiguous := new(manifest.AmbiguousKindError); errors.As(err, &ambiguous) {
		return nil, errgrpc.Field(field, "%v", err)
	}
	return found, err
}

// explainMissing names the backup in the error of a kind that it does not hold.
func (m *openManifestFile) explainMissing(err error) error {
	if errors.Is(err, manifest.ErrNoKind) {
		return fmt.Errorf("backup %q %w: %w", m.backup, err, errgrpc.ErrNotFound)
	}
	return err
}

// itemMatcher decides on single items; kinds and namespaces are left to manifest.Filter.
type itemMatcher struct {
	name        string
	labels      labels.Selector
	annotations []annotationTerm
	owner       func(*objmeta.Owner) bool // nil for any
	hash        string
}

// annotationTerm asks for an annotation, of a value where valued.
type annotationTerm struct {
	key, value, sum string
	valued          bool
}

// newItemMatcher reads the filters of a request; errors name the field.
func newItemMatcher(req *manifestv1.ListItemsRequest, kinds []manifest.KindInfo) (*itemMatcher, error) {
	m := &itemMatcher{name: req.GetName(), hash: req.GetHash()}
	if _, err := path.Match(m.name, ""); err != nil {
		return nil, errgrpc.Field("name", "%q is not a pattern: a bracket is not closed, or nothing follows a backslash", m.name)
	}
	var err error
	if m.labels, err = labels.Parse(req.GetLabelSelector()); err != nil {
		return nil, errgrpc.Field("label_selector", "%v", err)
	}
	for _, text := range req.GetAnnotations() {
		t := annotationTerm{}
		t.key, t.value, t.valued = strings.Cut(text, "=")
		if t.key == "" {
			return nil, errgrpc.Field("annotations", "%q is not of the form KEY or KEY=VALUE", text)
		}
		sum := sha256.Sum256([]byte(t.value))
		t.sum = hex.EncodeToString(sum[:])
		m.annotations = append(m.annotations, t)
	}
	if owner := req.GetOwner(); owner != "" {
		if m.owner, err = newOwnerMatch(owner, kinds); err != nil {
			return nil, err
		}
	}
	return m, nil
}

// newOwnerMatch matches an owner by its UID or by KIND/NAME.
func newOwnerMatch(text string, kinds []manifest.KindInfo) (func(*objmeta.Owner) bool, error) {
	kind, name, named := strings.Cut(text, "/")
	if !named {
		return func(o *objmeta.Owner) bool { return o.UID == text }, nil
	}
	if kind == "" || name == "" {
		return nil, errgrpc.Field("owner", "%q is neither a UID nor of the form KIND/NAME", text)
	}
	found, err := findKinds(kinds, "owner", kind)
	if errors.Is(err, manifest.ErrNoKind) {
		return func(o *objmeta.Owner) bool { return o.Name == name && isOfKind(o, kind) }, nil
	}
	if err != nil {
		return nil, err
	}
	wantGroup, _, wantKind, _ := manifest.SplitKindName(found[0].Kind)
	return func(o *objmeta.Owner) bool {
		return o.Name == name && o.Kind == wantKind && schema.FromAPIVersionAndKind(o.APIVersion, o.Kind).Group == wantGroup
	}, nil
}

// isOfKind reports whether a name means the kind of an owner that the backup need not hold.
func isOfKind(o *objmeta.Owner, name string) bool {
	gvk := schema.FromAPIVersionAndKind(o.APIVersion, o.Kind)
	plural, _ := meta.UnsafeGuessKindToResource(gvk)
	own := manifest.KindInfo{Kind: manifest.KindName(gvk.Group, gvk.Version, gvk.Kind), Resource: manifest.GroupResource(plural.Resource, gvk.Group)}
	_, err := findKinds([]manifest.KindInfo{own}, "owner", name)
	return err == nil
}

// lineTexts returns what the line of each item that passes has to hold, so that others are not decoded.
func (m *itemMatcher) lineTexts() (texts [][]byte) {
	if m.name != "" && !strings.ContainsAny(m.name, `*?[\`) {
		texts = append(texts, manifest.MemberText("name", m.name))
	}
	requirements, _ := m.labels.Requirements()
	for _, r := range requirements {
		if values := r.ValuesUnsorted(); len(values) == 1 && slices.Contains([]selection.Operator{selection.Equals, selection.DoubleEquals, selection.In}, r.Operator()) {
			texts = append(texts, manifest.MemberText(r.Key(), values[0]))
		}
	}
	return texts
}

// matchesItem reports whether an item passes all filters.
func (m *itemMatcher) matchesItem(item *manifest.Item) bool {
	if m.name != "" {
		if ok, err := path.Match(m.name, item.Name); err != nil || !ok {
			return false
		}
	}
	if !m.labels.Matches(labels.Set(item.Labels)) || !strings.HasPrefix(item.SHA256, m.hash) && !strings.HasPrefix(item.ContentHash, m.hash) {
		return false
	}
	for i := range m.annotations {
		if !m.annotations[i].matchesItem(item) {
			return false
		}
	}
	return m.owner == nil || slices.ContainsFunc(item.Owners, func(o objmeta.Owner) bool { return m.owner(&o) })
}

// matchesItem compares a value that the manifest does not publish by its hash.
func (t *annotationTerm) matchesItem(item *manifest.Item) bool {
	if value, ok := item.Annotations[t.key]; ok {
		return !t.valued || value == t.value
	}
	hidden, ok := item.HiddenAnnotations[t.key]
	return ok && (!t.valued || hidden.SHA256 == t.sum)
}
