package server

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"slices"

	"google.golang.org/protobuf/proto"

	"github.com/holdfast-io/holdfast/pkg/archive/manifest"
	manifestv1 "github.com/holdfast-io/holdfast/proto/gen/holdfast/manifest/v1"
)

const (
	defaultPage = 100
	// maxScan bounds how many items one page may pass over.
	maxScan = 20_000
	// maxPageBytes is the size of a page that gets no further item: clients take 4 MiB, and an item with the largest
	// labels, annotations and references takes less than half of that.
	maxPageBytes = 2 << 20
)

// ListItems implements ManifestService.
func (s *Server) ListItems(ctx context.Context, req *manifestv1.ListItemsRequest) (_ *manifestv1.ListItemsResponse, err error) {
	after, err := decodeToken(req)
	if err != nil {
		return nil, err
	}
	m, err := s.openBackup(ctx, req.GetBackup())
	if err != nil {
		return nil, err
	}
	defer m.close(&err)
	matcher, err := newItemMatcher(req, m.Kinds())
	if err != nil {
		return nil, m.explainMissing(err)
	}
	filter := manifest.Filter{After: after, Texts: matcher.lineTexts()}
	for _, name := range req.GetKinds() {
		kinds, err := findKinds(m.Kinds(), "kinds", name)
		if err != nil {
			return nil, m.explainMissing(err)
		}
		for _, k := range kinds {
			filter.Kinds = append(filter.Kinds, k.Kind)
		}
	}
	if ns := req.GetNamespace(); ns != "" {
		filter.Namespaces = []string{ns}
		if req.GetWithClusterScoped() {
			filter.Namespaces = append(filter.Namespaces, "")
		}
	}
	if uid := req.GetUid(); uid != "" {
		return m.listUID(ctx, uid, filter, matcher)
	}
	return m.listPage(ctx, req, filter, matcher)
}

func (m *openManifestFile) listPage(ctx context.Context, req *manifestv1.ListItemsRequest, filter manifest.Filter, matcher *itemMatcher) (*manifestv1.ListItemsResponse, error) {
	size := pageSizeOf(req)
	resp := &manifestv1.ListItemsResponse{}
	var last manifest.Key
	scanned, bytes := 0, 0
	for item, err := range m.Items(ctx, filter) {
		if err != nil {
			return nil, damagedError(err)
		}
		if len(resp.Items) == size || scanned == maxScan || bytes >= maxPageBytes {
			token, err := encodeToken(req, last)
			resp.NextPageToken = token
			return resp, err
		}
		scanned++
		hideSums(&item)
		last = item.Key()
		if matcher.matchesItem(&item) {
			entry := toProto(&item)
			resp.Items = append(resp.Items, entry)
			bytes += proto.Size(entry)
		}
	}
	return resp, nil
}

// listUID lists the one item with a UID, which the index of the manifest finds.
func (m *openManifestFile) listUID(ctx context.Context, uid string, filter manifest.Filter, matcher *itemMatcher) (*manifestv1.ListItemsResponse, error) {
	resp := &manifestv1.ListItemsResponse{}
	item, err := m.LookupUID(ctx, uid)
	switch {
	case errors.Is(err, manifest.ErrNotFound):
		return resp, nil
	case err != nil:
		return nil, damagedError(err)
	}
	hideSums(&item)
	selected := len(filter.Kinds) == 0 || slices.Contains(filter.Kinds, item.Key().Kind)
	selected = selected && (len(filter.Namespaces) == 0 || slices.Contains(filter.Namespaces, item.Namespace))
	if selected && matcher.matchesItem(&item) {
		resp.Items = append(resp.Items, toProto(&item))
	}
	return resp, nil
}

func toProto(item *manifest.Item) *manifestv1.Item {
	p := &manifestv1.Item{
		Group: item.Group, Version: item.Version, Kind: item.Kind, Resource: item.Resource, Namespace: item.Namespace, Name: item.Name,
		Uid: item.UID, Path: item.Path, Size: item.Size, Labels: item.Labels, Annotations: itemAnnotations(item), Actions: item.Actions,
		ResourceVersion: item.ResourceVersion, Live: item.Live,
	}
	if sum, err := hex.DecodeString(item.SHA256); err == nil {
		p.Sha256 = sum
	}
	if sum, err := hex.DecodeString(item.ContentHash); err == nil {
		p.ContentHash = sum
	}
	for i := range item.Owners {
		o := &item.Owners[i]
		p.Owners = append(p.Owners, &manifestv1.Owner{ApiVersion: o.APIVersion, Kind: o.Kind, Name: o.Name, Uid: o.UID, Controller: o.Controller})
	}
	for _, r := range item.References {
		p.References = append(p.References, &manifestv1.Reference{Group: r.Group, Kind: r.Kind, Namespace: r.Namespace, Name: r.Name, Relation: r.Relation})
	}
	return p
}

// itemAnnotations adds those whose values the manifest does not publish.
func itemAnnotations(item *manifest.Item) map[string]string {
	if len(item.HiddenAnnotations) == 0 {
		return item.Annotations
	}
	all := maps.Clone(item.Annotations)
	if all == nil {
		all = make(map[string]string, len(item.HiddenAnnotations))
	}
	for name, hidden := range item.HiddenAnnotations {
		all[name] = fmt.Sprintf("length:%d", hidden.Length)
		if hidden.SHA256 != "" {
			all[name] += " sha256:" + hidden.SHA256
		}
	}
	return all
}

// hideSums removes from a Secret what a short value can be guessed by: whoever may see it has the right to call
// GetUnmaskedItem.
func hideSums(item *manifest.Item) {
	if !item.IsSecret() {
		return
	}
	item.SHA256, item.ContentHash = "", ""
	for name, hidden := range item.HiddenAnnotations {
		hidden.SHA256 = ""
		item.HiddenAnnotations[name] = hidden
	}
}
