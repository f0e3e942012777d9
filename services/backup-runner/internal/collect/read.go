package collect

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	"github.com/holdfast-io/holdfast/pkg/action"
	"github.com/holdfast-io/holdfast/pkg/jsonlist"
	"github.com/holdfast-io/holdfast/pkg/objmeta"
	"github.com/holdfast-io/holdfast/pkg/rawlist"
	"github.com/holdfast-io/holdfast/pkg/resource"
	"github.com/holdfast-io/holdfast/pkg/selection"
	"github.com/holdfast-io/holdfast/services/backup-runner/internal/held"
	"github.com/holdfast-io/holdfast/services/backup-runner/internal/known"
)

// single is a rawlist.Sink that takes one object.
type single struct {
	res      *resource.Resource
	item     action.Item
	revision string

	found bool
	meta  objmeta.Meta
	subject
}

// Begin implements rawlist.Sink.
func (s *single) Begin(revision string) error {
	s.revision = revision
	return nil
}

// Item implements rawlist.Sink.
func (s *single) Item(item jsonlist.Item) error {
	if s.found {
		return nil
	}
	if err := objmeta.Decode(item.Metadata, &s.meta); err != nil {
		return err
	}
	if s.meta.Name != s.item.Name || s.meta.Namespace != s.item.Namespace {
		return nil // some servers do not know field selectors
	}
	kind := s.res.Kind
	s.found, s.subject = true, subject{extra: true, Item: held.Item{Group: kind.Group, Version: kind.Version, Kind: kind.Kind,
		Resource: s.res.Name, Namespace: s.meta.Namespace, Name: s.meta.Name, Raw: item.Raw}}
	if item.HasTypeMeta {
		s.Raw = bytes.Clone(item.Raw)
	} else {
		s.Raw = appendTyped(nil, &s.subject.Item)
	}
	return nil
}

// Commit implements rawlist.Sink.
func (s *single) Commit(rawlist.Page) error { return nil }

// Rollback implements rawlist.Sink.
func (s *single) Rollback() error {
	s.found = false
	return nil
}

// read reads one object by its name: at the revision of the backup's lists where the
// server lets it, and not by get, which knows no revisions.
func (r *run) read(ctx context.Context, res *resource.Resource, item action.Item) (*single, error) {
	req := rawlist.Request{Resource: res.GVR(), Namespace: item.Namespace, Fields: "metadata.name=" + item.Name, Aggregated: res.Aggregated}
	var err error
	if req.Revision, _, err = r.revision(ctx, res, item.Namespace); err != nil {
		return nil, err
	}
	for expiries := 0; ; {
		s := &single{res: res, item: item}
		err := r.Lister.List(ctx, req, s)
		switch {
		case errors.Is(err, rawlist.ErrExpired) && req.Revision != "" && expiries < maxExpiries:
			expiries++
			if req.Revision, err = r.Cut.Renew(ctx, req.Revision); err != nil {
				return nil, err
			}
		case errors.Is(err, rawlist.ErrRevision) && req.Revision != "":
			req.Revision = ""
		case err != nil:
			return nil, fmt.Errorf("read it: %w", err)
		default:
			s.place(r)
			return s, nil
		}
	}
}

// place says which revision the object is of, where it is not the backup's.
func (s *single) place(r *run) {
	if revisions := r.Cut.Revisions(); len(revisions) == 0 || revisions[0] != s.revision {
		s.Cut, s.live = s.revision, true
	}
}

// judge returns the fate of an additional item that was read, Unknown for one to be
// processed.
func (r *run) judge(s *single, must bool) known.Fate {
	o := selection.Object{Namespace: s.meta.Namespace, Name: s.meta.Name, Labels: &s.meta.Labels, Deleting: s.meta.Deleting()}
	switch {
	case !s.found:
		return known.Absent
	case o.Deleting, !must && !r.Filter.Item(o):
		return known.Unwanted
	}
	return known.Unknown
}
