package plan

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/holdfast-io/holdfast/pkg/extension/action"
	"github.com/holdfast-io/holdfast/pkg/json/jsonlist"
	"github.com/holdfast-io/holdfast/pkg/kube/objmeta"
	"github.com/holdfast-io/holdfast/pkg/kube/rawlist"
	"github.com/holdfast-io/holdfast/pkg/kube/resource"
	"github.com/holdfast-io/holdfast/services/backup-runner/internal/cut"
	"github.com/holdfast-io/holdfast/services/backup-runner/internal/itemset"
)

// FoundObject is what Read found.
type FoundObject struct {
	// Exists is false if there is no such object; nothing else is set then.
	Exists bool
	// Item is the object. Its Cut is set where it is not of the backup's revision.
	Item itemset.SpooledItem
	// Live is true for an object that was read outside the cut.
	Live bool

	meta objmeta.Meta
}

// Meta is the metadata of an object that exists.
func (o *FoundObject) Meta() *objmeta.Meta { return &o.meta }

// Read reads one object by its name: at the revision of the backup's lists where the server lets
// it, and not by get, which has no exact revisions.
func (f *Finder) Read(ctx context.Context, res *resource.Resource, item action.Item) (*FoundObject, error) {
	revision, _, err := f.Cut.Of(ctx, res, item.Namespace)
	if err != nil {
		return nil, err
	}
	return f.readObject(ctx, res, item, revision)
}

// ReadMade is Read for an object that an action may have made just now: one that is not there at the
// revision of the lists is read as it is.
func (f *Finder) ReadMade(ctx context.Context, res *resource.Resource, item action.Item) (*FoundObject, error) {
	found, err := f.Read(ctx, res, item)
	if err != nil || found.Exists {
		return found, err
	}
	return f.readObject(ctx, res, item, "")
}

// definitions is the kind of definitions.
var definitions = resource.Resource{Name: "customresourcedefinitions", Kind: schema.GroupVersionKind{Group: "apiextensions.k8s.io", Version: "v1", Kind: "CustomResourceDefinition"}}

// IsDefined reports whether the definition of a custom kind is there now.
func (f *Finder) IsDefined(ctx context.Context, res *resource.Resource) (bool, error) {
	found, err := f.readObject(ctx, &definitions, action.Item{Name: res.Name + "." + res.Kind.Group}, "")
	return err == nil && found.Exists, err
}

// ReadDefinition returns the body of the definition of a custom resource as it is now, nil where there is
// none.
func (f *Finder) ReadDefinition(ctx context.Context, gr schema.GroupResource) ([]byte, error) {
	found, err := f.readObject(ctx, &definitions, action.Item{Name: gr.String()}, "")
	if err != nil {
		return nil, err
	}
	return found.Item.Raw, nil
}

// ReadConfigMap returns the data of a ConfigMap as it is now, nothing where there is none.
func (f *Finder) ReadConfigMap(ctx context.Context, namespace, name string) (map[string]string, error) {
	res := resource.Resource{Name: "configmaps", Kind: schema.GroupVersionKind{Version: "v1", Kind: "ConfigMap"}}
	found, err := f.readObject(ctx, &res, action.Item{Namespace: namespace, Name: name}, "")
	if err != nil || !found.Exists {
		return nil, err
	}
	var config struct {
		Data map[string]string `json:"data"`
	}
	err = json.Unmarshal(found.Item.Raw, &config)
	return config.Data, err
}

// readObject reads an object at a revision, "" for the newest.
func (f *Finder) readObject(ctx context.Context, res *resource.Resource, item action.Item, revision string) (*FoundObject, error) {
	req := rawlist.Request{Resource: res.GVR(), Namespace: item.Namespace, Fields: "metadata.name=" + item.Name, Aggregated: res.Aggregated, Revision: revision}
	for expiries := 0; ; {
		s := &singleSink{res: res, item: item}
		err := f.Lister.List(ctx, req, s)
		switch {
		case errors.Is(err, rawlist.ErrExpired) && req.Revision != "" && expiries < cut.MaxExpiries:
			expiries++
			if req.Revision, err = f.Cut.Renew(ctx, req.Revision); err != nil {
				return nil, err
			}
		case errors.Is(err, rawlist.ErrRevision) && req.Revision != "":
			req.Revision = ""
		case err != nil:
			return nil, fmt.Errorf("read it: %w", err)
		default:
			if revisions := f.Cut.Revisions(); f.Later || len(revisions) == 0 || revisions[0] != s.revision {
				s.found.Item.Cut, s.found.Live = s.revision, true
			}
			return &s.found, nil
		}
	}
}

// singleSink is a rawlist.Sink that takes one object.
type singleSink struct {
	res      *resource.Resource
	item     action.Item
	revision string
	found    FoundObject
}

// Begin implements rawlist.Sink.
func (s *singleSink) Begin(revision string) error {
	s.revision = revision
	return nil
}

// Item implements rawlist.Sink.
func (s *singleSink) Item(item jsonlist.Item) error {
	o := &s.found
	if o.Exists {
		return nil
	}
	if err := objmeta.Decode(item.Metadata, &o.meta); err != nil {
		return err
	}
	if o.meta.Name != s.item.Name || o.meta.Namespace != s.item.Namespace {
		return nil // some servers do not know field selectors
	}
	kind := s.res.Kind
	o.Exists, o.Item = true, itemset.SpooledItem{Group: kind.Group, Version: kind.Version, Kind: kind.Kind,
		Resource: s.res.Name, Namespace: o.meta.Namespace, Name: o.meta.Name, Raw: item.Raw}
	if item.HasTypeMeta {
		o.Item.Raw = bytes.Clone(item.Raw)
	} else {
		o.Item.Raw = itemset.AppendTyped(nil, &o.Item)
	}
	return nil
}

// Commit implements rawlist.Sink.
func (s *singleSink) Commit(rawlist.Page) error { return nil }

// Rollback implements rawlist.Sink.
func (s *singleSink) Rollback() error {
	s.found.Exists = false
	return nil
}
