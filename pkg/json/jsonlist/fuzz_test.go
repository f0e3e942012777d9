package jsonlist_test

import (
	"bytes"
	"encoding/json"
	"runtime"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/pkg/json/jsonlist"
)

// FuzzReader holds the splitter against encoding/json: what it accepts is JSON with the same items
// and metadata, what it refuses is no JSON or no list, and how the body is cut into reads makes no
// difference.
func FuzzReader(f *testing.F) {
	for _, s := range []string{
		coreList, customList, `{"items":null}`, `{"items":[{"a":[[],{},"\u00e9\\\"",1e5,-0.1,true,null]}]}`, `{"items":[{"met\u0061data":{"x":1}}]}`,
		`{"items":[{"metadata":1,"metadata":{"b":2}}]}`, `{"it`, `{"items":[{"a":"\ud800"}],"kind":"L\n"}`, `{"items":[{}],"x":{"items":[1]}}`, "{\"items\":[{\"a\" :\t1 }]}",
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		r := jsonlist.NewReader(bytes.NewReader(body), jsonlist.Options{})
		require.Less(t, allocatedBytes(func() { skipAll(r) }), uint64(512<<10+64*len(body)), "memory")
		r.Reset(bytes.NewReader(body))
		items, err := readAll(r)
		slow, slowErr := readAll(jsonlist.NewReader(iotest.OneByteReader(bytes.NewReader(body)), jsonlist.Options{}))
		require.Equal(t, items, slow)
		require.Equal(t, err == nil, slowErr == nil)
		if err != nil {
			require.False(t, isList(body), "refused a list: %v", err)
			return
		}
		require.True(t, json.Valid(body), "accepted what is no JSON")
		var list map[string]json.RawMessage
		require.NoError(t, json.Unmarshal(body, &list))
		var want []json.RawMessage
		if list["items"] != nil {
			require.NoError(t, json.Unmarshal(list["items"], &want))
		}
		require.Len(t, items, len(want))
		for i := range want {
			checkItem(t, want[i], items[i])
		}
	})
}

// allocatedBytes is how many bytes fn takes.
func allocatedBytes(fn func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	fn()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

// skipAll reads a body and keeps nothing.
func skipAll(r *jsonlist.Reader) {
	for {
		if _, err := r.Next(); err != nil {
			return
		}
	}
}

func checkItem(t *testing.T, want json.RawMessage, it got) {
	var fields map[string]json.RawMessage
	require.NoError(t, json.Unmarshal(want, &fields))
	require.Equal(t, string(fields["metadata"]), it.meta)
	_, version := fields["apiVersion"]
	_, kind := fields["kind"]
	if it.typeMeta || (!version && !kind) {
		require.Equal(t, string(want), it.raw)
		require.Equal(t, it.typeMeta, version && kind)
		var compact bytes.Buffer
		require.NoError(t, json.Compact(&compact, want))
		require.Equal(t, it.spaced, compact.Len() != len(want))
		return
	}
	delete(fields, "apiVersion")
	delete(fields, "kind")
	var left map[string]json.RawMessage
	require.NoError(t, json.Unmarshal([]byte(it.raw), &left))
	require.Len(t, left, len(fields))
}

// isList reports by encoding/json whether the body is a list as the package understands it.
func isList(body []byte) bool {
	fields := map[string]json.RawMessage{}
	d := json.NewDecoder(bytes.NewReader(body))
	if open, err := d.Token(); err != nil || open != json.Delim('{') || !json.Valid(body) {
		return false
	}
	for d.More() {
		name, err := d.Token()
		var value json.RawMessage
		if err != nil || d.Decode(&value) != nil {
			return false
		}
		key := name.(string) //nolint:forcetypeassert // names are strings
		if _, twice := fields[key]; twice {
			return false // which of the two counts is undefined
		}
		fields[key] = value
	}
	return isListOf(fields)
}

func isListOf(fields map[string]json.RawMessage) bool {
	var kind, version *string
	var items []map[string]json.RawMessage
	var meta map[string]json.RawMessage
	for name, into := range map[string]any{"kind": &kind, "apiVersion": &version, "items": &items, "metadata": &meta} {
		if fields[name] != nil && json.Unmarshal(fields[name], into) != nil {
			return false
		}
	}
	for _, it := range items {
		if it == nil { // null
			return false
		}
	}
	_, given := fields["items"]
	return len(meta) == 0 && (given || kind != nil && strings.HasSuffix(*kind, "List"))
}
