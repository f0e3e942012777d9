package csisnapshot_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"time"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/extension/action"
	"github.com/holdfast-io/holdfast/pkg/extension/csisnapshot"
	"github.com/holdfast-io/holdfast/pkg/extension/csisnapshot/csitest"
	"github.com/holdfast-io/holdfast/pkg/kube"
	"github.com/holdfast-io/holdfast/pkg/kube/kubetest"
)

const (
	driver = "disk.example.com"
	// patience ends what hangs.
	patience = time.Minute
)

// bed is a cluster with claims a/c0, a/c1, …, each bound to a volume of the driver.
type bed struct {
	csisnapshot.API
	driver *csitest.Driver
	backup *velerov1.Backup
	stop   func() // ends what the driver does by itself
	serve  func(version, resource, kind string)
}

func newBed(t *testing.T, claims int, classes ...snapshotv1.VolumeSnapshotClass) *bed {
	t.Helper()
	server := kubetest.Start(t)
	for resource, kind := range map[string]string{"volumesnapshots": "VolumeSnapshot", "volumesnapshotcontents": "VolumeSnapshotContent", "volumesnapshotclasses": "VolumeSnapshotClass"} {
		server.Serve("snapshot.storage.k8s.io/v1", resource, kind, resource == "volumesnapshots")
	}
	config := server.Config()
	config.ContentType = "application/json" // clients send kinds of Kubernetes' own as protocol buffers else
	config.QPS = -1
	c, err := client.New(config, client.Options{Scheme: kube.Scheme()})
	require.NoError(t, err)
	b := &bed{
		API:    csisnapshot.API{Reader: c, Client: c, Clock: clock.RealClock{}, Log: slog.New(slog.DiscardHandler)},
		driver: &csitest.Driver{Client: c, Name: driver},
		backup: &velerov1.Backup{ObjectMeta: metav1.ObjectMeta{Namespace: "velero", Name: "b", UID: "uid-b"}},
	}
	b.serve = func(version, resource, kind string) { server.Serve(version, resource, kind, true) }
	if classes == nil {
		classes = []snapshotv1.VolumeSnapshotClass{classOf("only")}
	}
	require.NoError(t, c.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "a"}}))
	for i := range classes {
		require.NoError(t, c.Create(t.Context(), &classes[i]))
	}
	for i := range claims {
		name := fmt.Sprintf("c%d", i)
		require.NoError(t, c.Create(t.Context(), &corev1.PersistentVolume{
			ObjectMeta: metav1.ObjectMeta{Name: "pv-" + name, Labels: map[string]string{"zone": "z"}},
			Spec: corev1.PersistentVolumeSpec{
				PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimDelete, ClaimRef: &corev1.ObjectReference{Namespace: "a", Name: name},
				PersistentVolumeSource: corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{Driver: driver, VolumeHandle: "vol-" + name}},
			},
		}))
		require.NoError(t, c.Create(t.Context(), claimOf(name)))
	}
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context())) // until the last use of the cluster
	var runs sync.WaitGroup
	runs.Go(func() { b.driver.Run(ctx, 5*time.Millisecond, func(err error) { t.Error(err) }) })
	b.stop = func() { stop(); runs.Wait() }
	t.Cleanup(b.stop)
	return b
}

func classOf(name string) snapshotv1.VolumeSnapshotClass {
	return snapshotv1.VolumeSnapshotClass{ObjectMeta: metav1.ObjectMeta{Name: name}, Driver: driver, DeletionPolicy: snapshotv1.VolumeSnapshotContentDelete}
}

func claimOf(name string) *corev1.PersistentVolumeClaim {
	return &corev1.PersistentVolumeClaim{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "PersistentVolumeClaim"},
		ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: name, Labels: map[string]string{"app": "db"}},
		Spec:       corev1.PersistentVolumeClaimSpec{VolumeName: "pv-" + name},
		Status:     corev1.PersistentVolumeClaimStatus{Phase: corev1.ClaimBound},
	}
}

func (b *bed) newSnapshotter() *csisnapshot.Snapshotter {
	return &csisnapshot.Snapshotter{API: b.API, Backup: b.backup}
}

// callAction calls an action of a snapshotter.
func callAction(t *testing.T, s *csisnapshot.Snapshotter, name string, o any, key string) (action.BackupResult, error) {
	t.Helper()
	raw, err := json.Marshal(o)
	require.NoError(t, err)
	for _, a := range s.Actions() {
		if a.Name() == name {
			return a.(action.BackupStarter).Start(t.Context(), action.FromJSON(raw), nil, key)
		}
	}
	t.Fatalf("no action %s", name)
	return action.BackupResult{}, nil
}

func readItem[T client.Object](t *testing.T, b *bed, item action.Item, into T) T {
	t.Helper()
	require.NoError(t, b.Reader.Get(t.Context(), client.ObjectKey{Namespace: item.Namespace, Name: item.Name}, into))
	return into
}

func decodeObject[T any](t *testing.T, o *action.Object) (out T) {
	t.Helper()
	raw, err := o.JSON()
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(raw, &out))
	return out
}

func (b *bed) countSnapshots(t *testing.T) (snapshots, contents int) {
	t.Helper()
	var vs snapshotv1.VolumeSnapshotList
	var vsc snapshotv1.VolumeSnapshotContentList
	require.NoError(t, b.Reader.List(t.Context(), &vs))
	require.NoError(t, b.Reader.List(t.Context(), &vsc))
	return len(vs.Items), len(vsc.Items)
}

// What is stored is what Velero 1.18 reads when it restores and deletes the backup.
func TestAClaimIsStoredWithItsSnapshot(t *testing.T) {
	b := newBed(t, 1)
	b.driver.Behave("a/c0", csitest.Behaviour{Cut: 2, Ready: -1})
	s := b.newSnapshotter()
	r, err := callAction(t, s, csisnapshot.NameClaim, claimOf("c0"), "key")
	require.NoError(t, err)
	require.Empty(t, r.OperationID)
	require.Len(t, r.Additional, 1)
	vs := readItem(t, b, r.Additional[0], &snapshotv1.VolumeSnapshot{})
	require.Regexp(t, "^velero-c0-[a-z0-9]{5}$", vs.Name)
	require.Equal(t, map[string]string{"app": "db", "velero.io/backup-name": "b", "velero.io/backup-uid": "uid-b"}, vs.Labels)
	require.Equal(t, "physical-"+string(vs.UID), vs.Annotations["velero.io/csi-volumesnapshot-handle"], "the cut was waited for")
	require.Equal(t, driver, vs.Annotations["velero.io/csi-driver-name"])
	require.Equal(t, "5Gi", vs.Annotations["velero.io/csi-volumesnapshot-restore-size"])
	require.Equal(t, "Delete", vs.Annotations["velero.io/csi-vsc-deletion-policy"])
	require.Equal(t, "c0", *vs.Spec.Source.PersistentVolumeClaimName)
	require.Equal(t, "only", *vs.Spec.VolumeSnapshotClassName)
	stored := decodeObject[corev1.PersistentVolumeClaim](t, r.Object)
	require.Equal(t, vs.Name, stored.Annotations["velero.io/volume-snapshot-name"])
	require.Equal(t, "true", stored.Annotations["backup.velero.io/must-include-additional-items"])
	require.Equal(t, map[string]string{"app": "db", "velero.io/volume-snapshot-name": vs.Name, "velero.io/backup-name": "b"}, stored.Labels)
	require.Equal(t, "5Gi", stored.Spec.Resources.Requests.Storage().String(), "a volume of the snapshot has to fit")

	r, err = callAction(t, s, csisnapshot.NameSnapshot, vs, "other key")
	require.NoError(t, err)
	require.Equal(t, "a/"+vs.Name+"/"+vs.CreationTimestamp.UTC().Format(time.RFC3339), r.OperationID)
	content := action.Item{GroupResource: csisnapshot.Contents, Name: *vs.Status.BoundVolumeSnapshotContentName}
	require.Equal(t, []action.Item{{GroupResource: csisnapshot.Classes, Name: "only"}, content}, r.Additional)
	require.Equal(t, []action.Item{{GroupResource: csisnapshot.Snapshots, Namespace: "a", Name: vs.Name}, content}, r.PostOperation)
	require.Equal(t, "b", readItem(t, b, content, &snapshotv1.VolumeSnapshotContent{}).Labels["velero.io/backup-name"])
}

// A runner is killed after the snapshot and before its record: the next one makes the call again.
func TestARepeatedCallTakesNoSecondSnapshot(t *testing.T) {
	b := newBed(t, 1)
	first, err := callAction(t, b.newSnapshotter(), csisnapshot.NameClaim, claimOf("c0"), "key")
	require.NoError(t, err)
	second, err := callAction(t, b.newSnapshotter(), csisnapshot.NameClaim, claimOf("c0"), "key")
	require.NoError(t, err)
	require.Equal(t, first.Additional, second.Additional)
	require.Equal(t, 1, b.driver.Taken())
	third, err := callAction(t, b.newSnapshotter(), csisnapshot.NameClaim, claimOf("c0"), "another")
	require.NoError(t, err)
	require.NotEqual(t, first.Additional, third.Additional)
	require.Equal(t, 2, b.driver.Taken())
}

func TestANameThatIsTakenIsAnothers(t *testing.T) {
	b := newBed(t, 1)
	first, err := callAction(t, b.newSnapshotter(), csisnapshot.NameClaim, claimOf("c0"), "key")
	require.NoError(t, err)
	vs := readItem(t, b, first.Additional[0], &snapshotv1.VolumeSnapshot{})
	changed := vs.DeepCopy()
	changed.Annotations = nil
	require.NoError(t, b.Client.Patch(t.Context(), changed, client.MergeFrom(vs)))
	second, err := callAction(t, b.newSnapshotter(), csisnapshot.NameClaim, claimOf("c0"), "key")
	require.NoError(t, err)
	require.NotEqual(t, first.Additional, second.Additional)
}

// The claims of a block are cut side by side, and a volume stays locked until its snapshot is cut.
func TestSnapshotsOfABlockAreBegunTogether(t *testing.T) {
	b := newBed(t, 3)
	s := b.newSnapshotter()
	var mu sync.Mutex
	held := map[string]bool{}
	locked, unlocked := 0, make(chan string, 3)
	s.Lock = func(_ context.Context, volume string) (func(), error) {
		mu.Lock()
		defer mu.Unlock()
		if held[volume] {
			return nil, errors.New("locked twice")
		}
		held[volume] = true
		locked++
		return func() { unlocked <- volume }, nil
	}
	for _, a := range s.Actions() {
		if ahead, ok := a.(action.Prestarter); ok {
			ahead.Prestart(t.Context(), []action.Keyed{
				{Namespace: "a", Name: "c2", Key: "k2"}, {Namespace: "a", Name: "c0", Key: "k0"}, {Namespace: "a", Name: "c1", Key: "k1"},
				{Namespace: "a", Name: "missing", Key: "k"},
			})
		}
	}
	require.Eventually(t, func() bool { snapshots, _ := b.countSnapshots(t); return snapshots == 3 }, patience, 5*time.Millisecond,
		"before the first claim has its turn")
	for i := range 3 {
		_, err := callAction(t, s, csisnapshot.NameClaim, claimOf(fmt.Sprintf("c%d", i)), fmt.Sprintf("k%d", i))
		require.NoError(t, err)
	}
	s.Wait()
	require.Equal(t, 3, locked)
	require.Len(t, unlocked, 3)
	require.Equal(t, 3, b.driver.Taken())
}

// A driver that cuts no snapshot costs the claim, and nothing is left of it.
func TestASnapshotThatIsNotCutIsRemoved(t *testing.T) {
	b := newBed(t, 1)
	b.driver.Behave("a/c0", csitest.Behaviour{Cut: -1, Error: "out of space"})
	s, c := b.newSnapshotter(), clocktesting.NewFakeClock(time.Now())
	s.Clock = c
	prestartClaims(t.Context(), s, 1)
	require.Eventually(t, func() bool {
		var all snapshotv1.VolumeSnapshotContentList
		require.NoError(t, b.Reader.List(t.Context(), &all))
		told := slices.ContainsFunc(all.Items, func(v snapshotv1.VolumeSnapshotContent) bool { return v.Status != nil && v.Status.Error != nil })
		return told && c.HasWaiters() // and looks again after the pause
	}, patience, time.Millisecond)
	c.Step(csisnapshot.DefaultTimeout)
	_, err := callAction(t, s, csisnapshot.NameClaim, claimOf("c0"), "k0")
	require.ErrorContains(t, err, "was not cut within 10m0s (csiSnapshotTimeout): out of space")
	b.requireNoSnapshots(t)
}

func (b *bed) requireNoSnapshots(t *testing.T) {
	t.Helper()
	require.Eventually(t, func() bool {
		snapshots, contents := b.countSnapshots(t)
		return snapshots+contents+len(b.driver.Stored()) == 0
	}, patience, 5*time.Millisecond)
}

func TestWhatIsNotSnapshotted(t *testing.T) {
	other := classOf("other")
	other.Driver = "elsewhere.example.com"
	for name, tc := range map[string]struct {
		classes []snapshotv1.VolumeSnapshotClass
		change  func(b *bed, c *corev1.PersistentVolumeClaim)
		why     string
		listed  bool
	}{
		"unbound":        {nil, func(_ *bed, c *corev1.PersistentVolumeClaim) { c.Status.Phase = corev1.ClaimPending }, "", false},
		"not asked for":  {nil, func(b *bed, _ *corev1.PersistentVolumeClaim) { b.backup.Spec.SnapshotVolumes = ptr.To(false) }, "", false},
		"no such volume": {nil, func(_ *bed, c *corev1.PersistentVolumeClaim) { c.Spec.VolumeName = "x" }, "", false},
		"no class": {[]snapshotv1.VolumeSnapshotClass{other}, func(*bed, *corev1.PersistentVolumeClaim) {},
			`claim a/c0: no VolumeSnapshotClass is for driver "disk.example.com"; VolumeSnapshotClasses: other (elsewhere.example.com)`, true},
		"several classes": {[]snapshotv1.VolumeSnapshotClass{classOf("x"), classOf("y")}, func(*bed, *corev1.PersistentVolumeClaim) {}, "several VolumeSnapshotClasses", false},
		"a mistyped class": {nil, func(b *bed, _ *corev1.PersistentVolumeClaim) {
			b.backup.Annotations = map[string]string{"velero.io/csi-volumesnapshot-class_" + driver: "disk"}
		}, `annotation velero.io/csi-volumesnapshot-class_disk.example.com of the backup names "disk", which is no VolumeSnapshotClass for driver "disk.example.com"; VolumeSnapshotClasses: only (disk.example.com)`, false},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBed(t, 1, tc.classes...)
			claim := claimOf("c0")
			claim.Annotations = map[string]string{"velero.io/volume-snapshot-name": "stale"}
			tc.change(b, claim)
			r, err := callAction(t, b.newSnapshotter(), csisnapshot.NameClaim, claim, "key")
			require.NoError(t, err)
			require.Empty(t, r.Additional)
			require.Empty(t, decodeObject[corev1.PersistentVolumeClaim](t, r.Object).Annotations, "a restore would look for that snapshot")
			snapshots, _ := b.countSnapshots(t)
			require.Zero(t, snapshots)
			if tc.why == "" {
				return
			}
			pv := readItem(t, b, action.Item{Name: "pv-c0"}, &corev1.PersistentVolume{})
			err = b.newSnapshotter().WhyNotTaken(t.Context(), pv)
			require.ErrorContains(t, err, tc.why)
			var class *csisnapshot.ClassError
			require.ErrorAs(t, err, &class)
			require.Equal(t, tc.listed, class.Unserved())
		})
	}
}

// Which of several labelled classes is used was up to their names, and nobody was told.
func TestSeveralLabelledClassesAreAWarning(t *testing.T) {
	first, second, other := classOf("first"), classOf("second"), classOf("other")
	for _, c := range []*snapshotv1.VolumeSnapshotClass{&first, &second, &other} {
		c.Labels = map[string]string{"velero.io/csi-volumesnapshot-class": "true"}
	}
	other.Driver = "other.example.com"
	for name, tc := range map[string]struct {
		classes []snapshotv1.VolumeSnapshotClass
		named   string
		warns   int
	}{
		"two": {[]snapshotv1.VolumeSnapshotClass{second, first}, "", 1}, "one named": {[]snapshotv1.VolumeSnapshotClass{first, second}, "second", 0},
		"of another driver": {[]snapshotv1.VolumeSnapshotClass{first, other}, "", 0},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBed(t, 2, tc.classes...)
			s := b.newSnapshotter()
			var warnings []string
			s.Warn = func(message string) { warnings = append(warnings, message) }
			for _, claim := range []string{"c0", "c1"} {
				c := claimOf(claim)
				c.Annotations = map[string]string{"velero.io/csi-volumesnapshot-class": tc.named}
				_, err := callAction(t, s, csisnapshot.NameClaim, c, "key"+claim)
				require.NoError(t, err)
			}
			require.Len(t, warnings, tc.warns)
			for _, w := range warnings {
				require.Contains(t, w, `VolumeSnapshotClasses first, second of driver "disk.example.com" all have the label velero.io/csi-volumesnapshot-class: "first" is used`)
			}
		})
	}
}

func TestChoiceOfTheClass(t *testing.T) {
	labelled, standard := classOf("labelled"), classOf("standard")
	labelled.Labels = map[string]string{"velero.io/csi-volumesnapshot-class": ""}
	standard.Annotations = map[string]string{"snapshot.storage.kubernetes.io/is-default-class": "true"}
	for name, tc := range map[string]struct {
		classes       []snapshotv1.VolumeSnapshotClass
		claim, backup string
		want          string
	}{
		"the claim's":  {[]snapshotv1.VolumeSnapshotClass{classOf("x"), labelled}, "X", "labelled", "x"},
		"the backup's": {[]snapshotv1.VolumeSnapshotClass{classOf("x"), labelled}, "", "x", "x"},
		"the label":    {[]snapshotv1.VolumeSnapshotClass{standard, labelled}, "", "", "labelled"},
		"the default":  {[]snapshotv1.VolumeSnapshotClass{classOf("a"), standard}, "", "", "standard"},
		"the only one": {[]snapshotv1.VolumeSnapshotClass{classOf("a")}, "", "", "a"},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBed(t, 1, tc.classes...)
			claim := claimOf("c0")
			claim.Annotations = map[string]string{"velero.io/csi-volumesnapshot-class": tc.claim}
			b.backup.Annotations = map[string]string{"velero.io/csi-volumesnapshot-class_" + driver: tc.backup}
			r, err := callAction(t, b.newSnapshotter(), csisnapshot.NameClaim, claim, "key")
			require.NoError(t, err)
			require.Len(t, r.Additional, 1)
			require.Equal(t, tc.want, *readItem(t, b, r.Additional[0], &snapshotv1.VolumeSnapshot{}).Spec.VolumeSnapshotClassName)
		})
	}
}

func TestProgress(t *testing.T) {
	b := newBed(t, 1)
	b.driver.Behave("a/c0", csitest.Behaviour{Ready: -1, Error: "busy"})
	r, err := callAction(t, b.newSnapshotter(), csisnapshot.NameClaim, claimOf("c0"), "key")
	require.NoError(t, err)
	vs := readItem(t, b, r.Additional[0], &snapshotv1.VolumeSnapshot{})
	op := action.Operation{Action: csisnapshot.NameSnapshot, ID: csisnapshot.OperationID(vs)}
	api := b.API
	api.Clock = clocktesting.NewFakeClock(vs.CreationTimestamp.Add(time.Second))
	operations := &csisnapshot.Operations{API: api}
	p, err := operations.Progress(t.Context(), op, []byte(`{}`))
	require.NoError(t, err)
	require.False(t, p.Done, "the driver may recover: %+v", p)
	require.Equal(t, "busy", p.Description)
	p, err = operations.Progress(t.Context(), action.Operation{Action: op.Action, ID: "a/" + vs.Name + "/2020-01-01T00:00:00Z"}, []byte(`{"spec":{"csiSnapshotTimeout":"1m0s"}}`))
	require.NoError(t, err)
	require.True(t, p.Done)
	require.Equal(t, "busy", p.Err)
	b.driver.Behave("a/c0", csitest.Behaviour{})
	require.Eventually(t, func() bool {
		p, err := operations.Progress(t.Context(), op, []byte(`{}`))
		return err == nil && p.Done && p.Err == ""
	}, patience, 5*time.Millisecond)

	accepted, err := operations.Cancel(t.Context(), op, []byte(`{"metadata":{"name":"b","uid":"uid-b"}}`), time.Minute)
	require.NoError(t, err)
	require.True(t, accepted)
	b.requireNoSnapshots(t)
	p, err = operations.Progress(t.Context(), op, []byte(`{}`))
	require.NoError(t, err)
	require.True(t, p.Done)
	require.Contains(t, p.Err, "was removed before it was ready")
	_, err = operations.Progress(t.Context(), action.Operation{Action: op.Action, ID: "x"}, nil)
	require.ErrorIs(t, err, action.ErrUnknownOperation)
}

// An identifier in a bucket names any VolumeSnapshot of the cluster: the one it named was removed with
// its data.
func TestACancelledOperationRemovesNoSnapshotOfOthers(t *testing.T) {
	b := newBed(t, 1)
	vs, _ := b.takeSnapshot(t)
	op := action.Operation{Action: csisnapshot.NameSnapshot, ID: csisnapshot.OperationID(vs)}
	operations := &csisnapshot.Operations{API: b.API}
	for _, job := range []string{`{"metadata":{"name":"other","uid":"uid-b"}}`, `{"metadata":{"name":"b","uid":"other"}}`, `{}`, ``} {
		accepted, err := operations.Cancel(t.Context(), op, []byte(job), time.Minute)
		require.Error(t, err, job)
		require.False(t, accepted)
		require.Nil(t, readItem(t, b, action.Item{Namespace: vs.Namespace, Name: vs.Name}, &snapshotv1.VolumeSnapshot{}).DeletionTimestamp)
		require.Len(t, b.driver.Stored(), 1)
	}
	plain := vs.DeepCopy()
	plain.Labels = nil
	require.NoError(t, b.Client.Patch(t.Context(), plain, client.MergeFrom(vs)))
	_, err := operations.Cancel(t.Context(), op, []byte(`{"metadata":{"name":"b","uid":"uid-b"}}`), time.Minute)
	require.ErrorContains(t, err, `is not labelled as one of backup "b"`)
	require.Len(t, b.driver.Stored(), 1)
}

// The objects of a finished backup go, and what the driver stored stays where the backup names it;
// its deletion removes that.
func TestTheEndOfABackupAndItsDeletion(t *testing.T) {
	b := newBed(t, 2)
	var items [2]action.Item
	for i := range items {
		r, err := callAction(t, b.newSnapshotter(), csisnapshot.NameClaim, claimOf(fmt.Sprintf("c%d", i)), fmt.Sprintf("k%d", i))
		require.NoError(t, err)
		items[i] = r.Additional[0]
	}
	vs := readItem(t, b, items[0], &snapshotv1.VolumeSnapshot{})
	vsc := readItem(t, b, action.Item{Name: *vs.Status.BoundVolumeSnapshotContentName}, &snapshotv1.VolumeSnapshotContent{})
	other := csisnapshot.Owner{Name: "b", UID: "another of that name"}
	require.NoError(t, b.DiscardAll(t.Context(), other))
	owner := csisnapshot.Owner{Name: "b", UID: "uid-b"}
	require.NoError(t, b.End(t.Context(), owner, func(n types.NamespacedName) bool { return n.Name == items[0].Name }))
	require.NoError(t, b.Gone(t.Context(), owner))
	handle := *vsc.Status.SnapshotHandle
	require.Equal(t, []string{handle}, b.driver.Stored(), "the other one is in no backup")
	require.Eventually(t, func() bool { snapshots, _ := b.countSnapshots(t); return snapshots == 0 }, patience, 10*time.Millisecond,
		"which the controller takes away once their contents are")

	raw, err := json.Marshal(vsc)
	require.NoError(t, err)
	for _, name := range []string{"c", "b"} {
		backup, err := action.NewBackup(&velerov1.Backup{ObjectMeta: metav1.ObjectMeta{Name: name}})
		require.NoError(t, err)
		for range 2 { // an action may see an item twice
			require.NoError(t, b.DeleteActions()[0].Execute(t.Context(), action.FromJSON(raw), backup))
			require.NoError(t, b.Gone(t.Context(), owner))
		}
		require.Equal(t, name == "b", len(b.driver.Stored()) == 0, name)
	}
	b.requireNoSnapshots(t)
}

// A content that the end of the backup left in the cluster goes with its snapshot.
func TestADeletionRemovesLiveSnapshots(t *testing.T) {
	b := newBed(t, 1)
	_, vsc := b.takeSnapshot(t)
	raw, err := json.Marshal(vsc)
	require.NoError(t, err)
	backup, err := action.NewBackup(b.backup)
	require.NoError(t, err)
	require.NoError(t, b.DeleteActions()[0].Execute(t.Context(), action.FromJSON(raw), backup))
	b.requireNoSnapshots(t)
}

// Velero's snapshots have no label of a UID: they may be of a backup of that name which a Velero
// server is working on. Only the deletion of the backup removes them.
func TestTheEndOfABackupLeavesVelerosSnapshots(t *testing.T) {
	b := newBed(t, 1)
	vs, vsc := b.takeSnapshot(t)
	for _, o := range []client.Object{vs, vsc} {
		old := o.DeepCopyObject().(client.Object)
		delete(o.GetLabels(), velerov1.LabelBackupUID)
		require.NoError(t, b.Client.Patch(t.Context(), o, client.MergeFrom(old)))
	}
	none := func(types.NamespacedName) bool { return false }
	for _, owner := range []csisnapshot.Owner{{Name: "b", UID: "uid-b"}, {Name: "b"}} {
		require.NoError(t, b.End(t.Context(), owner, none))
		require.Nil(t, readItem(t, b, action.Item{Namespace: vs.Namespace, Name: vs.Name}, &snapshotv1.VolumeSnapshot{}).DeletionTimestamp)
		left := readItem(t, b, action.Item{Name: vsc.Name}, &snapshotv1.VolumeSnapshotContent{})
		require.Nil(t, left.DeletionTimestamp)
		require.Len(t, b.driver.Stored(), 1)
	}
	require.NoError(t, b.DiscardAll(t.Context(), csisnapshot.Owner{Name: "b", UID: "uid-b"}))
	b.requireNoSnapshots(t)
}

// A claim that a restore made has its labels. A snapshot with them would pass for the restore's.
func TestASnapshotOfARestoredClaimGoesWithItsBackup(t *testing.T) {
	b := newBed(t, 1)
	claim := claimOf("c0")
	claim.Labels["velero.io/restore-name"], claim.Labels["velero.io/volume-snapshot-name"] = "r", "velero-c0-abcde"
	claim.Labels["velero.io/backup-name"] = "earlier"
	r, err := callAction(t, b.newSnapshotter(), csisnapshot.NameClaim, claim, "key")
	require.NoError(t, err)
	vs := readItem(t, b, r.Additional[0], &snapshotv1.VolumeSnapshot{})
	require.Equal(t, map[string]string{"app": "db", "velero.io/backup-name": "b", "velero.io/backup-uid": "uid-b"}, vs.Labels)
	require.NoError(t, b.End(t.Context(), csisnapshot.Owner{Name: "b", UID: "uid-b"}, func(types.NamespacedName) bool { return false }))
	b.requireNoSnapshots(t)
}

// A claim whose data is taken otherwise has no snapshot, ahead of its turn either.
func TestAClaimThatIsTakenOtherwiseHasNoSnapshot(t *testing.T) {
	b := newBed(t, 2)
	s := b.newSnapshotter()
	s.Skips = func(_ context.Context, namespace, claim string) (bool, error) {
		if claim == "c1" {
			return false, errors.New("no answer")
		}
		return namespace == "a" && claim == "c0", nil
	}
	r, err := callAction(t, s, csisnapshot.NameClaim, claimOf("c0"), "key")
	require.NoError(t, err)
	require.Empty(t, r.Additional)
	_, err = callAction(t, s, csisnapshot.NameClaim, claimOf("c1"), "key")
	require.ErrorContains(t, err, "no answer")
	b.requireNoSnapshots(t)
}
