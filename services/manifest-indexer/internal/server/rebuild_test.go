package server

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"fmt"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/archive/part"
	"github.com/holdfast-io/holdfast/pkg/errgrpc"
	"github.com/holdfast-io/holdfast/pkg/layout"
	"github.com/holdfast-io/holdfast/pkg/objectstore"
	"github.com/holdfast-io/holdfast/pkg/objectstore/memstore"
	manifestv1 "github.com/holdfast-io/holdfast/proto/gen/holdfast/manifest/v1"
)

// packVelero is a tarball as Velero 1.18 writes it, one gzip member, with Pods that mount a Secret.
func packVelero(t *testing.T, pods int) []byte {
	t.Helper()
	var out bytes.Buffer
	zip := gzip.NewWriter(&out)
	w := tar.NewWriter(zip)
	add := func(name, body string) {
		require.NoError(t, w.WriteHeader(&tar.Header{Name: name, Size: int64(len(body)), Typeflag: tar.TypeReg, Mode: 0o755}))
		_, err := w.Write([]byte(body))
		require.NoError(t, err)
	}
	add("metadata/version", "1.1.0\n")
	for i := range pods {
		body := fmt.Sprintf(`{"apiVersion":"v1","kind":"Pod","metadata":{"name":"p-%02d","namespace":"shop","uid":"uid-p-%02d"},"spec":{"volumes":[{"name":"v","secret":{"secretName":"keys"}}]}}`, i, i)
		for _, version := range []string{"", "v1-preferredversion/"} {
			add(fmt.Sprintf("resources/pods/%snamespaces/shop/p-%02d.json", version, i), body)
		}
	}
	add("resources/widgets.example.com/v1beta1/cluster/w.json", `{"apiVersion":"example.com/v1beta1","kind":"Widget","metadata":{"name":"w"}}`+"\n")
	require.NoError(t, w.Close())
	require.NoError(t, zip.Close())
	return out.Bytes()
}

// newVeleroBed is newBed with Velero's backup "velero-made".
func newVeleroBed(t *testing.T) *bed {
	b := newBed(t)
	b.store.Set(layout.BackupTarball("velero-made"), packVelero(t, 30))
	return b
}

func podKey(name string) *manifestv1.GetItemRequest {
	req := byName("pod", "shop", name)
	req.Backup = "velero-made"
	return req
}

func TestVelerosBackupGetsAManifest(t *testing.T) {
	b := newVeleroBed(t)
	got, err := b.s.GetManifest(t.Context(), &manifestv1.GetManifestRequest{Backup: "velero-made"})
	require.NoError(t, err)
	require.EqualValues(t, 31, got.GetItems())
	require.Equal(t, "uid-velero-made", got.GetBackupUid())
	names := b.listAll(&manifestv1.ListItemsRequest{Backup: "velero-made", PageSize: 7})
	require.Len(t, names, 31)
	require.Contains(t, names, "shop/p-29")
	item, err := b.s.GetItem(t.Context(), podKey("p-17"))
	require.NoError(t, err)
	require.Contains(t, string(item.GetBody()), `"uid":"uid-p-17"`)
	item, err = b.s.GetItem(t.Context(), &manifestv1.GetItemRequest{Backup: "velero-made", WithBody: true, Kind: "widget", Name: "w"})
	require.NoError(t, err)
	require.True(t, strings.HasSuffix(string(item.GetBody()), "}\n"), "the body is what is stored")

	b.store.Inject(func(op memstore.Op, key string) error {
		if op == memstore.OpGet && key == layout.BackupTarball("velero-made") {
			return objectstore.ErrAccess
		}
		return nil
	})
	_, err = b.s.GetManifest(t.Context(), &manifestv1.GetManifestRequest{Backup: "velero-made"})
	require.NoError(t, err, "it is stored beside the backup and not made again")
	_, stored := b.store.Bytes(layout.BackupRebuiltManifest("velero-made"))
	require.True(t, stored)
}

func TestRebuiltManifestHasReferences(t *testing.T) {
	b := newVeleroBed(t)
	m, err := b.s.openBackup(t.Context(), "velero-made")
	require.NoError(t, err)
	defer func() { require.NoError(t, err) }()
	defer m.close(&err)
	item, err := m.findItem(t.Context(), podKey("p-03"))
	require.NoError(t, err)
	require.Equal(t, "keys", item.References[0].Name)
	require.Len(t, m.Trailer().TarballSHA256, 64)

	source, err := m.openSource(t.Context())
	require.NoError(t, err)
	defer func() { require.NoError(t, source.Close()) }()
	body, err := source.Read(t.Context(), item)
	require.NoError(t, err)
	require.Contains(t, string(body), `"uid":"uid-p-03"`)
}

func TestManifestIsKeptWhereTheLocationRefusesIt(t *testing.T) {
	b := newVeleroBed(t)
	var reads atomic.Int32
	b.store.Inject(func(op memstore.Op, key string) error {
		switch {
		case op == memstore.OpPut:
			return objectstore.ErrReadOnly
		case op == memstore.OpGet && key == layout.BackupTarball("velero-made"):
			reads.Add(1)
		}
		return nil
	})
	for range 3 {
		require.Len(t, b.listAll(&manifestv1.ListItemsRequest{Backup: "velero-made"}), 31)
	}
	require.EqualValues(t, 1, reads.Load())
	_, stored := b.store.Bytes(layout.BackupRebuiltManifest("velero-made"))
	require.False(t, stored)

	b.store.Set(layout.BackupTarball("velero-made"), packVelero(t, 40))
	require.Len(t, b.listAll(&manifestv1.ListItemsRequest{Backup: "velero-made"}), 41, "a manifest of another tarball is not used")
}

func TestRequestsAtOnceMakeOneManifest(t *testing.T) {
	b := newVeleroBed(t)
	var reads atomic.Int32
	release := make(chan struct{})
	b.store.Inject(func(op memstore.Op, key string) error {
		if op == memstore.OpGet && key == layout.BackupTarball("velero-made") {
			reads.Add(1)
			<-release
		}
		return nil
	})
	var group sync.WaitGroup
	errs := make(chan error, 8)
	for range 8 {
		group.Go(func() {
			_, err := b.s.GetManifest(t.Context(), &manifestv1.GetManifestRequest{Backup: "velero-made"})
			errs <- err
		})
	}
	close(release)
	group.Wait()
	for range 8 {
		require.NoError(t, <-errs)
	}
	require.LessOrEqual(t, reads.Load(), int32(1))
}

func TestDamagedManifestIsRebuiltBesideIt(t *testing.T) {
	b := newBed(t)
	whole, _ := b.store.Bytes(layout.BackupManifest("b"))
	all := b.listAll(&manifestv1.ListItemsRequest{Backup: "b"})
	b.store.Set(layout.BackupManifest("b"), whole[:len(whole)/2])
	require.Equal(t, all, b.listAll(&manifestv1.ListItemsRequest{Backup: "b"}))
	item, err := b.s.GetItem(t.Context(), byName("cm", "ns-1", "cm-07"))
	require.NoError(t, err)
	require.Contains(t, string(item.GetBody()), `"name":"cm-07"`)
	left, _ := b.store.Bytes(layout.BackupManifest("b"))
	require.Equal(t, whole[:len(whole)/2], left, "the damaged one stays")
}

// Damage that shows only where items are read ends that request; the next has another manifest.
func TestManifestDamagedInsideIsRebuilt(t *testing.T) {
	b := newBed(t)
	all := b.listAll(&manifestv1.ListItemsRequest{Backup: "b"})
	damaged, _ := b.store.Bytes(layout.BackupManifest("b"))
	for i := 300; i < 320; i++ {
		damaged[i] ^= 0x55
	}
	b.store.Set(layout.BackupManifest("b"), damaged)
	_, err := b.s.ListItems(t.Context(), &manifestv1.ListItemsRequest{Backup: "b"})
	require.ErrorIs(t, err, errgrpc.ErrCorrupt)
	require.Equal(t, all, b.listAll(&manifestv1.ListItemsRequest{Backup: "b"}))
}

func TestFailuresOfRebuildingNameTheBackup(t *testing.T) {
	b := newVeleroBed(t)
	whole := packVelero(t, 30)
	b.store.Set(layout.BackupTarball("velero-made"), whole[:len(whole)/2])
	_, err := b.s.GetManifest(t.Context(), &manifestv1.GetManifestRequest{Backup: "velero-made"})
	require.ErrorIs(t, err, errgrpc.ErrCorrupt)
	require.ErrorContains(t, err, "velero-made")
	require.Empty(t, b.s.Rebuilder.pending)
}

func TestTooManyManifestsAreRefused(t *testing.T) {
	r := NewRebuilder(RebuilderConfig{}) // nobody does its work
	for i := range maxQueued {
		backup := newBackup(fmt.Sprint(i))
		require.NotNil(t, r.queueRebuild(backup, 1))
		require.Same(t, r.pending[backup.UID], r.queueRebuild(backup, 1))
	}
	require.Nil(t, r.queueRebuild(newBackup("more"), 1))
	require.Len(t, r.pending, maxQueued)
	require.ErrorContains(t, r.awaitManifest(t.Context(), newBackup("more"), 1), `backup "more": too many manifests`)
}

func TestManifestOfADeletedBackupIsNotLeft(t *testing.T) {
	b := newVeleroBed(t)
	backup := newBackup("velero-made")
	backup.UID = "of an earlier object"
	require.NoError(t, b.s.Rebuilder.makeManifest(t.Context(), backup))
	_, stored := b.store.Bytes(layout.BackupRebuiltManifest("velero-made"))
	require.False(t, stored)
}

func TestKeptManifestsAreBounded(t *testing.T) {
	dir := t.TempDir()
	k := keptManifests{limit: 10}
	for i, name := range []string{"a", "b", "c"} {
		k.addFile(types.UID(name), part.File{Path: fmt.Sprint(dir, "/", i), Size: 4})
	}
	require.EqualValues(t, 8, k.size)
	require.Equal(t, -1, k.indexOf("a"))
	file, err := k.openFile("b")
	require.NoError(t, err)
	require.Nil(t, file, "its file is gone")
	require.EqualValues(t, 4, k.size)
}

func TestRunningBackupGetsNoManifest(t *testing.T) {
	b := newVeleroBed(t)
	running := newBackup("velero-made")
	running.Status.Phase = velerov1.BackupPhaseInProgress
	_, err := b.s.openManifest(t.Context(), b.store, running)
	require.ErrorIs(t, err, errgrpc.ErrNotFound)
}

// The caller that asked first may leave: the manifest is made for those who ask too.
func TestManifestIsMadeWithoutTheCallerWhoAskedFirst(t *testing.T) {
	b := newVeleroBed(t)
	r := NewRebuilder(b.s.Rebuilder.RebuilderConfig)
	backup := newBackup("velero-made")
	gone, leave := context.WithTimeout(t.Context(), 0)
	defer leave()
	err := r.awaitManifest(gone, backup, 1)
	st, _ := errgrpc.Status(err)
	require.Equal(t, codes.DeadlineExceeded, st.Code())
	require.Equal(t, errgrpc.ReasonStillWorking, errgrpc.Reason(st.Err()), "so that the caller asks again")
	waiting := r.pending[backup.UID]
	require.NotNil(t, waiting, "others may wait for it")
	ctx, cancel := context.WithCancel(t.Context())
	var group sync.WaitGroup
	group.Go(func() { _ = r.Run(ctx) })
	<-waiting.done
	require.NoError(t, waiting.err)
	cancel()
	group.Wait()
}

// A kept manifest that turns out damaged is made anew.
func TestDamagedKeptManifestIsMadeAnew(t *testing.T) {
	b := newVeleroBed(t)
	b.store.Inject(func(op memstore.Op, _ string) error {
		if op == memstore.OpPut {
			return objectstore.ErrReadOnly
		}
		return nil
	})
	all := b.listAll(&manifestv1.ListItemsRequest{Backup: "velero-made"})
	require.NoError(t, os.Truncate(b.s.Rebuilder.kept.files[0].file.Path, 100))
	require.Equal(t, all, b.listAll(&manifestv1.ListItemsRequest{Backup: "velero-made"}))
	require.NoError(t, os.Truncate(b.s.Rebuilder.kept.files[0].file.Path, 100))
	result, err := b.verify("velero-made")
	require.NoError(t, err)
	require.Zero(t, result.GetFound())
}

// A tarball of which no manifest can be made is not read again by everyone who asks.
func TestADamagedTarballIsReadOnceInAWhile(t *testing.T) {
	b := newVeleroBed(t)
	clock := clocktesting.NewFakePassiveClock(time.Unix(1_000_000, 0))
	b.s.Rebuilder.Clock = clock
	whole := packVelero(t, 30)
	b.store.Set(layout.BackupTarball("velero-made"), whole[:len(whole)/2])
	var reads atomic.Int32
	b.store.Inject(func(op memstore.Op, key string) error {
		if op == memstore.OpGet && key == layout.BackupTarball("velero-made") {
			reads.Add(1)
		}
		return nil
	})
	ask := func() error {
		_, err := b.s.GetManifest(t.Context(), &manifestv1.GetManifestRequest{Backup: "velero-made"})
		return err
	}
	for range 3 {
		require.ErrorIs(t, ask(), errgrpc.ErrCorrupt)
	}
	require.EqualValues(t, 1, reads.Load())
	clock.SetTime(clock.Now().Add(failurePeriod))
	require.ErrorIs(t, ask(), errgrpc.ErrCorrupt)
	require.EqualValues(t, 2, reads.Load())
	b.store.Set(layout.BackupTarball("velero-made"), whole)
	require.NoError(t, ask(), "it is another one")

	b.store.Set(layout.BackupTarball("velero-made"), packVelero(t, 40))
	b.store.Inject(func(op memstore.Op, key string) error {
		if op == memstore.OpGet && key == layout.BackupTarball("velero-made") {
			return objectstore.ErrAccess
		}
		return nil
	})
	require.ErrorIs(t, ask(), errgrpc.ErrUnavailable)
	b.store.Inject(nil)
	require.NoError(t, ask(), "what the store refuses once it may give later")
}
