package rawlist

import (
	"bytes"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"k8s.io/client-go/rest"

	"github.com/holdfast-io/holdfast/pkg/json/jsonlist"
)

// dropped is a sink that keeps nothing.
type dropped struct{ lastPage }

func (dropped) Item(jsonlist.Item) error { return nil }

// BenchmarkList reads a page of 1,000 objects of 2 KiB, at a revision that is known and at one that
// the body has ahead of the items or behind them.
func BenchmarkList(b *testing.B) {
	item := `{"metadata":{"name":"o","namespace":"n"},"data":{"k":"` + strings.Repeat("x", 2000) + `"}}`
	items := `"items":[` + strings.Repeat(item+",", 999) + item + `]`
	const meta = `"metadata":{"resourceVersion":"7"}`
	for _, revision := range []string{"7", ""} {
		for _, lastFirst := range []bool{false, true} {
			body := []byte(`{"kind":"ConfigMapList","apiVersion":"v1",` + meta + "," + items + "}")
			if lastFirst {
				body = []byte(`{"kind":"ConfigMapList","apiVersion":"v1",` + items + "," + meta + "}")
			}
			b.Run(fmt.Sprintf("revision=%s/metadata-last=%v", revision, lastFirst), func(b *testing.B) {
				srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = bytes.NewReader(body).WriteTo(w) }))
				defer srv.Close()
				c, err := New(&rest.Config{Host: srv.URL}, Options{Clock: fastClock{}})
				if err != nil {
					b.Fatal(err)
				}
				defer c.http.CloseIdleConnections()
				b.SetBytes(int64(len(body)))
				b.ReportAllocs()
				for b.Loop() {
					if err := c.List(b.Context(), Request{Resource: configMaps, Revision: revision}, dropped{}); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}
