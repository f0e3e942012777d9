package collect

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/archive/nativesnapshot"
	"github.com/holdfast-io/holdfast/pkg/extension/action"
	"github.com/holdfast-io/holdfast/pkg/extension/csisnapshot"
	"github.com/holdfast-io/holdfast/pkg/joblog"
	"github.com/holdfast-io/holdfast/pkg/kube/kubetest"
	"github.com/holdfast-io/holdfast/pkg/kube/rawlist"
	"github.com/holdfast-io/holdfast/services/backup-runner/internal/checkpoint"
	"github.com/holdfast-io/holdfast/services/backup-runner/internal/collect/volumes"
)

func TestSnapshotsAreTakenOfVolumesThatALocationKnows(t *testing.T) {
	c := &cloud{knows: hasNativeSnapshot}
	s := newSetup(t, newDiskServer(), velerov1.BackupSpec{}).withSnapshots(c, "broken", "unserved", "empty", "main")
	res, got := s.runJob(t)
	infos, snapshots := decidedVolumes(t, got)
	iops := int64(100)
	spec := func(pv string) nativesnapshot.Spec {
		return nativesnapshot.Spec{BackupName: "b1", BackupUID: "uid-1", Location: "main", PersistentVolumeName: pv,
			ProviderVolumeID: "disk-" + pv, VolumeType: "fast in z1", VolumeAZ: "z1", VolumeIOPS: &iops}
	}
	odd := spec("pv-odd")
	odd.VolumeType, odd.VolumeIOPS = "", nil
	require.Equal(t, map[string]nativesnapshot.Snapshot{
		"pv-good":  {Spec: spec("pv-good"), Status: nativesnapshot.Status{ProviderSnapshotID: "snap-disk-pv-good", Phase: "Completed"}},
		"pv-full":  {Spec: spec("pv-full"), Status: nativesnapshot.Status{Phase: "Failed"}},
		"pv-odd":   {Spec: odd, Status: nativesnapshot.Status{Phase: "Failed"}},
		"pv-alone": {Spec: spec("pv-alone"), Status: nativesnapshot.Status{ProviderSnapshotID: "snap-disk-pv-alone", Phase: "Completed"}},
	}, snapshots)
	require.Equal(t, map[string]int{"disk-pv-good": 1, "disk-pv-full": 1, "disk-pv-alone": 1}, c.taken)
	require.Equal(t, map[string]string{"team": "a", "velero.io/backup": "b1", "velero.io/pv": "pv-good"}, c.tags["disk-pv-good"])

	good := infos["pv-good"]
	require.NotNil(t, good.StartTimestamp)
	require.NotNil(t, good.CompletionTimestamp)
	good.StartTimestamp, good.CompletionTimestamp = nil, nil
	require.Equal(t, checkpoint.VolumeInfo{PVCName: "good", PVCNamespace: "a", PVName: "pv-good", Method: "NativeSnapshot", Result: "succeeded",
		Native: &checkpoint.NativeInfo{Handle: "snap-disk-pv-good", Type: "fast in z1", AZ: "z1", IOPS: "100", Phase: "Completed"},
		Volume: &checkpoint.PersistentVolume{ReclaimPolicy: "Delete", Labels: map[string]string{"topology.kubernetes.io/zone": "z1"}}}, good)
	require.Equal(t, "failed", infos["pv-full"].Result)
	require.Equal(t, checkpoint.VolumeInfo{PVCName: "foreign", PVCNamespace: "a", PVName: "pv-foreign", Skipped: true, SkippedReason: checkpoint.ReasonNoSnapshotter}, infos["pv-foreign"])
	require.True(t, infos["pv-nosuch"].Skipped)
	require.Equal(t, checkpoint.ReasonUnbound, infos[""].SkippedReason)
	require.Len(t, infos, 7)

	errs := got.notesAt(joblog.Error)
	slices.Sort(errs)
	require.Equal(t, []string{
		"persistentvolumeclaims a/foreign: volume data was not backed up: " + checkpoint.ReasonNoSnapshotter, // the location is broken that may know it
		"persistentvolumes /pv-full: no snapshot of this volume: its data is not backed up",
		"persistentvolumes /pv-odd: no snapshot of this volume: its data is not backed up",
	}, errs)
	require.Equal(t, 3, res.Errors)
	require.Equal(t, 2, res.Warnings, got.notesAt(joblog.Warning))
	counts := s.job.Progress.Read()
	require.Equal(t, []int{2, 3}, []int{counts.Warnings, counts.Errors})
}

// A volume that no plugin supports is skipped with a warning; with snapshotVolumes: true that is an
// error (P10).
func TestAVolumeThatNobodyKnows(t *testing.T) {
	for _, insists := range []bool{false, true} {
		spec := velerov1.BackupSpec{}
		if insists {
			spec.SnapshotVolumes = ptr.To(true)
		}
		c := &cloud{knows: func(string) bool { return false }}
		s := newSetup(t, newDiskServer(), spec).withSnapshots(c, "unserved", "main")
		res, got := s.runJob(t)
		infos, snapshots := decidedVolumes(t, got)
		require.Empty(t, snapshots)
		written := 0
		for i := range got.records {
			if slices.ContainsFunc(got.records[i].Volumes, func(v checkpoint.VolumeInfo) bool { return v.PVName == "pv-good" || v.PVName == "pv-full" }) && !got.records[i].Volumes[0].Pending {
				written++
			}
		}
		require.Equal(t, 1, written, "what needs no call is recorded together")
		require.True(t, slices.ContainsFunc(got.notes, func(e joblog.Entry) bool {
			return strings.Contains(e.Err, `VolumeSnapshotLocation "unserved": spec.provider: "aws" needs a volume snapshotter plugin`)
		}))
		require.True(t, infos["pv-good"].Skipped)
		if insists {
			require.Equal(t, 6, res.Errors, "five claims' volumes and one without a claim: %v", got.notesAt(joblog.Error))
			require.Contains(t, got.notesAt(joblog.Error), "persistentvolumes /pv-alone: volume data was not backed up: "+checkpoint.ReasonNoSnapshotter)
			continue
		}
		require.Zero(t, res.Errors)
		require.Equal(t, 6, res.Warnings, got.notesAt(joblog.Warning))
	}
}

// With EnableCSI the volume of a CSI driver without a snapshot is an error of its claim with the
// reason, whatever the locations support, or a listed skip where no class is for the driver.
func TestTheVolumeOfACSIDriverSaysWhyItHasNoSnapshot(t *testing.T) {
	csi := func(name string) kubetest.Object {
		return kubetest.Object{Name: name, Body: map[string]any{"spec": map[string]any{"csi": map[string]string{"driver": "ebs.csi.aws.com", "volumeHandle": name}}}}
	}
	said := "persistentvolumeclaims a/csi: volume data was not backed up: "
	for name, tc := range map[string]struct {
		locations []string
		wanted    *bool
		why       error
		errors    []string
		warnings  []string
	}{
		"an error":         {[]string{"main"}, nil, csisnapshot.ErrNotServed, []string{said + csisnapshot.ErrNotServed.Error()}, nil},
		"no location":      {nil, nil, csisnapshot.ErrMissed, []string{said + csisnapshot.ErrMissed.Error()}, nil},
		"no class":         {nil, nil, &csisnapshot.ClassError{Driver: "d"}, nil, []string{said + `claim /: no VolumeSnapshotClass is for driver "d"; there are no VolumeSnapshotClasses`}},
		"no class, asked":  {nil, ptr.To(true), &csisnapshot.ClassError{Driver: "d"}, []string{said + `claim /: no VolumeSnapshotClass is for driver "d"; there are no VolumeSnapshotClasses`}, nil},
		"a mistyped class": {nil, nil, &csisnapshot.ClassError{Reason: "mistyped"}, []string{said + "claim /: mistyped; there are no VolumeSnapshotClasses"}, nil},
		"by choice":        {[]string{"main"}, ptr.To(false), csisnapshot.ErrNotServed, nil, nil},
	} {
		t.Run(name, func(t *testing.T) {
			api := newEstateServer()
			api.Add("persistentvolumes", csi("pv-csi"), csi("pv-csi-alone"))
			api.Add("persistentvolumeclaims", volumeClaim("a", "csi", "pv-csi"))
			c := &cloud{knows: func(string) bool { return true }}
			s := newSetup(t, api, velerov1.BackupSpec{SnapshotVolumes: tc.wanted}).withSnapshots(c, tc.locations...)
			s.job.Snapshots.CSI = func(context.Context, *corev1.PersistentVolume) error { return tc.why }
			res, got := s.runJob(t)
			require.Equal(t, tc.errors, got.notesAt(joblog.Error))
			require.Equal(t, len(tc.errors), res.Errors)
			require.Empty(t, c.taken)
			require.Subset(t, got.notesAt(joblog.Warning), tc.warnings)
			infos, _ := decidedVolumes(t, got)
			require.True(t, infos["pv-csi"].Skipped)
		})
	}
}

// With volumes excluded nothing is known that a provider could be asked about.
func TestNoSnapshotsOfVolumesThatAreNotInTheBackup(t *testing.T) {
	c := &cloud{knows: hasNativeSnapshot}
	s := newSetup(t, newDiskServer(), velerov1.BackupSpec{ExcludedClusterScopedResources: []string{"persistentvolumes"}}, "a").withSnapshots(c, "main")
	res, got := s.runJob(t)
	infos, snapshots := decidedVolumes(t, got)
	require.Empty(t, snapshots)
	require.Empty(t, c.taken)
	require.Len(t, infos, 4)
	require.Equal(t, 4, res.Warnings)
}

func TestASnapshotIsRecordedBefore(t *testing.T) {
	s := newSetup(t, newDiskServer(), velerov1.BackupSpec{}, "a")
	var mu sync.Mutex
	var unrecorded []string
	c := &cloud{knows: hasNativeSnapshot, before: func(id string) {
		found := false
		for _, key := range s.store.Keys() {
			data, _ := s.store.Bytes(key)
			found = found || strings.Contains(key, "/checkpoint-") && strings.Contains(string(data), `"intendedSnapshots"`) && strings.Contains(string(data), `"`+id+`"`)
		}
		if !found {
			mu.Lock()
			defer mu.Unlock()
			unrecorded = append(unrecorded, id)
		}
	}}
	s.withSnapshots(c, "main")
	s.runJob(t)
	require.NotEmpty(t, c.taken)
	require.Empty(t, unrecorded)
}

// Promises P2 and P3: no snapshot is taken twice. One that was under way when its holder died is an
// error that names the volume; any other is as in an undisturbed run.
func TestNoSnapshotIsTakenTwice(t *testing.T) {
	t.Parallel()
	api := newEstateServer()
	for i := range 12 {
		name := fmt.Sprintf("pv-%02d", i)
		api.Add("persistentvolumes", newDisk(name))
		api.Add("persistentvolumeclaims", volumeClaim("a", "c-"+name, name))
	}
	for _, workers := range []int{1, 3} {
		t.Run(fmt.Sprint(workers), func(t *testing.T) {
			t.Parallel()
			base := newSetup(t, api, velerov1.BackupSpec{IncludedNamespaceScopedResources: []string{"persistentvolumeclaims"}}, "a")
			base.cfg.PartItems, base.cfg.BlockWorkers = 8, workers
			total := 0
			for n := 1; ; n++ {
				c := &cloud{knows: func(string) bool { return true }}
				s := base.firstOwner(t).withSnapshots(c, "main")
				died := dieAt(s.store, n)
				_, err := Run(t.Context(), s.cfg, s.job)
				if !died() {
					require.NoError(t, err)
					require.Greater(t, n, 24, "the run was cut at many points")
					break
				}
				require.ErrorIs(t, err, errDead)
				s.store.Inject(nil)
				res, got := s.nextOwner(t, 2).runJob(t)
				infos, snapshots := decidedVolumes(t, got)
				require.Len(t, infos, 12)
				require.Len(t, snapshots, 12)
				unclear := 0
				for name, made := range snapshots {
					require.LessOrEqual(t, c.taken["disk-"+name], 1, name)
					if made.Status.Phase == nativesnapshot.PhaseCompleted {
						require.Equal(t, "snap-disk-"+name, made.Status.ProviderSnapshotID)
						require.Equal(t, "succeeded", infos[name].Result)
						require.Equal(t, 1, c.taken["disk-"+name])
						continue
					}
					unclear++
					require.Empty(t, made.Status.ProviderSnapshotID)
					require.Equal(t, "c-"+name, infos[name].PVCName)
				}
				require.LessOrEqual(t, unclear, workers, "only what was under way")
				require.Equal(t, unclear, res.Errors)
				for _, e := range got.notes {
					if e.Level == joblog.Error {
						require.Contains(t, e.Err, volumes.ErrUnclear.Error())
					}
				}
				total += unclear
			}
			require.Positive(t, total, "some were under way")
		})
	}
}

// stopped is a cloud that is stopped while its process starts, which ends that start.
type stopped struct {
	*cloud
	stop chan struct{}
}

func (c stopped) Open(context.Context, string) (action.VolumeSnapshotter, error) {
	close(c.stop)
	return nil, errors.New("plugin process did not start")
}

// newOneDiskSetup is the backup of one claim, whose volume the cloud has.
func newOneDiskSetup(t *testing.T, c *cloud) *setup {
	t.Helper()
	api := newEstateServer()
	api.Add("persistentvolumes", newDisk("pv-1"))
	api.Add("persistentvolumeclaims", volumeClaim("a", "c-1", "pv-1"))
	return newSetup(t, api, velerov1.BackupSpec{}, "a").withSnapshots(c, "main")
}

// What fails because the runner has to stop is no fact about the volume: the next holder takes its
// snapshot.
func TestAStopCostsNoSnapshot(t *testing.T) {
	for name, stopIn := range map[string]func(s *setup, c *cloud, stop chan struct{}){
		"while a snapshotter starts": func(s *setup, c *cloud, stop chan struct{}) { s.job.Snapshots.Locations = stopped{c, stop} },
		"while a volume is read": func(s *setup, _ *cloud, stop chan struct{}) {
			s.cfg.Lister = &unreadable{Lister: s.cfg.Lister, fields: "metadata.name=pv-1", left: 1, do: func() { close(stop) }}
		},
	} {
		t.Run(name, func(t *testing.T) {
			c, stop := &cloud{knows: hasNativeSnapshot}, make(chan struct{})
			s := newOneDiskSetup(t, c)
			s.job.Stop = stop
			stopIn(s, c, stop)
			_, err := Run(t.Context(), s.cfg, s.job)
			require.ErrorIs(t, err, ErrStopped)
			require.Empty(t, c.taken)

			next := s.nextOwner(t, 2).withSnapshots(c, "main")
			next.cfg.Lister = s.lists
			res, got := next.runJob(t)
			require.Zero(t, res.Errors, got.notesAt(joblog.Error))
			require.Equal(t, map[string]int{"disk-pv-1": 1}, c.taken)
		})
	}
}

// unreadable is a lister that fails to read an object by its name, after having read it some times.
type unreadable struct {
	Lister
	fields string
	left   int
	do     func() // with the failure
}

func (l *unreadable) List(ctx context.Context, req rawlist.Request, sink rawlist.Sink) error {
	if req.Fields == l.fields {
		if l.left--; l.left < 0 {
			l.do()
			return errors.New("connection refused")
		}
	}
	return l.Lister.List(ctx, req, sink)
}

// A snapshot whose record cannot be written is known to the log of the runner.
func TestASnapshotThatTheBucketNeverLearnsOfIsLogged(t *testing.T) {
	c := &cloud{knows: hasNativeSnapshot}
	s := newOneDiskSetup(t, c)
	c.before = func(string) { dieAt(s.store, 1) }
	var log bytes.Buffer
	s.cfg.Log = slog.New(slog.NewTextHandler(&log, nil))
	_, err := Run(t.Context(), s.cfg, s.job)
	require.ErrorIs(t, err, errDead)
	require.Contains(t, log.String(), "snapshot=snap-disk-pv-1 volume=pv-1 location=main")
}
