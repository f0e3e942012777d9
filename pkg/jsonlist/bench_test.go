package jsonlist_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/holdfast-io/holdfast/pkg/jsonlist"
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

func BenchmarkNext(b *testing.B) {
	for _, size := range []int{2 << 10, 900 << 10} {
		body := benchBody((8<<20)/size, size)
		b.Run(fmt.Sprint(size), func(b *testing.B) {
			r := jsonlist.NewReader(nil, jsonlist.Options{})
			b.SetBytes(int64(len(body)))
			b.ReportAllocs()
			for b.Loop() {
				r.Reset(bytes.NewReader(body))
				for {
					if _, err := r.Next(); errors.Is(err, io.EOF) {
						break
					} else if err != nil {
						b.Fatal(err)
					}
				}
			}
		})
	}
}
