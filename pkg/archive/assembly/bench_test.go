package assembly_test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/holdfast-io/holdfast/pkg/archive/assembly"
	"github.com/holdfast-io/holdfast/pkg/archive/part"
	"github.com/holdfast-io/holdfast/pkg/objectstore"
	"github.com/holdfast-io/holdfast/pkg/objectstore/memstore"
)

// BenchmarkMerge merges the sidecars of 20 parts of 1,000 objects each.
func BenchmarkMerge(b *testing.B) {
	const parts, each = 20, 1000
	store, dir := memstore.New(), b.TempDir()
	plan := assembly.Plan{Backup: "b", UID: "u", ModTime: startTime}
	for p := range parts {
		w, err := part.NewWriter(part.Config{Dir: dir})
		if err != nil {
			b.Fatal(err)
		}
		for i := range each {
			if err := w.Add(newPodItem(fmt.Sprintf("ns-%02d", p), fmt.Sprintf("p-%05d", i), "x")); err != nil {
				b.Fatal(err)
			}
		}
		s, err := w.Seal()
		if err != nil {
			b.Fatal(err)
		}
		ref := assembly.PartRef{Key: fmt.Sprint("part-", p), Size: s.Data.Size, SidecarKey: filepath.Base(s.Sidecar.Path)}
		data, err := os.ReadFile(s.Sidecar.Path)
		if err != nil {
			b.Fatal(err)
		}
		if err := objectstore.PutBytes(b.Context(), store, ref.SidecarKey, data); err != nil {
			b.Fatal(err)
		}
		plan.Parts = append(plan.Parts, ref)
	}
	b.ReportAllocs()
	for b.Loop() {
		m, err := assembly.Merge(b.Context(), store, plan, dir)
		if err != nil {
			b.Fatal(err)
		}
		for _, f := range m.Files("b") {
			if err := os.Remove(f.Path); err != nil {
				b.Fatal(err)
			}
		}
	}
	b.ReportMetric(parts*each, "items/op")
}
