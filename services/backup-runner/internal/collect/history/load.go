package history

import (
	"context"
	"errors"
	"fmt"
	"io"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/holdfast-io/holdfast/pkg/archive/manifest"
	"github.com/holdfast-io/holdfast/pkg/archive/part"
	"github.com/holdfast-io/holdfast/pkg/job/panics"
	"github.com/holdfast-io/holdfast/pkg/objectstore"
	"github.com/holdfast-io/holdfast/services/backup-runner/internal/checkpoint"
	"github.com/holdfast-io/holdfast/services/backup-runner/internal/collect/partwriter"
	"github.com/holdfast-io/holdfast/services/backup-runner/internal/itemset"
)

// loads is how many sidecars of earlier holders are read at once.
const loads = 8

// Acted is what earlier holders left to actions, and made of it.
type Acted struct {
	// Spools are the item spools.
	Spools []checkpoint.Spool
	// Joined are the objects that were processed detached and whose block is done.
	Joined map[itemset.Key]struct{}

	parts    []checkpoint.Part
	leftOut  []itemset.Key
	detached []itemset.Key
}

func (a *Acted) addRecord(rec *checkpoint.Record) {
	if rec.Spool != nil {
		a.Spools = append(a.Spools, *rec.Spool)
	}
	if rec.Part.SidecarKey != "" {
		a.parts = append(a.parts, rec.Part)
	}
	for i := range rec.LeftOut {
		a.leftOut = append(a.leftOut, newItemKey(&rec.LeftOut[i]))
	}
	for i := range rec.Detached {
		a.detached = append(a.detached, newItemKey(&rec.Detached[i]))
	}
	for i := range rec.Joined {
		a.Joined[newItemKey(&rec.Joined[i])] = struct{}{}
	}
}

// Loader reads what became of each object.
type Loader struct {
	Store  objectstore.Reader
	Items  *itemset.Set
	Spools *itemset.SpoolFiles
	// Dir is where item spools are copied to.
	Dir      string
	Progress *partwriter.Counter
}

// Load reads what earlier holders did with each object: what their parts have is done, and the rest
// of what they spooled waits. It reads their sidecars and is therefore called only once items wait
// or actions may name some. After a success it does nothing.
func (l *Loader) Load(ctx context.Context, a *Acted) error {
	if len(a.parts)+len(a.Spools) == 0 {
		return nil
	}
	group, groupCtx := panics.NewGroup(ctx)
	group.SetLimit(loads)
	for i := range a.parts {
		group.Go(func() error { return l.loadPart(groupCtx, &a.parts[i]) })
	}
	if err := group.Wait(); err != nil {
		return err
	}
	l.Items.SetResult(itemset.LeftOut, a.leftOut...)
	for _, key := range a.detached {
		if _, done := a.Joined[key]; !done {
			l.Items.SetAside(key)
		}
	}
	for i := range a.Spools {
		if err := l.loadSpool(ctx, &a.Spools[i]); err != nil {
			return err
		}
	}
	a.parts, a.Spools, a.leftOut, a.detached = nil, nil, nil, nil
	return nil
}

// loadPart gives a result to the objects of a part.
func (l *Loader) loadPart(ctx context.Context, p *checkpoint.Part) (err error) {
	body, err := l.Store.Get(ctx, p.SidecarKey)
	if err != nil {
		return fmt.Errorf("read what was collected before: %w", err)
	}
	defer func() { err = errors.Join(err, body.Close()) }()
	sidecar, err := part.OpenSidecar(body)
	if err != nil {
		return fmt.Errorf("read %s: %w", p.SidecarKey, err)
	}
	for {
		text, value, err := sidecar.Next()
		if errors.Is(err, io.EOF) && !errors.Is(err, part.ErrCorrupt) {
			return nil
		}
		if err == nil {
			err = l.loadEntry(text, value)
		}
		if err != nil {
			return fmt.Errorf("read %s: %w", p.SidecarKey, err)
		}
	}
}

// loadEntry gives a result to the object of a sidecar entry.
func (l *Loader) loadEntry(text, value []byte) error {
	entry, err := part.ParseEntry(text, value)
	if err != nil {
		return err
	}
	name, ok := manifest.ParseKey(text)
	group, _, kind, ok2 := manifest.SplitKindName(name.Kind)
	if !ok || !ok2 {
		return part.ErrCorrupt
	}
	key := itemset.KeyOf(schema.GroupKind{Group: group, Kind: kind}, name.Namespace, name.Name)
	switch {
	case entry.Stored:
		l.Items.SetResult(itemset.Stored, key)
	case l.Items.Result(key) == itemset.Unknown:
		l.Items.SetResult(itemset.Failed, key)
	}
	return nil
}

// loadSpool fetches an item spool; those without a result wait.
func (l *Loader) loadSpool(ctx context.Context, h *checkpoint.Spool) error {
	path, err := itemset.FetchSpool(ctx, l.Store, l.Dir, h.Key, h.Size, h.SHA256)
	if err != nil {
		return fmt.Errorf("read %s: %w", h.Key, err)
	}
	number, waiting := l.Spools.Add(path), 0
	err = itemset.EachSpooled(path, func(offset int64, it *itemset.SpooledItem) error {
		key := itemset.KeyOf(schema.GroupKind{Group: it.Group, Kind: it.Kind}, it.Namespace, it.Name)
		if l.Items.Hold(key, itemset.Place{File: number, Offset: uint32(offset)}) { //nolint:gosec // parts are smaller
			waiting++
		}
		return nil
	})
	l.Progress.Hold(waiting)
	return err
}
