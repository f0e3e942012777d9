package collect

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/runtime/schema"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/jsonlist"
	"github.com/holdfast-io/holdfast/pkg/rawlist"
)

// benchPage is how many objects of a benchmark make a page.
const benchPage = 500

// BenchmarkItem is what the runner does with one listed object of 2 KiB.
func BenchmarkItem(b *testing.B) {
	b.Run("no actions", func(b *testing.B) { benchmarkItem(b, newSetup(b, estate(), velerov1.BackupSpec{})) })
}

func benchmarkItem(b *testing.B, st *setup) {
	b.Helper()
	st.cfg.PartItems, st.cfg.PartBytes = 1<<30, 1<<40
	r := &run{Config: st.cfg, Job: st.job, facts: newFacts(st.job.Backup)}
	w := &worker{run: r}
	defer w.discard()
	res, ok := r.Catalog.Lookup(schema.GroupResource{Resource: "configmaps"})
	require.True(b, ok)
	u := unit{res: res}
	s := &sink{w: w, u: &u, gr: res.GroupResource(), references: u.references()}
	item, err := jsonlist.ParseObject([]byte(`{"metadata":{"name":"cm-1","namespace":"a","uid":"00000000-0000-4000-8000-000000000000",` +
		`"resourceVersion":"7","creationTimestamp":"2026-01-01T00:00:00Z","labels":{"app":"x","tier":"db"}},"data":{"k":"` + strings.Repeat("vwxyz", 400) + `"}}`))
	require.NoError(b, err)
	b.ReportAllocs()
	b.SetBytes(int64(len(item.Raw)))
	n := 0
	for b.Loop() {
		require.NoError(b, s.Begin("1000"))
		require.NoError(b, s.Item(item))
		if n++; n%benchPage == 0 {
			require.NoError(b, s.Commit(rawlist.Page{Continue: "more"}))
		}
	}
}
