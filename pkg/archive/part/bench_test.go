package part_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/holdfast-io/holdfast/pkg/archive/part"
	"github.com/holdfast-io/holdfast/pkg/json/jsonlist"
	"github.com/holdfast-io/holdfast/pkg/kube/objmeta"
)

// randomPage is a list of items of about size bytes whose data compresses as badly as base64 of Secrets.
func randomPage(items, size int) []byte {
	rng := rand.New(rand.NewPCG(1, 1))
	const letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
	var b bytes.Buffer
	b.WriteString(`{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"1"},"items":[`)
	for i := range items {
		if i > 0 {
			b.WriteByte(',')
		}
		var data strings.Builder
		for data.Len() < max(16, size-1100) {
			if rng.IntN(3) == 0 {
				data.WriteString("configuration-value-that-repeats ")
				continue
			}
			data.WriteByte(letters[rng.IntN(64)])
		}
		fmt.Fprintf(&b, `{"metadata":{"name":"item-%06d","namespace":"bench","uid":"0a1b2c3d-0000-4000-8000-%012d","resourceVersion":"%d",`+
			`"creationTimestamp":"2026-01-02T03:04:05Z","labels":{"app":"bench","tier":"t%d","app.kubernetes.io/name":"bench"},`+
			`"annotations":{"kubectl.kubernetes.io/last-applied-configuration":"{\"a\":%d,\"b\":\"some value that was applied once\"}"},`+
			`"ownerReferences":[{"apiVersion":"apps/v1","kind":"ReplicaSet","name":"rs","uid":"0a1b2c3d-0000-4000-8000-000000000000","controller":true,"blockOwnerDeletion":true}],`+
			`"managedFields":[{"manager":"seed","operation":"Update","apiVersion":"v1","time":"2026-01-02T03:04:05Z","fieldsType":"FieldsV1","fieldsV1":{"f:data":{".":{},"f:a":{},"f:b":{}},`+
			`"f:metadata":{"f:labels":{".":{},"f:app":{},"f:tier":{}}}}}]},"data":{"a":"%s","n":"%d"}}`, i, i, i, i%7, i, data.String(), i)
	}
	b.WriteString(`]}`)
	return b.Bytes()
}

// BenchmarkItemPath is what a backup does with a page: split it, decode metadata, write two tar
// entries.
func BenchmarkItemPath(b *testing.B) {
	for _, size := range []int{2 << 10, 100 << 10, 900 << 10} {
		items := (4 << 20) / size
		body := randomPage(items, size)
		b.Run(fmt.Sprint(size), func(b *testing.B) {
			w, err := part.NewWriter(part.Config{Dir: b.TempDir(), ModTime: startTime})
			if err != nil {
				b.Fatal(err)
			}
			defer w.Discard()
			start, err := w.Mark()
			if err != nil {
				b.Fatal(err)
			}
			r := jsonlist.NewReader(nil, jsonlist.Options{})
			b.SetBytes(int64(len(body)))
			b.ReportAllocs()
			for b.Loop() {
				if err := addPage(w, r, body); err != nil {
					b.Fatal(err)
				}
				if w.Size() > 64<<20 {
					if err := w.Rewind(start); err != nil {
						b.Fatal(err)
					}
				}
			}
			b.ReportMetric(float64(items), "items/op")
		})
	}
}

func addPage(w *part.Writer, r *jsonlist.Reader, body []byte) error {
	var meta objmeta.Meta
	r.Reset(bytes.NewReader(body))
	for {
		it, err := r.Next()
		if errors.Is(err, io.EOF) {
			_, err = w.Mark()
			return err
		}
		if err == nil {
			err = objmeta.Decode(it.Metadata, &meta)
		}
		if err == nil {
			err = w.Add(part.Item{GVK: podKind, Resource: "pods", Preferred: true, Raw: it.Raw, HasTypeMeta: it.HasTypeMeta, Spaced: it.Spaced, Meta: &meta})
		}
		if err != nil {
			return err
		}
	}
}
