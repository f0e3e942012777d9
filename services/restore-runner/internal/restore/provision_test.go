package restore_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/utils/ptr"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/archive/nativesnapshot"
	"github.com/holdfast-io/holdfast/pkg/extension/action"
	"github.com/holdfast-io/holdfast/pkg/kube/kubetest"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/dispatch"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/outcome"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/restore"
)

// cloud makes volumes of snapshots.
type cloud struct {
	action.VolumeSnapshotter // nothing else is asked

	during func() // called with the call for a volume under way
	rename *string
	refuse error

	mu   sync.Mutex
	made []string
}

func (c *cloud) Name() string { return "cloud.io/disks" }

func (c *cloud) Open(_ context.Context, location string) (action.VolumeSnapshotter, error) {
	if location != "main" {
		return nil, fmt.Errorf("VolumeSnapshotLocation %q: not found", location)
	}
	return c, nil
}

func (c *cloud) CreateVolume(ctx context.Context, snapshot, zone string, v action.Volume) (string, error) {
	if c.during != nil {
		c.during()
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.made = append(c.made, fmt.Sprintf("%s in %s, %s, %d", snapshot, zone, v.Type, v.IOPS))
	if ctx.Err() != nil {
		return "", ctx.Err()
	}
	return fmt.Sprintf("volume-%d", len(c.made)), c.refuse
}

func (c *cloud) SetVolumeID(_ context.Context, pv *action.Object, id string) (*action.Object, error) {
	u, err := pv.Copy()
	if err != nil {
		return nil, err
	}
	if c.rename != nil {
		u.SetName(*c.rename)
	}
	u.Object["spec"].(object)["hostPath"] = object{"path": id}
	return action.FromContent(u.Object), nil
}

func useCloud(c *cloud) func(*restore.Config) {
	return func(config *restore.Config) { config.Snapshotters = c }
}

// newSnapshotBackup is a backup of a claim whose volume has a snapshot.
func newSnapshotBackup() *backup {
	b, iops := &backup{}, int64(300)
	b.addObject("persistentvolumes", "v1", "PersistentVolume", "", "pv", object{
		"metadata": object{"annotations": object{"pv.kubernetes.io/bound-by-controller": "yes"}},
		"spec": object{"persistentVolumeReclaimPolicy": "Delete", "hostPath": object{"path": "old"},
			"claimRef": object{"namespace": "a", "name": "claim", "uid": "old-claim", "resourceVersion": "3"}}})
	b.addObject("persistentvolumeclaims", "v1", "PersistentVolumeClaim", "a", "claim", object{"spec": object{"volumeName": "pv"}})
	b.snapshots = []nativesnapshot.Snapshot{{
		Spec:   nativesnapshot.Spec{Location: "main", PersistentVolumeName: "pv", VolumeType: "fast", VolumeAZ: "z1", VolumeIOPS: &iops},
		Status: nativesnapshot.Status{ProviderSnapshotID: "snap", Phase: nativesnapshot.PhaseCompleted}}}
	return b
}

const pvPath = "/api/v1/persistentvolumes/pv"

func TestAVolumeIsMadeOfItsSnapshot(t *testing.T) {
	s, c := kubetest.Start(t), &cloud{}
	f := runRestore(t, s, newSnapshotBackup(), velerov1.RestoreSpec{NamespaceMapping: map[string]string{"a": "b"}}, useCloud(c))
	require.Empty(t, f.results.Errors.allMessages())
	require.Empty(t, f.results.Warnings.allMessages())
	require.Equal(t, []string{"snap in z1, fast, 300"}, c.made)
	require.Equal(t, []string{"pv(created)"}, f.list["v1/PersistentVolume"])
	require.Equal(t, object{"persistentVolumeReclaimPolicy": "Delete", "hostPath": object{"path": "volume-1"},
		"claimRef": object{"namespace": "b", "name": "claim"}}, s.Object(pvPath)["spec"])
	require.Equal(t, object{"volumeName": "pv"}, s.Object("/api/v1/namespaces/b/persistentvolumeclaims/claim")["spec"])
}

func TestAVolumeThatIsThereIsNotMadeAgain(t *testing.T) {
	s, c := kubetest.Start(t), &cloud{}
	s.Put(pvPath, object{"apiVersion": "v1", "kind": "PersistentVolume", "metadata": object{"name": "pv"}, "spec": object{"hostPath": object{"path": "live"}}})
	f := runRestore(t, s, newSnapshotBackup(), velerov1.RestoreSpec{}, useCloud(c))
	require.Empty(t, c.made)
	require.Equal(t, object{"hostPath": object{"path": "live"}}, s.Object(pvPath)["spec"])
	require.Contains(t, f.results.Warnings.allMessages(), `could not restore, PersistentVolume "pv" exists already`)
}

func TestAVolumeThatCannotBeMadeIsAnError(t *testing.T) {
	for want, c := range map[string]*cloud{
		`volume from snapshot "snap": quota exceeded`:                                                                {refuse: errors.New("quota exceeded")},
		`volume from snapshot "snap": volume "volume-1": plugin cloud.io/disks: SetVolumeID: metadata.name: missing`: {rename: ptr.To("")},
		`VolumeSnapshotLocation "lost": not found`:                                                                   {},
	} {
		t.Run(want, func(t *testing.T) {
			s, b := kubetest.Start(t), newSnapshotBackup()
			if strings.Contains(want, "lost") {
				b.snapshots[0].Spec.Location = "lost"
			}
			f := runRestore(t, s, b, velerov1.RestoreSpec{}, useCloud(c))
			require.Contains(t, f.results.Errors.allMessages(), want)
			require.Equal(t, []string{"pv(failed)"}, f.list["v1/PersistentVolume"])
			require.Nil(t, s.Object(pvPath))
		})
	}
}

// Promise P3: a successor makes no volume that an earlier holder made, or was about to make.
func TestNoVolumeIsMadeTwice(t *testing.T) {
	for name, tt := range map[string]struct {
		during  bool // the holder dies during the call, else right after it
		blind   bool // and its records are gone
		unclear bool
	}{
		"during the call":                 {during: true, unclear: true},
		"after the call":                  {},
		"after the call, without records": {blind: true, unclear: true},
	} {
		t.Run(name, func(t *testing.T) {
			s, c := kubetest.Start(t), &cloud{}
			f := runRestore(t, s, newSnapshotBackup(), velerov1.RestoreSpec{}, useCloud(c), func(config *restore.Config) {
				records := runFirstOwner(t, config, func(ctx context.Context, die func(), own *restore.Config) {
					if tt.during {
						c.during = die
					} else {
						own.Snapshotters = &dying{cloud: c, die: die}
					}
					require.ErrorIs(t, restore.Run(ctx, *own), context.Canceled)
				})
				require.Len(t, c.made, 1)
				require.Nil(t, s.Object(pvPath))
				c.during = nil
				if tt.blind {
					config.History = &outcome.History{Resumed: true, NoHistory: true}
					return
				}
				replayRecords(t, config, records)
			})
			require.Len(t, c.made, 1)
			if tt.unclear {
				require.Contains(t, f.results.Errors.allMessages(), "the runner ended around CreateVolumeFromSnapshot")
				require.Nil(t, s.Object(pvPath))
				return
			}
			require.Empty(t, f.results.Errors.allMessages())
			require.Equal(t, object{"path": "volume-1"}, s.Object(pvPath)["spec"].(object)["hostPath"])
		})
	}
}

// replayRecords makes config that of who takes a restore over with the records of these directories, one
// for each holder.
func replayRecords(t *testing.T, config *restore.Config, records ...string) {
	t.Helper()
	config.History = &outcome.History{Resumed: true}
	for _, dir := range records {
		paths, err := filepath.Glob(filepath.Join(dir, "*.gz"))
		require.NoError(t, err)
		for _, path := range paths {
			data, err := os.ReadFile(path)
			require.NoError(t, err)
			require.NoError(t, config.Recorder.Replay(data, config.History))
		}
	}
}

// dying ends its holder between the volume and the object.
type dying struct {
	*cloud
	die func()
}

func (d *dying) Open(context.Context, string) (action.VolumeSnapshotter, error) { return d, nil }

func (d *dying) SetVolumeID(ctx context.Context, _ *action.Object, _ string) (*action.Object, error) {
	d.die()
	return nil, context.Cause(ctx)
}

// starting is a plugin whose process has to be started; once, that takes until the restore is to
// stop.
type starting struct {
	*cloud
	stop     func()
	up       bool
	prepared int
}

func (p *starting) Open(context.Context, string) (action.VolumeSnapshotter, error) { return p, nil }

func (p *starting) Prepare(ctx context.Context) error {
	if p.prepared++; p.stop != nil {
		p.stop()
		<-ctx.Done()
		return errors.New("plugin process did not start")
	}
	p.up = true
	return nil
}

func (p *starting) CreateVolume(ctx context.Context, snapshot, zone string, v action.Volume) (string, error) {
	if !p.up {
		if err := p.Prepare(ctx); err != nil {
			return "", err
		}
	}
	return p.cloud.CreateVolume(ctx, snapshot, zone, v)
}

// A stop while the plugin starts leaves the volume to the successor: nothing was sent.
func TestAStopWhileThePluginStartsCostsNoVolume(t *testing.T) {
	s, c := kubetest.Start(t), &cloud{}
	f := runRestore(t, s, newSnapshotBackup(), velerov1.RestoreSpec{}, func(config *restore.Config) {
		records := runFirstOwner(t, config, func(ctx context.Context, _ func(), own *restore.Config) {
			stop := make(chan struct{})
			plugin := &starting{cloud: c, stop: func() { close(stop) }}
			own.Stop, own.Snapshotters = stop, plugin
			require.ErrorIs(t, restore.Run(ctx, *own), dispatch.ErrStopped)
			require.Equal(t, 1, plugin.prepared)
			require.Zero(t, own.Recorder.Counts().Errors)
		})
		replayRecords(t, config, records)
		config.Snapshotters = &starting{cloud: c}
	})
	requireRecreated(t, s, c, f)
}

// A plugin that does not start is an error, and asked for no volume.
func TestAPluginThatDoesNotStartIsAnError(t *testing.T) {
	s, c := kubetest.Start(t), &cloud{}
	f := runRestore(t, s, newSnapshotBackup(), velerov1.RestoreSpec{}, func(config *restore.Config) { config.Snapshotters = &broken{cloud: c} })
	require.Empty(t, c.made)
	require.Contains(t, f.results.Errors.allMessages(), `volume from snapshot "snap": Init: no region`)
}

// broken cannot be configured.
type broken struct{ *cloud }

func (b *broken) Open(context.Context, string) (action.VolumeSnapshotter, error) { return b, nil }

func (b *broken) Prepare(context.Context) error { return errors.New("Init: no region") }
