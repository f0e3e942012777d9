package podvolume_test

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/extension/action"
	"github.com/holdfast-io/holdfast/pkg/extension/podvolume"
	"github.com/holdfast-io/holdfast/pkg/kube"
	"github.com/holdfast-io/holdfast/pkg/kube/kubetest"
)

// jobJSON is the job of the requests, as the monitor hands it on.
const jobJSON = `{"metadata":{"name":"b","uid":"uid-b"}}`

// newAPI returns an API server that serves the requests.
func newAPI(t *testing.T) (podvolume.API, *clocktesting.FakeClock) {
	t.Helper()
	server := kubetest.Start(t)
	server.Serve("velero.io/v1", "podvolumebackups", "PodVolumeBackup", true)
	server.Serve("velero.io/v1", "podvolumerestores", "PodVolumeRestore", true)
	server.Serve("velero.io/v2alpha1", "datauploads", "DataUpload", true)
	server.Serve("velero.io/v2alpha1", "datadownloads", "DataDownload", true)
	config := server.Config()
	config.ContentType, config.QPS = "application/json", -1
	c, err := client.New(config, client.Options{Scheme: kube.Scheme()})
	require.NoError(t, err)
	require.NoError(t, c.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "velero"}}))
	clock := clocktesting.NewFakeClock(time.Now())
	return podvolume.API{Reader: c, Client: c, Namespace: "velero", Clock: clock, Log: slog.New(slog.DiscardHandler)}, clock
}

// operationBed is an operation with requests.
type operationBed struct {
	podvolume.API
	clock *clocktesting.FakeClock
	op    action.Operation
}

func (b *operationBed) progress(t *testing.T) action.Progress {
	t.Helper()
	p, err := (&podvolume.Operations{API: b.API}).Progress(t.Context(), b.op, []byte(jobJSON))
	require.NoError(t, err)
	return p
}

func (b *operationBed) cancel(t *testing.T, job string) (bool, error) {
	t.Helper()
	return (&podvolume.Operations{API: b.API}).Cancel(t.Context(), b.op, []byte(job), time.Minute)
}

// newBackups returns an operation with PodVolumeBackups of these volumes.
func newBackups(t *testing.T, volumes ...string) *operationBed {
	t.Helper()
	api, clock := newAPI(t)
	hash := podvolume.Hash("key")
	for _, volume := range volumes {
		pvb := &velerov1.PodVolumeBackup{ObjectMeta: metav1.ObjectMeta{Namespace: "velero", Name: volume, Labels: map[string]string{
			velerov1.LabelBackupUID: "uid-b", podvolume.LabelOperation: hash}}}
		pvb.Spec.Pod.Namespace, pvb.Spec.Pod.Name, pvb.Spec.Volume = "a", "p", volume
		require.NoError(t, api.Client.Create(t.Context(), pvb))
	}
	return &operationBed{API: api, clock: clock, op: action.Operation{Action: podvolume.NameBackup, ID: podvolume.BackupOperationID(hash, len(volumes))}}
}

func (b *operationBed) backup(t *testing.T, name string) *velerov1.PodVolumeBackup {
	t.Helper()
	pvb := &velerov1.PodVolumeBackup{}
	require.NoError(t, b.Reader.Get(t.Context(), client.ObjectKey{Namespace: "velero", Name: name}, pvb))
	return pvb
}

func (b *operationBed) setStatus(t *testing.T, name string, status velerov1.PodVolumeBackupStatus) {
	t.Helper()
	pvb := b.backup(t, name)
	pvb.Status = status
	require.NoError(t, b.Client.Update(t.Context(), pvb))
}

// One operation has the requests of one Pod: it ends when the last of them has, and its error names
// each volume that failed and why.
func TestAnOperationEndsWithItsLastRequest(t *testing.T) {
	b := newBackups(t, "v1", "v2", "v3")
	b.setStatus(t, "v1", velerov1.PodVolumeBackupStatus{Phase: "Completed", SnapshotID: "k", Progress: velerov1.DataMoveOperationProgress{TotalBytes: 10, BytesDone: 10}})
	b.setStatus(t, "v2", velerov1.PodVolumeBackupStatus{Phase: "InProgress", Progress: velerov1.DataMoveOperationProgress{TotalBytes: 20, BytesDone: 5}})
	b.setStatus(t, "v3", velerov1.PodVolumeBackupStatus{Phase: "Failed", Message: "disk full"})
	p := b.progress(t)
	require.False(t, p.Done)
	require.Empty(t, p.Err)
	require.Equal(t, []int64{15, 30}, []int64{p.Completed, p.Total})
	require.Equal(t, "bytes: 2 of 3 volumes are done", p.Units+": "+p.Description)

	b.setStatus(t, "v2", velerov1.PodVolumeBackupStatus{Phase: "Canceled"})
	p = b.progress(t)
	require.True(t, p.Done)
	require.Equal(t, "volume v2 of pod a/p: canceled: no reason is known; volume v3 of pod a/p: disk full", p.Err)
}

func TestAnOperationOfCompletedRequestsSucceeds(t *testing.T) {
	b := newBackups(t, "v1")
	b.setStatus(t, "v1", velerov1.PodVolumeBackupStatus{Phase: "Completed", SnapshotID: "k"})
	p := b.progress(t)
	require.True(t, p.Done)
	require.Empty(t, p.Err)
	b.setStatus(t, "v1", velerov1.PodVolumeBackupStatus{Phase: "Completed"})
	require.Equal(t, "volume v1 of pod a/p: it completed without a snapshot", b.progress(t).Err)
}

// A request that is removed is data that nobody has.
func TestARemovedRequestFailsItsOperation(t *testing.T) {
	b := newBackups(t, "v1", "v2")
	b.setStatus(t, "v1", velerov1.PodVolumeBackupStatus{Phase: "Completed", SnapshotID: "k"})
	require.NoError(t, b.Client.Delete(t.Context(), b.backup(t, "v2")))
	p := b.progress(t)
	require.True(t, p.Done)
	require.Equal(t, "1 of 2 requests were removed before they ended", p.Err)
}

// A request that no controller accepts fails its operation, and none accepts it later.
func TestARequestThatNobodyAcceptsFailsInTime(t *testing.T) {
	b := newBackups(t, "v1")
	created := b.backup(t, "v1").CreationTimestamp
	b.clock.SetTime(created.Add(podvolume.PrepareTimeout - time.Second))
	require.False(t, b.progress(t).Done)
	require.False(t, b.backup(t, "v1").Spec.Cancel)
	b.clock.SetTime(created.Add(podvolume.PrepareTimeout))
	p := b.progress(t)
	require.True(t, p.Done)
	require.Equal(t, "volume v1 of pod a/p: no volume-mover has accepted the request in 30m", p.Err)
	require.True(t, b.backup(t, "v1").Spec.Cancel)
	b.setStatus(t, "v1", velerov1.PodVolumeBackupStatus{Phase: "Accepted"})
	require.False(t, b.progress(t).Done, "a controller has it")
}

// A request in the queue of volume-mover says that it waits for a mover: a large volume before it may
// take longer than PrepareTimeout.
func TestARequestThatWaitsForAMoverIsNotGivenUp(t *testing.T) {
	b := newBackups(t, "v1")
	b.setStatus(t, "v1", velerov1.PodVolumeBackupStatus{Message: "waits for one of the movers"})
	b.clock.SetTime(b.backup(t, "v1").CreationTimestamp.Add(2 * podvolume.PrepareTimeout))
	require.False(t, b.progress(t).Done)
	require.False(t, b.backup(t, "v1").Spec.Cancel)
}

// countedReader counts lists.
type countedReader struct {
	client.Reader
	lists int
}

func (c *countedReader) List(ctx context.Context, list client.ObjectList, options ...client.ListOption) error {
	c.lists++
	return c.Reader.List(ctx, list, options...)
}

// The operations of a job are answered from one list, which has the requests of all its Pods.
func TestTheOperationsOfAJobShareAList(t *testing.T) {
	b := newBackups(t, "v1")
	b.setStatus(t, "v1", velerov1.PodVolumeBackupStatus{Phase: "InProgress"})
	reader := &countedReader{Reader: b.Reader}
	b.Reader = reader
	all := &podvolume.Operations{API: b.API}
	ask := func() action.Progress {
		t.Helper()
		p, err := all.Progress(t.Context(), b.op, []byte(jobJSON))
		require.NoError(t, err)
		return p
	}
	for range 500 {
		require.False(t, ask().Done)
	}
	require.Equal(t, 1, reader.lists)

	b.setStatus(t, "v1", velerov1.PodVolumeBackupStatus{Phase: "Completed", SnapshotID: "k"})
	b.clock.Step(time.Second)
	require.True(t, ask().Done, "a list is soon too old")
	require.Equal(t, 2, reader.lists)

	hash := podvolume.Hash("later")
	pvb := &velerov1.PodVolumeBackup{ObjectMeta: metav1.ObjectMeta{Namespace: "velero", Name: "later", Labels: map[string]string{
		velerov1.LabelBackupUID: "uid-b", podvolume.LabelOperation: hash}}}
	pvb.Status.Phase = velerov1.PodVolumePhaseInProgress
	require.NoError(t, b.Client.Create(t.Context(), pvb))
	b.op.ID = podvolume.BackupOperationID(hash, 1)
	require.False(t, ask().Done, "it was made after the list, and not removed")
}

// A cancelled operation asks each request that is not final to end, and those of its job alone: the
// identifier comes from a bucket.
func TestACancelReachesTheRequestsOfTheJobAlone(t *testing.T) {
	b := newBackups(t, "v1", "v2")
	b.setStatus(t, "v1", velerov1.PodVolumeBackupStatus{Phase: "Completed", SnapshotID: "k"})
	for _, job := range []string{`{"metadata":{"name":"b","uid":"other"}}`, `{}`, ``} {
		accepted, err := b.cancel(t, job)
		require.Error(t, err, job)
		require.False(t, accepted)
		require.False(t, b.backup(t, "v2").Spec.Cancel)
	}
	accepted, err := b.cancel(t, jobJSON)
	require.NoError(t, err)
	require.True(t, accepted)
	require.False(t, b.backup(t, "v1").Spec.Cancel, "it has ended")
	require.True(t, b.backup(t, "v2").Spec.Cancel)
	b.setStatus(t, "v2", velerov1.PodVolumeBackupStatus{Phase: "Canceled", Message: "asked to stop"})
	require.Equal(t, "volume v2 of pod a/p: canceled: the operation was cancelled; asked to stop", b.progress(t).Err)
}

// The operations of restores are followed alike.
func TestAnOperationOfARestore(t *testing.T) {
	api, clock := newAPI(t)
	hash := podvolume.Hash("key")
	pvr := &velerov1.PodVolumeRestore{ObjectMeta: metav1.ObjectMeta{Namespace: "velero", Name: "r", Labels: map[string]string{
		velerov1.LabelRestoreUID: "uid-b", podvolume.LabelOperation: hash}}}
	pvr.Spec.Pod.Namespace, pvr.Spec.Pod.Name, pvr.Spec.Volume = "a", "p", "data"
	pvr.Status.Phase = velerov1.PodVolumePhaseInProgress
	require.NoError(t, api.Client.Create(t.Context(), pvr))
	b := &operationBed{API: api, clock: clock, op: action.Operation{Action: podvolume.NameRestore, ID: podvolume.RestoreOperationID(hash, 1)}}
	require.False(t, b.progress(t).Done)
	accepted, err := b.cancel(t, jobJSON)
	require.NoError(t, err)
	require.True(t, accepted)
	require.NoError(t, api.Reader.Get(t.Context(), client.ObjectKeyFromObject(pvr), pvr))
	require.True(t, pvr.Spec.Cancel)
	pvr.Status.Phase = velerov1.PodVolumePhaseCompleted
	require.NoError(t, api.Client.Update(t.Context(), pvr))
	p := b.progress(t)
	require.True(t, p.Done)
	require.Empty(t, p.Err)
}

func TestAnIdentifierThatIsNoOperation(t *testing.T) {
	b := newBackups(t)
	hash := podvolume.Hash("key")
	for _, id := range []string{"", "x", "pvr." + hash + ".1", "pvb." + hash, "pvb." + hash + ".0", "pvb." + hash + ".x", "pvb..1", "pvb.a=b.1"} {
		b.op.ID = id
		_, err := (&podvolume.Operations{API: b.API}).Progress(t.Context(), b.op, []byte(jobJSON))
		require.ErrorIs(t, err, action.ErrUnknownOperation, id)
	}
}

// The name of a request is also the value of a label, and the same for the same volume alone.
func TestNamesOfRequests(t *testing.T) {
	require.Equal(t, "nightly-768b02a6afa4", podvolume.RequestName("nightly", "key/data"), "another version finds it")
	require.NotEqual(t, podvolume.RequestName("nightly", "key/data"), podvolume.RequestName("nightly", "key/logs"))
	long := podvolume.RequestName("a-backup-with-a-name-that-is-longer-than-a-label.-allows-it-to-be", "key/data")
	require.LessOrEqual(t, len(long), 63)
	require.Regexp(t, `^[a-z0-9]([-a-z0-9.]*[a-z0-9])?-[0-9a-f]{12}$`, long)
}
