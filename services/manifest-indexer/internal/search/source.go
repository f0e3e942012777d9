package search

import (
	"bytes"
	"context"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"iter"
	"maps"
	"slices"
	"strings"

	"github.com/klauspost/compress/gzip"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/holdfast-io/holdfast/pkg/archive/manifest"
	"github.com/holdfast-io/holdfast/pkg/json/jsonlimit"
)

// listLimits bound a resource list: the names of one kind are in memory at once, up to some 300,000. A name is
// "namespace/name".
var listLimits = jsonlimit.Limits{Text: 1 << 30, Element: 1 << 10, Member: 16 << 20, Decoded: 2 << 10}

// fromManifest yields the objects of a manifest. Of an object that is stored in several versions the preferred
// one counts.
func fromManifest(ctx context.Context, m *manifest.Reader) iter.Seq2[Object, error] {
	type groupKind struct{ group, kind string }
	preferred := map[groupKind]bool{}
	for _, k := range m.Kinds() {
		if group, _, kind, _ := manifest.SplitKindName(k.Kind); k.Preferred {
			preferred[groupKind{group, kind}] = true
		}
	}
	return func(yield func(Object, error) bool) {
		for item, err := range m.Items(ctx, manifest.Filter{}) {
			if err == nil && !item.Preferred && preferred[groupKind{item.Group, item.Kind}] {
				continue
			}
			o := Object{Group: item.Group, Version: item.Version, Kind: item.Kind, Resource: item.GroupResource(), Namespace: item.Namespace, Name: item.Name, Labels: item.Labels}
			if sum, err := hex.DecodeString(item.ContentHash); err == nil && len(sum) > 0 {
				o.Hash = sum
			}
			o.Annotations = slices.AppendSeq(slices.Collect(maps.Keys(item.Annotations)), maps.Keys(item.HiddenAnnotations))
			if !yield(o, err) || err != nil {
				return
			}
		}
	}
}

// fromResourceList yields the names in Velero's resource list: a gzipped object with a list of "namespace/name",
// or "name", under "apps/v1/Deployment".
func fromResourceList(packed io.Reader) iter.Seq2[Object, error] {
	return func(yield func(Object, error) bool) {
		stopped := false
		zip, err := gzip.NewReader(packed)
		if err == nil {
			err = jsonlimit.EachIn(zip, "", listLimits, func(key string, names json.RawMessage) error {
				kind, err := kindOfList(key)
				if err != nil {
					return err
				}
				return jsonlimit.Each(bytes.NewReader(names), listLimits, func(name *string) error {
					o := kind
					if o.Namespace, o.Name, _ = strings.Cut(*name, "/"); o.Name == "" {
						o.Namespace, o.Name = "", *name
					}
					if stopped = !yield(o, nil); stopped {
						return io.EOF
					}
					return nil
				})
			}, func(*struct{}) error { return nil })
		}
		if err != nil && !stopped {
			yield(Object{}, fmt.Errorf("resource list: %w", err))
		}
	}
}

// kindOfList reads the key of a kind. The list has no plural names: they are guessed.
func kindOfList(key string) (o Object, err error) {
	group, version, kind, ok := manifest.SplitKindName(key)
	if !ok || kind == "" {
		return o, fmt.Errorf("%q is not of the form GROUP/VERSION/KIND", key)
	}
	plural, _ := meta.UnsafeGuessKindToResource(schema.GroupVersionKind{Group: group, Version: version, Kind: kind})
	return Object{Group: group, Version: version, Kind: kind, Resource: manifest.GroupResource(plural.Resource, group), Guessed: true}, nil
}
