package collect

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"

	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/holdfast-io/holdfast/pkg/journal"
	"github.com/holdfast-io/holdfast/pkg/manifest"
	"github.com/holdfast-io/holdfast/pkg/part"
	"github.com/holdfast-io/holdfast/services/backup-runner/internal/checkpoint"
	"github.com/holdfast-io/holdfast/services/backup-runner/internal/held"
	"github.com/holdfast-io/holdfast/services/backup-runner/internal/known"
)

// loads is how many sidecars of earlier holders are read at once.
const loads = 8

// load learns what earlier holders did with each object: what their parts have is
// done, and the rest of what they held waits. It reads their sidecars and is
// therefore not done before something waits or an action may ask.
func (r *run) load(ctx context.Context) error {
	if len(r.past.parts)+len(r.past.held) == 0 {
		return nil
	}
	group, groupCtx := errgroup.WithContext(ctx)
	group.SetLimit(loads)
	for i := range r.past.parts {
		group.Go(func() error { return r.loadPart(groupCtx, &r.past.parts[i]) })
	}
	if err := group.Wait(); err != nil {
		return err
	}
	r.bound.register.Settle(known.LeftOut, r.past.leftOut...)
	for _, key := range r.past.aside {
		if _, done := r.past.joined[key]; !done {
			r.bound.register.SetAside(key)
		}
	}
	for i := range r.past.held {
		if err := r.loadHeld(ctx, &r.past.held[i]); err != nil {
			return err
		}
	}
	r.past.parts, r.past.held, r.past.leftOut, r.past.aside = nil, nil, nil, nil
	return nil
}

func keyOf(o *checkpoint.Object) known.Key {
	return known.KeyOf(schema.GroupKind{Group: o.Group, Kind: o.Kind}, o.Namespace, o.Name)
}

// loadPart settles the objects of a part.
func (r *run) loadPart(ctx context.Context, p *checkpoint.Part) (err error) {
	body, err := r.Store.Get(ctx, p.SidecarKey)
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
			err = r.loadEntry(text, value)
		}
		if err != nil {
			return fmt.Errorf("read %s: %w", p.SidecarKey, err)
		}
	}
}

func (r *run) loadEntry(text, value []byte) error {
	entry, err := part.ParseEntry(text, value)
	if err != nil {
		return err
	}
	name, ok := manifest.ParseKey(text)
	group, _, kind, ok2 := manifest.SplitKindName(name.Kind)
	if !ok || !ok2 {
		return part.ErrCorrupt
	}
	key := known.KeyOf(schema.GroupKind{Group: group, Kind: kind}, name.Namespace, name.Name)
	switch {
	case entry.Stored:
		r.bound.register.Settle(known.Stored, key)
	case r.bound.register.Fate(key) == known.Unknown:
		r.bound.register.Settle(known.Failed, key)
	}
	return nil
}

// loadHeld fetches a file of held objects; those without a fate wait.
func (r *run) loadHeld(ctx context.Context, h *checkpoint.Held) error {
	path, err := r.fetchHeld(ctx, h)
	if err != nil {
		return fmt.Errorf("read %s: %w", h.Key, err)
	}
	number, waiting := r.held.add(path), 0
	err = held.Each(path, func(offset int64, it *held.Item) error {
		key := known.KeyOf(schema.GroupKind{Group: it.Group, Kind: it.Kind}, it.Namespace, it.Name)
		if r.bound.register.Hold(key, known.Place{File: number, Offset: uint32(offset)}) { //nolint:gosec // see hold
			waiting++
		}
		return nil
	})
	r.Progress.hold(waiting)
	return err
}

// fetchHeld copies a file of held objects into the work dir.
func (r *run) fetchHeld(ctx context.Context, h *checkpoint.Held) (path string, err error) {
	body, err := r.Store.Get(ctx, h.Key)
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, body.Close()) }()
	file, err := os.CreateTemp(r.Dir, "held-*")
	if err != nil {
		return "", err
	}
	sum := sha256.New()
	n, err := io.Copy(io.MultiWriter(file, sum), body)
	if err = errors.Join(err, file.Close()); err != nil {
		return "", errors.Join(err, os.Remove(file.Name()))
	}
	if n != h.Size || hex.EncodeToString(sum.Sum(nil)) != h.SHA256 {
		return "", errors.Join(fmt.Errorf("%w: it has other bytes than its record says", journal.ErrCorrupt), os.Remove(file.Name()))
	}
	return file.Name(), nil
}
