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
	found, err := r.countNamespaces(ctx)
	if err != nil {
		return nil, err
	}
	if kinds := r.kindsOf("namespaces"); len(kinds) > 0 {
		for item, err := range r.Items(ctx, Filter{Kinds: kinds}) {
			if err != nil {
				return nil, err
			}
			if err := found.addItems(item.Name, 0); err != nil {
				return nil, err
			}
		}
	}
	delete(found.counts, "") // of cluster-scoped items
	return slices.Sorted(maps.Keys(found.counts)), nil
}

// CountNamespaces returns how many items live in each namespace, cluster-scoped ones in "". No item is
// decoded, and blocks that lie within one namespace are not read.
func (r *Reader) CountNamespaces(ctx context.Context) (map[string]int64, error) {
	found, err := r.countNamespaces(ctx)
	return found.counts, err
}

func (r *Reader) countNamespaces(ctx context.Context) (found namespaceCounts, err error) {
	blocks := r.dir.Blocks
	for i := 0; i < len(blocks); i++ {
		if r.isUniformBlock(i) {
			if err := found.addItems(spaceOf(&blocks[i]), int64(blocks[i].Items)); err != nil {
				return found, err
			}
			continue
		}
		from := &blocks[i]
		for i+1 < len(blocks) && !r.isUniformBlock(i+1) {
			i++
		}
		if err := r.countBetween(ctx, from, blocks[i].Offset+blocks[i].Length, &found); err != nil {
			return found, err
		}
	}
	return found, nil
}

const (
	// maxNamespaces bounds what the names of namespaces take, in bytes: some 100,000 of them.
	maxNamespaces = 16 << 20
	perNamespace  = 64 // in the map, besides the name
)

// namespaceCounts has the number of items by namespace; it is bounded.
type namespaceCounts struct {
	counts map[string]int64
	size   int
}

// addItems adds to the count of a namespace; more namespaces than can be are ErrCorrupt.
func (n *namespaceCounts) addItems(name string, items int64) error {
	count, known := n.counts[name]
	if !known {
		if n.size += len(name) + perNamespace; n.size > maxNamespaces {
			return fmt.Errorf("%w: more than %d namespaces", ErrCorrupt, len(n.counts))
		}
		if n.counts == nil {
			n.counts = map[string]int64{}
		}
	}
	n.counts[name] = count + items
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

// countBetween counts the items from a block on, up to an offset.
func (r *Reader) countBetween(ctx context.Context, first *block, end int64, found *namespaceCounts) error {
	space, items := spaceOf(first), int64(0)
	for line, err := range r.memberLines(ctx, first.Offset, end-first.Offset) {
		if err != nil {
			return err
		}
		if line[0] == '{' {
			items++
		} else if quoted, ok := bytes.CutSuffix(line, []byte(":[")); ok {
			if err := found.addItems(space, items); err != nil {
				return err
			}
			space, items = rawjson.String(quoted), 0
		}
	}
	return found.addItems(space, items)
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
