package rawjson_test

import (
	"bytes"
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/pkg/json/rawjson"
)

func TestLookup(t *testing.T) {
	t.Parallel()
	doc := []byte(` { "a" : {"b":[1,2,{"c":"}"}], "\u0063" : "x\ny" }, "n":null, "a2":-1.5e3} `)
	require.Equal(t, `[1,2,{"c":"}"}]`, string(rawjson.Lookup(doc, "a", "b")))
	require.Equal(t, "x\ny", rawjson.String(rawjson.Lookup(doc, "a", "c")))
	require.Equal(t, "-1.5e3", string(rawjson.Lookup(doc, "a2")))
	require.Nil(t, rawjson.Lookup(doc, "n"))
	require.Nil(t, rawjson.Lookup(doc, "n", "deeper"))
	require.Nil(t, rawjson.Lookup(doc, "a2", "deeper"))
}

func TestElements(t *testing.T) {
	t.Parallel()
	var got []string
	e := rawjson.ArrayElements([]byte(`[ 1, "a,b" ,{"x":[]},[[]], null ]`))
	for e.Next() {
		got = append(got, string(e.Value))
	}
	require.NoError(t, e.Err())
	require.Equal(t, []string{"1", `"a,b"`, `{"x":[]}`, "[[]]", "null"}, got)
}

func TestMalformedWalks(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"", "{", `{"a"`, `{"a":`, `{"a":1`, `{"a":1 "b":2}`, `{"a`, `{1:2}`, `"x"`, `{"a":}`, `{"a\`} {
		f := rawjson.ObjectFields([]byte(text))
		for f.Next() {
		}
		require.ErrorIs(t, f.Err(), rawjson.ErrSyntax, text)
	}
}

// FuzzValues holds every function against encoding/json on text that is JSON, and against panics on
// text that is not.
func FuzzValues(f *testing.F) {
	for _, s := range []string{
		`{"a":"\ud83d\ude00\u00e9\\\"","b":[{"c":1.5e-3},null,true,[]],"":{}}`, `"\ud800x"`, "\"\xff\xc3(\"", `{"a":{"a":{"a":{}}}}`,
		`[1, 2 ,3 ]`, ` {"x" : "a b"} `, `{"`, `{"a":"\`, `"\u12`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		walkAll(text)
		if !json.Valid(text) {
			return
		}
		var want bytes.Buffer
		require.NoError(t, json.Compact(&want, text))
		got, err := rawjson.AppendCompact(nil, text)
		require.NoError(t, err)
		require.Equal(t, want.String(), string(got))
		checkFields(t, text)
		checkString(t, text)
	})
}

func walkAll(text []byte) {
	f := rawjson.ObjectFields(text)
	for f.Next() {
	}
	e := rawjson.ArrayElements(text)
	for e.Next() {
	}
	_, _ = rawjson.AppendCompact(nil, text)
	_, _ = rawjson.AppendUnquoted(nil, text)
}

func checkFields(t *testing.T, text []byte) {
	var want map[string]json.RawMessage
	if json.Unmarshal(text, &want) != nil {
		return
	}
	got := map[string]json.RawMessage{}
	f := rawjson.ObjectFields(bytes.TrimSpace(text))
	for f.Next() {
		key, err := rawjson.AppendUnquoted(nil, rawjson.AppendQuoted(nil, string(f.Key)))
		require.NoError(t, err)
		got[string(key)] = f.Value
	}
	require.NoError(t, f.Err())
	require.Len(t, got, len(want))
	for k, v := range want {
		require.Equal(t, string(v), string(got[k]), k)
	}
}

func checkString(t *testing.T, text []byte) {
	var want string
	text = bytes.TrimSpace(text)
	if text[0] != '"' || json.Unmarshal(text, &want) != nil {
		return
	}
	require.Equal(t, want, rawjson.String(text))
	var back string
	require.NoError(t, json.Unmarshal(rawjson.AppendQuoted(nil, want), &back))
	require.Equal(t, want, back)
}
