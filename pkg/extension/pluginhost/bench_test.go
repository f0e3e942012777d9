package pluginhost_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/pkg/extension/action"
)

// BenchmarkExecute is one call for one object, there and back: a plugin that leaves it alone, and
// one that changes it.
func BenchmarkExecute(b *testing.B) {
	s := openSession(b, newVendorHost(b, nil))
	backup := theBackup(b)
	object := action.FromJSON([]byte(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"namespace":"a","name":"b"},"data":{"k":"` + strings.Repeat("x", 2000) + `"}}`))
	for _, behaviour := range []string{"echo", "change"} {
		b.Run(behaviour, func(b *testing.B) {
			a := actionNamed(b, s.BackupItems(), "test.io/"+behaviour)
			b.ReportAllocs()
			for b.Loop() {
				_, err := a.Execute(b.Context(), object, backup)
				require.NoError(b, err)
			}
		})
	}
}
