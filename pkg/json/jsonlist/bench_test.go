package jsonlist_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/holdfast-io/holdfast/pkg/json/jsonlist"
)

func benchBody(items, bytesEach int) []byte {
	var b bytes.Buffer
	b.WriteString(`{"kind":"ConfigMapList","apiVersion":"v1","metadata":{"resourceVersion":"1"},"items":[`)
	for i := range items {
		if i > 0 {
			b.WriteByte(',')
		}
		fmt.Fprintf(&b, `{"metadata":{"name":"item-%06d","namespace":"bench","uid":"0a1b2c3d-0000-4000-8000-%012d","resourceVersion":"%d",`+
			`"creationTimestamp":"2026-01-02T03:04:05Z","labels":{"app":"bench","tier":"t%d"},"managedFields":[{"manager":"seed","operation":"Update",`+
			`"apiVersion":"v1","time":"2026-01-02T03:04:05Z","fieldsType":"FieldsV1","fieldsV1":{"f:data":{".":{},"f:a":{},"f:b":{}},"f:metadata":{"f:labels":{".":{},"f:app":{},"f:tier":{}}}}}]},`+
			`"data":{"a":"%s","b":"line one\nline two","n":"%d"}}`, i, i, i, i%7, strings.Repeat("Zm9v", bytesEach/4-150), i)
	}
	b.WriteString(`]}`)
	return b.Bytes()
}

// BenchmarkNext takes the items of a list out of its body, as raw bytes: with this package, and
// with encoding/json.
func BenchmarkNext(b *testing.B) {
	for _, size := range []int{2 << 10, 900 << 10} {
		body := benchBody((8<<20)/size, size)
		r := jsonlist.NewReader(nil, jsonlist.Options{})
		for name, read := range map[string]func(io.Reader) error{
			"jsonlist":      func(body io.Reader) error { r.Reset(body); return readItems(r) },
			"encoding-json": readStandard,
		} {
			b.Run(fmt.Sprintf("%d/%s", size, name), func(b *testing.B) {
				b.SetBytes(int64(len(body)))
				b.ReportAllocs()
				for b.Loop() {
					if err := read(bytes.NewReader(body)); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}

func readItems(r *jsonlist.Reader) error {
	for {
		if _, err := r.Next(); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
	}
}

// readStandard decodes one item after the other while the body arrives.
func readStandard(body io.Reader) error {
	d := json.NewDecoder(body)
	for {
		token, err := d.Token()
		if err != nil {
			return err
		}
		if token == "items" {
			break
		}
	}
	if _, err := d.Token(); err != nil { // the bracket
		return err
	}
	var item json.RawMessage
	for d.More() {
		if err := d.Decode(&item); err != nil {
			return err
		}
	}
	return nil
}
