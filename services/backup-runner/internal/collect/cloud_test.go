package collect

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/pkg/archive/nativesnapshot"
	"github.com/holdfast-io/holdfast/pkg/extension/action"
	"github.com/holdfast-io/holdfast/pkg/kube/kubetest"
	"github.com/holdfast-io/holdfast/services/backup-runner/internal/checkpoint"
	"github.com/holdfast-io/holdfast/services/backup-runner/internal/collect/volumes"
)

// cloud is a provider that has the volumes disk-<name> of some PersistentVolumes.
type cloud struct {
	action.VolumeSnapshotter // nothing else is asked

	knows func(pv string) bool
	// before is called with the volume of each snapshot that is asked for.
	before func(volumeID string)

	mu    sync.Mutex
	taken map[string]int
	tags  map[string]map[string]string
}

func (c *cloud) Open(_ context.Context, location string) (action.VolumeSnapshotter, error) {
	switch location {
	case "broken":
		return nil, errors.New(`VolumeSnapshotLocation "broken": not found`)
	case "unserved":
		return nil, fmt.Errorf("VolumeSnapshotLocation %q: %w", location, &nativesnapshot.NoPluginError{Provider: "aws"})
	case "empty":
		return &cloud{knows: func(string) bool { return false }}, nil
	}
	return c, nil
}

func (c *cloud) VolumeID(_ context.Context, pv *action.Object) (string, error) {
	id, err := pv.Identity()
	if err != nil || !c.knows(id.Name) {
		return "", err
	}
	return "disk-" + id.Name, nil
}

func (c *cloud) Volume(_ context.Context, id, zone string) (action.Volume, error) {
	if strings.HasSuffix(id, "odd") {
		return action.Volume{}, errors.New("no such disk")
	}
	return action.Volume{Type: "fast in " + zone, IOPS: 100}, nil
}

func (c *cloud) CreateSnapshot(_ context.Context, id, _ string, tags map[string]string) (string, error) {
	if c.before != nil {
		c.before(id)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.taken == nil {
		c.taken, c.tags = map[string]int{}, map[string]map[string]string{}
	}
	c.taken[id]++
	c.tags[id] = tags
	if strings.HasSuffix(id, "full") {
		return "", errors.New("quota exceeded")
	}
	return "snap-" + id, nil
}

// withSnapshots gives the setup locations of the cloud.
func (s *setup) withSnapshots(c *cloud, locations ...string) *setup {
	s.job.Backup.Spec.VolumeSnapshotLocations = locations
	s.job.Backup.Labels = map[string]string{"team": "a"}
	s.job.Snapshots = &volumes.Taker{Backup: s.job.Backup, Locations: c, Close: func() {}}
	return s
}

func volumeClaim(namespace, name, pv string) kubetest.Object {
	return kubetest.Object{Namespace: namespace, Name: name, Body: map[string]any{"spec": map[string]string{"volumeName": pv}}}
}

func newDisk(name string) kubetest.Object {
	return kubetest.Object{Name: name, Labels: map[string]string{"topology.kubernetes.io/zone": "z1"},
		Body: map[string]any{"spec": map[string]any{"persistentVolumeReclaimPolicy": "Delete"}}}
}

// decidedVolumes returns the volumes and snapshots of the records, by volume.
func decidedVolumes(t *testing.T, got stored) (infos map[string]checkpoint.VolumeInfo, snapshots map[string]nativesnapshot.Snapshot) {
	t.Helper()
	infos, snapshots = map[string]checkpoint.VolumeInfo{}, map[string]nativesnapshot.Snapshot{}
	for i := range got.records {
		for _, v := range got.records[i].Volumes {
			if !v.Pending {
				require.NotContains(t, infos, v.PVName)
				infos[v.PVName] = v
			}
		}
		for _, s := range got.records[i].Snapshots {
			require.NotContains(t, snapshots, s.Spec.PersistentVolumeName)
			snapshots[s.Spec.PersistentVolumeName] = s
		}
	}
	return infos, snapshots
}

func newDiskServer() *kubetest.Server {
	api := newEstateServer()
	for _, name := range []string{"good", "full", "odd", "foreign"} {
		api.Add("persistentvolumes", newDisk("pv-"+name))
		api.Add("persistentvolumeclaims", volumeClaim("a", name, "pv-"+name))
	}
	api.Add("persistentvolumes", newDisk("pv-alone"))
	api.Add("persistentvolumeclaims", volumeClaim("b", "dangling", "pv-nosuch"), kubetest.Object{Namespace: "b", Name: "unbound"})
	return api
}

func hasNativeSnapshot(pv string) bool { return pv != "pv-foreign" }
