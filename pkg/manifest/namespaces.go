package manifest

import (
	"bytes"
	"context"
	"maps"
	"slices"
	"strings"

	"github.com/holdfast-io/holdfast/pkg/rawjson"
)

// Namespaces returns the names of the namespaces that items live in, and of the
// Namespace objects among the items, sorted. No item is decoded, except Namespace
// objects, and blocks that lie within one namespace are not read.
func (r *Reader) Namespaces(ctx context.Context) ([]string, error) {
	found := map[string]struct{}{}
	blocks := r.dir.Blocks
	for i := 0; i < len(blocks); i++ {
		found[spaceOf(&blocks[i])] = struct{}{}
		if r.uniform(i) {
			continue
		}
		from := i
		for i+1 < len(blocks) && !r.uniform(i+1) {
			i++
		}
		if err := r.spacesIn(ctx, blocks[from].Offset, blocks[i].Offset+blocks[i].Length, found); err != nil {
			return nil, err
		}
	}
	if kinds := r.kindsOf("namespaces"); len(kinds) > 0 {
		for item, err := range r.Items(ctx, Filter{Kinds: kinds}) {
			if err != nil {
				return nil, err
			}
			found[item.Name] = struct{}{}
		}
	}
	delete(found, "") // of cluster-scoped items
	return slices.Sorted(maps.Keys(found)), nil
}

// uniform tells that all items of block i are of one kind and live in one
// namespace, as the next block goes on with both.
func (r *Reader) uniform(i int) bool {
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
func (r *Reader) spacesIn(ctx context.Context, from, end int64, found map[string]struct{}) error {
	for line, err := range r.lines(ctx, from, end-from) {
		if err != nil {
			return err
		}
		if quoted, ok := bytes.CutSuffix(line, []byte(":[")); ok {
			found[rawjson.String(quoted)] = struct{}{}
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
