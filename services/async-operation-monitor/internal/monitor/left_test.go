package monitor_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/job/operation"
	"github.com/holdfast-io/holdfast/pkg/json/jsonlimit/limittest"
	"github.com/holdfast-io/holdfast/pkg/kube"
	"github.com/holdfast-io/holdfast/pkg/layout"
	"github.com/holdfast-io/holdfast/pkg/objectstore"
	"github.com/holdfast-io/holdfast/pkg/objectstore/memstore"
	"github.com/holdfast-io/holdfast/services/async-operation-monitor/internal/monitor"
	"github.com/holdfast-io/holdfast/services/async-operation-monitor/internal/operations"
	"github.com/holdfast-io/holdfast/services/async-operation-monitor/internal/poll"
)

// oneStore is the store of every location.
type oneStore struct{ objectstore.Store }

// OpenName implements operations.Stores.
func (s oneStore) OpenName(context.Context, string) (objectstore.Store, error) { return kept(s), nil }

// kept stays open.
type kept struct{ objectstore.Store }

// Close implements objectstore.Store.
func (kept) Close() error { return nil }

// fromFile looks once at a backup that another server left waiting with a file of operations, those of
// vendor.io/a of which can be asked about here.
func fromFile(t *testing.T, file []byte) (b *velerov1.Backup, store *memstore.Store, told *events, allocated uint64) {
	t.Helper()
	b = &velerov1.Backup{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "x", UID: "u", CreationTimestamp: metav1.NewTime(now)}}
	b.Spec.StorageLocation, b.Status.Phase = "default", waiting
	b.Spec.ItemOperationTimeout.Duration = 1_000_000 * time.Hour // polls have the real time
	c := fake.NewClientBuilder().WithScheme(kube.Scheme()).WithObjects(b).Build()
	store, told = memstore.New(), &events{}
	store.Set(layout.BackupItemOperations("x"), file)
	down := newBus()
	down.set(true, false)
	poller := poll.New(t.Context(), poll.Config{Actions: &plugins{}, Metrics: silence{}, Clock: clock.RealClock{}, Frequency: time.Second, Grace: grace})
	t.Cleanup(poller.Close)
	m := monitor.New(monitor.Config{
		Reader: c, Client: c, Namespace: namespace, Files: &operations.Source{Reader: c, Namespace: namespace, Stores: oneStore{store}},
		Actions: here{"vendor.io/a": true}, Poller: poller, Bus: down, Events: told,
		Frequency: time.Second, Clock: clocktesting.NewFakePassiveClock(now), Log: slog.New(slog.DiscardHandler),
	})
	allocated = limittest.Allocated(func() {
		_, err := m.Backup(t.Context(), reconcile.Request{NamespacedName: client.ObjectKeyFromObject(b)})
		require.NoError(t, err)
	})
	require.NoError(t, c.Get(t.Context(), client.ObjectKeyFromObject(b), b))
	return b, store, told, allocated
}

const entry = `{"spec":{"backupName":"x","backupItemAction":"vendor.io/a","resourceIdentifier":{"Group":"","Resource":"persistentvolumeclaims","Namespace":"a-namespace","Name":"data-%d"},` +
	`"operationID":"snapshot-0f3ad2a1-%d"},"status":{"phase":%q,"created":"2026-01-01T11:00:00Z","description":%q}}`

// The list that was made of a forged file was held as structs, and six times as long as text.
func TestAForgedFileOfAnotherServerIsTakenOverInBoundedMemory(t *testing.T) {
	const bound = 384 << 20 // of what is allocated; a third of that is ever alive
	before := "[" + fmt.Sprintf(entry, 0, 0, "InProgress", "") + ","
	text := limittest.List(before, fmt.Sprintf(entry, 1, 1, "Completed", strings.Repeat("<", 100<<10)), "]", 60<<20)
	b, store, told, allocated := fromFile(t, limittest.Packed(t, text))
	require.Less(t, allocated, uint64(bound))
	require.Equal(t, finalPF, b.Status.Phase)
	require.Len(t, told.told(), 1)
	require.Equal(t, []string{layout.BackupItemOperations("x")}, store.Keys())
}

// A large job has an operation for each volume.
func TestTwentyThousandOperationsOfAnotherServerAreFollowed(t *testing.T) {
	const many = 20_000
	var text bytes.Buffer
	for i := range many {
		text.WriteString([]string{"[", ","}[min(i, 1)])
		_, _ = fmt.Fprintf(&text, entry, i, i, []string{"InProgress", "Completed"}[min(i, 1)], "copying blocks")
	}
	text.WriteString("]")
	b, store, told, _ := fromFile(t, limittest.Packed(t, &text))
	require.Equal(t, waiting, b.Status.Phase)
	require.Empty(t, told.told())
	list, err := operation.Sealed(t.Context(), store, operation.Job{Kind: operation.KindBackup, Name: "x", UID: "u"})
	require.NoError(t, err)
	require.Len(t, list.Operations, many)
	require.True(t, list.Inherited)
}
