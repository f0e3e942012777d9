package manifest

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/holdfast-io/holdfast/pkg/json/rawjson"
)

// Namespaces returns the names of the namespaces that items live in, and of the Namespace objects
// among the items, sorted. No item is decoded, except Namespace objects, and blocks that lie within
// one namespace are not read.
func (r *Reader) Namespaces(ctx context.Context) ([]string, error) {
	found := namespaceSet{}
	blocks := r.dir.Blocks
	for i := 0; i < len(blocks); i++ {
		if err := found.addName(spaceOf(&blocks[i])); err != nil {
			return nil, err
		}
		if r.isUniformBlock(i) {
			continue
		}
		from := i
		for i+1 < len(blocks) && !r.isUniformBlock(i+1) {
			i++
		}
		if err := r.spacesIn(ctx, blocks[from].Offset, blocks[i].Offset+blocks[i].Length, &found); err != nil {
			return nil, err
		}
	}
	if kinds := r.kindsOf("namespaces"); len(kinds) > 0 {
		for item, err := range r.Items(ctx, Filter{Kinds: kinds}) {
			if err != nil {
				return nil, err
			}
			if err := found.addName(item.Name); err != nil {
				return nil, err
			}
		}
	}
	delete(found.set, "") // of cluster-scoped items
	return slices.Sorted(maps.Keys(found.set)), nil
}

const (
	// maxNamespaces bounds what the names of namespaces take, in bytes: some 100,000 of them.
	maxNamespaces = 16 << 20
	perNamespace  = 64 // in the map, besides the name
)

// namespaceSet is a bounded set.
type namespaceSet struct {
	set  map[string]struct{}
	size int
}

// addName adds a name; more than can be are ErrCorrupt.
func (n *namespaceSet) addName(name string) error {
	if _, known := n.set[name]; known {
		return nil
	}
	if n.size += len(name) + perNamespace; n.size > maxNamespaces {
		return fmt.Errorf("%w: more than %d namespaces", ErrCorrupt, len(n.set))
	}
	if n.set == nil {
		n.set = map[string]struct{}{}
	}
	n.set[name] = struct{}{}
	return nil
}

// isUniformBlock reports that all items of block i are of one kind and live in one namespace, as the next
// block goes on with both.
func (r *Reader) isUniformBlock(i int) bool {
	if i+1 >= len(r.dir.Blocks) {
		return false
	}
	b, next := &r.dir.Blocks[i], &r.dir.Blocks[i+1]
	return b.Kind == next.Kind && spaceOf(b) == spaceOf(next)
}

// spaceOf returns the namespace a block begins in.
func spaceOf(b *block) string {
	namespace, _, _ := strings.Cut(b.First, "/")
	return namespace
}

// spacesIn adds the namespaces whose lists begin between two offsets.
func (r *Reader) spacesIn(ctx context.Context, from, end int64, found *namespaceSet) error {
	for line, err := range r.memberLines(ctx, from, end-from) {
		if err != nil {
			return err
		}
		if quoted, ok := bytes.CutSuffix(line, []byte(":[")); ok {
			if err := found.addName(rawjson.String(quoted)); err != nil {
				return err
			}
		}
	}
	return nil
}

// kindsOf returns the kinds of a resource, named as in tarball paths.
func (r *Reader) kindsOf(resource string) []string {
	var kinds []string
	for _, k := range r.dir.Kinds {
		if k.Resource == resource {
			kinds = append(kinds, k.Kind)
		}
	}
	return kinds
}
