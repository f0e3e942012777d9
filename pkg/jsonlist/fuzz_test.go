package jsonlist_test

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/pkg/jsonlist"
)

// FuzzReader holds the splitter against encoding/json: what it accepts is JSON with the same items and metadata, what
// it refuses is no JSON or no list, and how the body is cut into reads makes no difference.
func FuzzReader(f *testing.F) {
	for _, s := range []string{
		coreList, customList, `{"items":null}`, `{"items":[{"a":[[],{},"\u00e9\\\"",1e5,-0.1,true,null]}]}`, `{"items":[{"met\u0061data":{"x":1}}]}`,
		`{"items":[{"metadata":1,"metadata":{"b":2}}]}`, `{"it`, `{"items":[{"a":"\ud800"}],"kind":"L\n"}`, `{"items":[{}],"x":{"items":[1]}}`, "{\"items\":[{\"a\" :\t1 }]}",
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		r := jsonlist.NewReader(bytes.NewReader(body), jsonlist.Options{})
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

// isList tells by encoding/json whether the body is a list as the package understands it.
func isList(body []byte) bool {
	var list struct {
		Kind       *string `json:"kind"`
		APIVersion *string `json:"apiVersion"`
		Metadata   *struct {
			ResourceVersion string `json:"resourceVersion"`
			Continue        string `json:"continue"`
			Remaining       *int64 `json:"remainingItemCount"`
		} `json:"metadata"`
		Items []map[string]json.RawMessage `json:"items"`
	}
	if json.Unmarshal(body, &list) != nil {
		return false
	}
	for _, it := range list.Items {
		if it == nil { // null
			return false
		}
	}
	// Field names in other case, or twice, mean different things to the two.
	lower := bytes.ToLower(body)
	for _, name := range []string{`"items"`, `"kind"`, `"apiversion"`, `"metadata"`} {
		if bytes.Count(lower, []byte(name)) > 1 || strings.ContainsRune(string(body), '\\') || bytes.ContainsRune(body, 'ſ') || bytes.ContainsRune(body, '\u212a') {
			return false
		}
	}
	return bytes.Contains(body, []byte(`"items"`))
}
