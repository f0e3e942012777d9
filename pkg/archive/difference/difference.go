// Package difference compares the objects of two manifests in what a restore brings back.
package difference

import (
	"context"
	"errors"
	"fmt"

	"github.com/holdfast-io/holdfast/pkg/archive/manifest"
	"github.com/holdfast-io/holdfast/pkg/archive/tarball"
	"github.com/holdfast-io/holdfast/pkg/errgrpc"
	manifestv1 "github.com/holdfast-io/holdfast/proto/gen/holdfast/manifest/v1"
)

const (
	// diffBatch is how many differences a message has at most, and diffSilence how many objects may be
	// compared without a message.
	diffBatch   = 100
	diffSilence = 5000
	// diffFields is how many differences with fields a message has, since each can be long.
	diffFields = 5
)

// Side is one of the two that are compared.
type Side struct {
	*manifest.Reader
	// Name of the side in errors.
	Name string
	// Open opens the bodies, when the first is needed. Run closes them.
	Open func(ctx context.Context) (tarball.Source, error)
	// MarkDamage gets the errors of the side; nil gets none.
	MarkDamage func(err error)

	bodies tarball.Source
}

// NewSide returns a side of a source, which is closed with it.
func NewSide(name string, source tarball.Source) *Side {
	return &Side{Reader: source.Manifest(), Name: name, bodies: source}
}

// Comparison is two sides to compare.
type Comparison struct {
	From, To *Side
	// Kinds are as [manifest.FindKinds] takes them, and Namespace is one; empty means all.
	Kinds     []string
	Namespace string
	// WithFields lists the fields that differ.
	WithFields bool
	// IsUnread reports objects that cannot be compared, since a side may have them and could not be read; nil reports none.
	IsUnread func(item *manifest.Item) bool
	// Send gets differences, each time with what was counted so far. The last call has all counts.
	Send func(differences []*manifestv1.ItemDifference, counts *manifestv1.DiffCounts) error
}

// Run compares, reading both manifests as streams.
func (c *Comparison) Run(ctx context.Context) (err error) {
	defer func() { err = errors.Join(err, c.From.Close(), c.To.Close()) }()
	filter, err := c.mergeFilter()
	if err != nil {
		return err
	}
	d := &differ{Comparison: c, reordered: c.From.Header().Foreign || c.To.Header().Foreign, counts: &manifestv1.DiffCounts{}}
	for pair, err := range manifest.Merge(ctx, c.From.Reader, c.To.Reader, filter) {
		if side := new(manifest.SideError); errors.As(err, &side) {
			damaged := c.From
			if side.Second {
				damaged = c.To
			}
			err = damaged.explainError(err)
		}
		if err == nil {
			err = d.comparePair(ctx, pair)
		}
		if err != nil {
			return err
		}
	}
	return d.sendBatch()
}

// mergeFilter reads the filters. A kind need not be on both sides.
func (c *Comparison) mergeFilter() (f manifest.MergeFilter, err error) {
	if c.Namespace != "" {
		f.Namespaces = []string{c.Namespace}
	}
	for _, name := range c.Kinds {
		found, errFrom := manifest.FindKinds(c.From.Kinds(), name)
		others, errTo := manifest.FindKinds(c.To.Kinds(), name)
		for _, err := range []error{errFrom, errTo} {
			if ambiguous := new(manifest.AmbiguousKindError); errors.As(err, &ambiguous) {
				return f, errgrpc.Field("kinds", "%v", err)
			}
		}
		if errFrom != nil && errTo != nil {
			return f, fmt.Errorf("neither %s nor %s holds an object of kind %q: %w", c.From.Name, c.To.Name, name, errgrpc.ErrNotFound)
		}
		for _, k := range append(found, others...) {
			f.Resources = append(f.Resources, k.Resource)
		}
	}
	return f, nil
}

func (s *Side) readBody(ctx context.Context, item *manifest.Item) (body []byte, err error) {
	if s.bodies == nil {
		s.bodies, err = s.Open(ctx)
	}
	if err == nil {
		body, err = s.bodies.Read(ctx, *item)
	}
	return body, s.explainError(err)
}

// explainError names the side in an error, and damage by its code.
func (s *Side) explainError(err error) error {
	if err == nil {
		return nil
	}
	if s.MarkDamage != nil {
		s.MarkDamage(err)
	}
	if errors.Is(err, tarball.ErrCorrupt) || errors.Is(err, tarball.ErrMismatch) || errors.Is(err, manifest.ErrCorrupt) {
		return fmt.Errorf("%s: %w: %w", s.Name, errgrpc.ErrCorrupt, err)
	}
	return fmt.Errorf("%s: %w", s.Name, err)
}

// Close closes the bodies, if they are open.
func (s *Side) Close() error {
	if s.bodies == nil {
		return nil
	}
	return s.bodies.Close()
}

// differ is a Comparison that runs.
type differ struct {
	*Comparison
	reordered bool // the bodies of one object may have their fields in different orders

	counts *manifestv1.DiffCounts
	batch  []*manifestv1.ItemDifference
	silent int // objects since the last message
}

// comparePair counts an object, and keeps it for the next message if it differs.
func (d *differ) comparePair(ctx context.Context, pair manifest.Pair) error {
	d.silent++
	if d.IsUnread != nil && d.IsUnread(pair.Item()) {
		return nil
	}
	difference := pair.Difference(d.reordered)
	var fields fieldDifferences
	if difference == manifest.Unknown || difference == manifest.Changed && d.WithFields {
		var err error
		if fields, err = d.compareBodies(ctx, pair); err != nil {
			return err
		}
		if difference = manifest.Changed; len(fields.list) == 0 {
			difference = manifest.Unchanged
		}
	}
	var change manifestv1.ItemDifference_Change
	switch difference {
	case manifest.Added:
		d.counts.Added++
		change = manifestv1.ItemDifference_CHANGE_ADDED
	case manifest.Removed:
		d.counts.Removed++
		change = manifestv1.ItemDifference_CHANGE_REMOVED
	case manifest.Changed:
		d.counts.Changed++
		change = manifestv1.ItemDifference_CHANGE_CHANGED
	default:
		d.counts.Unchanged++
		if d.silent >= diffSilence {
			return d.sendBatch()
		}
		return nil
	}
	out := newDifference(pair, change)
	if d.WithFields {
		out.Fields, out.MoreFields = fields.list, fields.more
	}
	d.batch = append(d.batch, out)
	if len(d.batch) >= diffBatch || d.WithFields && len(d.batch) >= diffFields || d.silent >= diffSilence {
		return d.sendBatch()
	}
	return nil
}

func (d *differ) sendBatch() error {
	counts := &manifestv1.DiffCounts{Added: d.counts.Added, Removed: d.counts.Removed, Changed: d.counts.Changed, Unchanged: d.counts.Unchanged}
	err := d.Send(d.batch, counts)
	d.batch, d.silent = nil, 0
	return err
}

func newDifference(pair manifest.Pair, change manifestv1.ItemDifference_Change) *manifestv1.ItemDifference {
	item := pair.Item()
	out := &manifestv1.ItemDifference{
		Change: change, Group: item.Group, Kind: item.Kind, Resource: item.Resource, Namespace: item.Namespace, Name: item.Name,
	}
	if pair.A != nil {
		out.FromVersion = pair.A.Version
	}
	if pair.B != nil {
		out.ToVersion = pair.B.Version
	}
	return out
}

// compareBodies returns in which fields an object differs.
func (d *differ) compareBodies(ctx context.Context, pair manifest.Pair) (fieldDifferences, error) {
	from, err := d.From.readBody(ctx, pair.A)
	if err != nil {
		return fieldDifferences{}, err
	}
	to, err := d.To.readBody(ctx, pair.B)
	if err != nil {
		return fieldDifferences{}, err
	}
	found := fieldDifferences{isHidden: hiddenFields(pair)}
	if err := found.compareBodies(from, to, pair.B); err != nil {
		return found, errors.Join(errgrpc.ErrCorrupt, err)
	}
	return found, nil
}
