package restore

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/holdfast-io/holdfast/services/restore-runner/internal/apply"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/outcome"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/restore/object"
)

// metadataKey is a label or an annotation of a namespace.
type metadataKey struct{ field, key string }

// metadataKeys returns the labels and annotations of objects, the longest first.
func metadataKeys(objects ...map[string]any) (keys []metadataKey) {
	for _, body := range objects {
		for _, field := range []string{"labels", "annotations"} {
			for key := range object.MapAt(object.MapAt(body, "metadata"), field) {
				keys = append(keys, metadataKey{field, key})
			}
		}
	}
	slices.SortFunc(keys, func(a, b metadataKey) int {
		return cmp.Or(cmp.Compare(len(b.key), len(a.key)), strings.Compare(a.key, b.key), strings.Compare(a.field, b.field))
	})
	return slices.Compact(keys)
}

// valueIn returns the label or annotation of an object, nil where it has none.
func (k metadataKey) valueIn(body map[string]any) any {
	return object.MapAt(object.MapAt(body, "metadata"), k.field)[k.key]
}

// keepKeys returns an object with labels and annotations as the live one has them, without those that it lacks.
func keepKeys(body, live map[string]any, keys []metadataKey) map[string]any {
	body = maps.Clone(body)
	meta := maps.Clone(object.MapAt(body, "metadata"))
	body["metadata"] = meta
	for _, k := range keys {
		m := map[string]any{}
		maps.Copy(m, object.MapAt(meta, k.field))
		if m[k.key] = k.valueIn(live); m[k.key] == nil {
			delete(m, k.key)
		}
		if meta[k.field] = m; len(m) == 0 {
			delete(meta, k.field)
		}
	}
	return body
}

// namedKeys returns those of the keys, the longest first, that a text names: as a word, or as part of a
// path.
func namedKeys(text string, keys []metadataKey) (named []metadataKey) {
	inWord := func(c byte) bool {
		return c == '-' || c == '_' || '0' <= c && c <= '9' || 'a' <= c|0x20 && c|0x20 <= 'z'
	}
	for _, k := range keys {
		for from := 0; ; {
			i := strings.Index(text[from:], k.key)
			if i < 0 {
				break
			}
			i += from
			end := i + len(k.key)
			if (i == 0 || !inWord(text[i-1])) && (end == len(text) || !inWord(text[end])) {
				named = append(named, k)
				text = text[:i] + strings.Repeat(" ", len(k.key)) + text[end:] // a shorter key may be part of it
				break
			}
			from = i + 1
		}
	}
	return named
}

// refusalOf returns the error of an object that the API server, or what admits, would not have as it is.
func refusalOf(result *apply.Result) error {
	if err := cmp.Or(result.Err, result.Refusal); refusedAsIs(err) {
		return err
	}
	return nil
}

// applyWithout creates or updates a namespace that admission refuses without the labels and annotations that it is
// refused for: those that the refusals name, or else the first one without which it is accepted, or all
// of them. refused is the result with all.
func (c *namespaceCreator) applyWithout(ctx context.Context, e *outcome.Entry, r apply.Request, refused apply.Result) apply.Result {
	stored, left, verb := r.Object, metadataKeys(r.Object), apply.Created
	var live map[string]any
	if refused.Refusal != nil {
		var err error
		if live, err = c.Existing.Get(ctx, r.Target); err != nil || live == nil {
			return refused
		}
		r.Present, verb = true, apply.Updated
		left = slices.DeleteFunc(metadataKeys(stored, live), func(k metadataKey) bool {
			return k.key == apply.NamespaceLabel || k.valueIn(stored) == k.valueIn(live)
		})
	}
	var out []metadataKey
	try := func(more ...metadataKey) (result apply.Result, over bool) {
		without := slices.Concat(out, more)
		r.Object = keepKeys(stored, live, without)
		if result = c.Existing.Client.Apply(ctx, r); refusalOf(&result) != nil || live != nil && result.Action == apply.Skipped {
			return result, false // refused, or nothing else is to be updated
		}
		if result.Err == nil && result.Action == verb {
			e.Warn(fmt.Sprintf("namespace %q is %s without %s: %v", r.Name, verb, describeKeys(without), refusalOf(&refused)))
		}
		return result, true
	}
	for last := refused; refusalOf(&last) != nil; {
		named := namedKeys(strings.ReplaceAll(refusalOf(&last).Error(), strconv.Quote(r.Name), ""), left)
		if len(named) == 0 {
			break
		}
		result, over := try(named...)
		if over {
			return result
		}
		out, last = append(out, named...), result
		left = slices.DeleteFunc(left, func(k metadataKey) bool { return slices.Contains(named, k) })
	}
	if len(left) > 1 {
		for _, k := range left {
			if result, over := try(k); over {
				return result
			}
		}
	}
	if len(left) > 0 {
		if result, over := try(left...); over {
			return result
		}
	}
	return refused
}

func describeKeys(keys []metadataKey) string {
	texts := make([]string, len(keys))
	for i, k := range keys {
		texts[i] = strings.TrimSuffix(k.field, "s") + " " + k.key
	}
	return strings.Join(texts, ", ")
}
