package server

import (
	"context"
	"errors"

	"google.golang.org/grpc"

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

// DiffManifests implements ManifestService.
func (s *Server) DiffManifests(req *manifestv1.DiffManifestsRequest, stream grpc.ServerStreamingServer[manifestv1.DiffManifestsResponse]) (err error) {
	ctx := stream.Context()
	from, err := s.openBackup(ctx, req.GetFrom())
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, from.release()) }()
	to, err := s.openBackup(ctx, req.GetTo())
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, to.release()) }()
	filter, err := diffFilter(req, from, to)
	if err != nil {
		return err
	}
	d := &differ{
		from: bodySource{file: from}, to: bodySource{file: to}, withFields: req.GetWithFields(),
		reordered: from.Header().Foreign || to.Header().Foreign, send: stream.Send, counts: &manifestv1.DiffCounts{},
	}
	defer func() { err = errors.Join(err, d.from.close(), d.to.close()) }()
	for pair, err := range manifest.Merge(ctx, from.Reader, to.Reader, filter) {
		if side := new(manifest.SideError); errors.As(err, &side) {
			damaged := from
			if side.Second {
				damaged = to
			}
			err = damaged.noteDamage(err)
		}
		if err == nil {
			err = d.comparePair(ctx, pair)
		}
		if err != nil {
			return damagedError(err)
		}
	}
	return d.sendBatch()
}

// diffFilter reads the filters of a request. A kind need not be in both backups.
func diffFilter(req *manifestv1.DiffManifestsRequest, from, to *openManifestFile) (f manifest.MergeFilter, err error) {
	if ns := req.GetNamespace(); ns != "" {
		f.Namespaces = []string{ns}
	}
	for _, name := range req.GetKinds() {
		found, errFrom := findKinds(from.Kinds(), "kinds", name)
		others, errTo := findKinds(to.Kinds(), "kinds", name)
		switch {
		case errFrom != nil && !errors.Is(errFrom, manifest.ErrNoKind):
			return f, errFrom
		case errTo != nil && (errFrom != nil || !errors.Is(errTo, manifest.ErrNoKind)):
			return f, to.explainMissing(errTo)
		}
		for _, k := range append(found, others...) {
			f.Resources = append(f.Resources, k.Resource)
		}
	}
	return f, nil
}

// bodySource reads the bodies of a backup's objects, and is opened when the first is needed.
type bodySource struct {
	file *openManifestFile
	open tarball.Source
}

func (b *bodySource) readBody(ctx context.Context, item *manifest.Item) (body []byte, err error) {
	if b.open == nil {
		b.open, err = b.file.openSource(ctx)
	}
	if err == nil {
		body, err = b.open.Read(ctx, *item)
	}
	return body, b.file.noteDamage(err)
}

func (b *bodySource) close() error {
	if b.open == nil {
		return nil
	}
	return b.open.Close()
}

// differ compares the objects of two backups.
type differ struct {
	from, to   bodySource
	withFields bool
	reordered  bool // the bodies of one object may have their fields in different orders
	send       func(*manifestv1.DiffManifestsResponse) error

	counts *manifestv1.DiffCounts
	batch  []*manifestv1.ItemDifference
	silent int // objects since the last message
}

// comparePair counts an object, and keeps it for the next message if it differs.
func (d *differ) comparePair(ctx context.Context, pair manifest.Pair) error {
	d.silent++
	difference := pair.Difference(d.reordered)
	var fields fieldDifferences
	if difference == manifest.Unknown || difference == manifest.Changed && d.withFields {
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
	if d.withFields {
		out.Fields, out.MoreFields = fields.list, fields.more
	}
	d.batch = append(d.batch, out)
	if len(d.batch) >= diffBatch || d.withFields && len(d.batch) >= diffFields || d.silent >= diffSilence {
		return d.sendBatch()
	}
	return nil
}

func (d *differ) sendBatch() error {
	counts := &manifestv1.DiffCounts{Added: d.counts.Added, Removed: d.counts.Removed, Changed: d.counts.Changed, Unchanged: d.counts.Unchanged}
	err := d.send(&manifestv1.DiffManifestsResponse{Differences: d.batch, Counts: counts})
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
	from, err := d.from.readBody(ctx, pair.A)
	if err != nil {
		return fieldDifferences{}, err
	}
	to, err := d.to.readBody(ctx, pair.B)
	if err != nil {
		return fieldDifferences{}, err
	}
	found := fieldDifferences{isHidden: hiddenFields(pair)}
	if err := found.compareBodies(from, to, pair.B); err != nil {
		return found, errors.Join(errgrpc.ErrCorrupt, err)
	}
	return found, nil
}
