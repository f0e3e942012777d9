package server

import (
	"encoding/base64"
	"encoding/json"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/pkg/archive/manifest"
	"github.com/holdfast-io/holdfast/pkg/errgrpc"
	"github.com/holdfast-io/holdfast/pkg/json/jsonlimit/limittest"
	manifestv1 "github.com/holdfast-io/holdfast/proto/gen/holdfast/manifest/v1"
)

// FuzzToken: what a caller sends as a page token is refused by its field, or names where the page begins.
func FuzzToken(f *testing.F) {
	f.Add("", "v1/Pod", "shop", "web")
	f.Add("eyJxIjoiIn0", "", "", "")
	f.Add(base64.RawURLEncoding.EncodeToString([]byte(`{"q":"AA==","a":[[[[]]]]}`)), "a", "b", "c")
	f.Fuzz(func(t *testing.T, text, kind, namespace, name string) {
		req := &manifestv1.ListItemsRequest{Backup: "b", PageToken: text}
		var err error
		require.Less(t, limittest.Allocated(func() { _, err = decodeToken(req) }), uint64(4<<20+1000*len(text)))
		if err != nil {
			field := new(errgrpc.FieldError)
			require.ErrorAs(t, err, &field)
			require.Equal(t, "page_token", field.Field)
		}
		after := manifest.Key{Kind: kind, Namespace: namespace, Name: name}
		if req.PageToken, err = encodeToken(req, after); err != nil || !utf8.ValidString(kind) || !utf8.ValidString(namespace) || !utf8.ValidString(name) {
			return
		}
		got, err := decodeToken(req)
		require.NoError(t, err)
		require.Equal(t, after, *got)
		req.Namespace = "another"
		_, err = decodeToken(req)
		require.ErrorContains(t, err, "other filters")
	})
}

// FuzzMaskSecret: of a Secret no field is shown but those that say what it is, and the cost is bounded.
func FuzzMaskSecret(f *testing.F) {
	f.Add([]byte(`{"kind":"Secret","metadata":{"name":"db","annotations":{"shown":"a","note":"b"}},"type":"Opaque","data":{"password":"YQ=="}}`))
	f.Add([]byte(`{"metadata":["x"],"data":null,"stringData":{"a":{"b":"c"}},"immutable":true}`))
	f.Add([]byte(`{"metadata":{"annotations":[1]}}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		var text []byte
		var err error
		item := &manifest.Item{Annotations: map[string]string{"shown": "a"}}
		require.Less(t, limittest.Allocated(func() { text, err = maskSecret(body, item) }), uint64(8<<20+1000*len(body)))
		if err != nil {
			return
		}
		var shown map[string]any
		require.NoError(t, json.Unmarshal(text, &shown))
		for name, value := range shown {
			switch name {
			case "apiVersion", "kind", "type", "immutable":
				continue
			case "metadata":
				metadata, isObject := value.(map[string]any)
				if value = metadata["annotations"]; !isObject || value == nil {
					continue
				}
			}
			values, isObject := value.(map[string]any)
			if !isObject {
				require.Equal(t, masked, value)
			}
			for key, value := range values {
				require.True(t, value == masked || name == "metadata" && key == "shown", "%s.%s", name, key)
			}
		}
	})
}
