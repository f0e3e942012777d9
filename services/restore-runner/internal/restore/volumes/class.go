package volumes

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/holdfast-io/holdfast/pkg/extension/csisnapshot"
	"github.com/holdfast-io/holdfast/pkg/extension/csisnapshot/restored"
	"github.com/holdfast-io/holdfast/pkg/json/jsonlimit"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/apply"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/outcome"
)

var drivers = schema.GroupVersionResource{Group: "storage.k8s.io", Version: "v1", Resource: "csidrivers"}

// snapshotClasses are the VolumeSnapshotClasses of the cluster, read once, and the drivers that were looked
// for.
type snapshotClasses struct {
	mu      sync.Mutex
	read    bool
	all     []snapshotv1.VolumeSnapshotClass
	drivers map[string]bool // whether the cluster has them
}

// contentClass returns the class for the content of a restored snapshot, empty for none: the one that it was
// taken with if it is of the driver, else the first of the driver (Velero 1.18). A driver of which
// the cluster has nothing is a warning: the claim waits until it is installed.
func (f *Filler) contentClass(ctx context.Context, e *outcome.Entry, s *restored.Stored) (string, error) {
	if err := f.checkServed(); err != nil {
		return "", err
	}
	f.classes.mu.Lock()
	defer f.classes.mu.Unlock()
	if err := f.readClasses(ctx); err != nil {
		return "", err
	}
	class := ""
	for i := range f.classes.all {
		c := &f.classes.all[i]
		if c.Driver == s.Driver() && (class == "" || c.Name == s.Class()) {
			class = c.Name
		}
	}
	known, err := class != "", error(nil)
	if !known {
		known, err = f.hasDriver(ctx, s.Driver())
	}
	if err == nil && !known {
		e.Warn(fmt.Sprintf("the cluster has neither a CSIDriver nor a VolumeSnapshotClass of driver %q: the claim is filled once it is installed", s.Driver()))
	}
	return class, err
}

// checkServed reports whether the cluster serves what a claim is filled from.
func (f *Filler) checkServed() error {
	for _, gr := range []schema.GroupResource{csisnapshot.Snapshots, csisnapshot.Contents, csisnapshot.Classes} {
		if _, ok := f.Catalog.Lookup(gr); !ok {
			return csisnapshot.ErrNotServed
		}
	}
	return nil
}

func (f *Filler) readClasses(ctx context.Context) error {
	if f.classes.read {
		return nil
	}
	raw, err := f.Existing.Client.Get(ctx, apply.Target{GVR: snapshotv1.SchemeGroupVersion.WithResource(csisnapshot.Classes.Resource)})
	if err != nil {
		return f.Timeouts.Of(fmt.Errorf("list VolumeSnapshotClasses: %w", err))
	}
	var list snapshotv1.VolumeSnapshotClassList
	if err := jsonlimit.Unmarshal(raw, &list, jsonlimit.Object); err != nil {
		return fmt.Errorf("read the VolumeSnapshotClasses: %w", err)
	}
	slices.SortFunc(list.Items, func(a, b snapshotv1.VolumeSnapshotClass) int { return strings.Compare(a.Name, b.Name) })
	f.classes.all, f.classes.read = list.Items, true
	return nil
}

// hasDriver reports whether the cluster has a CSIDriver of that name.
func (f *Filler) hasDriver(ctx context.Context, name string) (bool, error) {
	if known, looked := f.classes.drivers[name]; looked {
		return known, nil
	}
	_, err := f.Existing.Client.Get(ctx, apply.Target{GVR: drivers, Name: name})
	if err != nil && !apierrors.IsNotFound(err) {
		return false, f.Timeouts.Of(fmt.Errorf("look for CSIDriver %q: %w", name, err))
	}
	if f.classes.drivers == nil {
		f.classes.drivers = map[string]bool{}
	}
	f.classes.drivers[name] = err == nil
	return err == nil, nil
}
