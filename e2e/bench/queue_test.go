package bench

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestWritesAreSorted(t *testing.T) {
	m := &writeMeter{}
	const backups = "/apis/velero.io/v1/namespaces/velero/backups/b"
	m.countWrite("/apis/coordination.k8s.io/v1/namespaces/velero/leases/x", nil)
	require.Zero(t, m.jobs.Load())
	m.countWrite("/apis/events.k8s.io/v1/namespaces/velero/events", []byte(`{}`))
	m.countWrite(backups, []byte(`{"metadata":{"resourceVersion":"7"},"status":{"queuePosition":3}}`))
	m.countWrite(backups, []byte(`{"metadata":{"resourceVersion":"7"},"status":{"queuePosition":3,"phase":"Queued"}}`))
	m.countWrite(backups, []byte(`{"metadata":{"resourceVersion":"7","annotations":{}},"status":{"queuePosition":3}}`))
	m.countWrite(backups, []byte(`{"metadata":{"resourceVersion":"7"}}`))
	m.countWrite(backups, []byte(`no JSON`))
	m.countWrite("/api/v1/namespaces/velero/configmaps/holdfast-queue", []byte(`{}`))
	require.EqualValues(t, 1, m.events.Load())
	require.EqualValues(t, 1, m.positions.Load())
	require.EqualValues(t, 5, m.jobs.Load())
}
