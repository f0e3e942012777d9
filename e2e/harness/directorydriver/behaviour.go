package directorydriver

import (
	"context"
	"path/filepath"
	"slices"
	"strings"

	"google.golang.org/grpc/status"
)

// Behaviour is what the driver does about requests for snapshots of a volume.
type Behaviour struct {
	// Err is the answer, and nothing is cut. It is final unless it has a gRPC status.
	Err error
	// Hang cuts and answers nothing until the behaviour changes or the call is cancelled.
	Hang bool
	// NotReady cuts, and answers that the snapshot is not ready to use.
	NotReady bool
}

// Behave sets what the driver does about a volume. Requests that hang go on.
func (d *Driver) Behave(volume string, b Behaviour) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.behaviour[volume] = b
	close(d.changed)
	d.changed = make(chan struct{})
}

// Refuse answers removals of snapshots with err, which nil ends.
func (d *Driver) Refuse(err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.refused = err
}

// awaitSettled waits while the driver hangs on a volume.
func (d *Driver) awaitSettled(ctx context.Context, volume string) error {
	for {
		d.mu.Lock()
		b, changed := d.behaviour[volume], d.changed
		d.mu.Unlock()
		if !b.Hang {
			return b.Err
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return status.FromContextError(ctx.Err()).Err()
		}
	}
}

// Snapshot is one that the driver has.
type Snapshot struct {
	ID, Volume string
	// Dir has the files of the volume at the cut; it is the file of a block volume.
	Dir string
}

// Snapshots returns the snapshots that the driver has, by their ids in order.
func (d *Driver) Snapshots() []Snapshot {
	d.mu.Lock()
	defer d.mu.Unlock()
	all := make([]Snapshot, 0, len(d.snapshots))
	for _, s := range d.snapshots {
		all = append(all, Snapshot{ID: s.id, Volume: s.volume, Dir: s.dir})
	}
	slices.SortFunc(all, func(a, b Snapshot) int { return strings.Compare(a.ID, b.ID) })
	return all
}

// Taken returns how many snapshots the driver has cut since it started.
func (d *Driver) Taken() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.taken
}

// Restored returns how many volumes the driver has made of snapshots since it started.
func (d *Driver) Restored() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.restored
}

func (d *Driver) pathOf(kind, id string) string { return filepath.Join(d.config.Dir, kind, id) }
