package server

import (
	"context"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"strings"

	"github.com/holdfast-io/holdfast/pkg/archive/manifest"
	"github.com/holdfast-io/holdfast/pkg/errgrpc"
	manifestv1 "github.com/holdfast-io/holdfast/proto/gen/holdfast/manifest/v1"
)

const (
	defaultPage = 100
	// maxScan bounds how many items one page may pass over.
	maxScan = 20_000
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
	filter := manifest.Filter{After: after}
	if gr := req.GetGroupResource(); gr != "" {
		if filter.Kinds = m.kindsOf(gr); len(filter.Kinds) == 0 {
			return &manifestv1.ListItemsResponse{}, nil
		}
	}
	if ns := req.GetNamespace(); ns != "" {
		filter.Namespaces = []string{ns}
	}
	return m.listPage(ctx, req, filter)
}

func (m *openManifestFile) listPage(ctx context.Context, req *manifestv1.ListItemsRequest, filter manifest.Filter) (*manifestv1.ListItemsResponse, error) {
	size := int(req.GetPageSize())
	if size == 0 {
		size = defaultPage
	}
	resp := &manifestv1.ListItemsResponse{}
	var last manifest.Key
	scanned := 0
	for item, err := range m.Items(ctx, filter) {
		if err != nil {
			return nil, damagedError(err)
		}
		if len(resp.Items) == size || scanned == maxScan {
			token, err := encodeToken(req, last)
			resp.NextPageToken = token
			return resp, err
		}
		scanned++
		last = item.Key()
		if name := req.GetName(); name == "" || name == item.Name {
			resp.Items = append(resp.Items, toProto(&item))
		}
	}
	return resp, nil
}

func (m *openManifestFile) kindsOf(groupResource string) []string {
	var kinds []string
	for _, k := range m.Kinds() {
		if k.Resource == groupResource {
			kinds = append(kinds, k.Kind)
		}
	}
	return kinds
}

// findItem looks up the item of a GetItemRequest.
func (m *openManifestFile) findItem(ctx context.Context, req *manifestv1.GetItemRequest) (manifest.Item, error) {
	if uid := req.GetUid(); uid != "" {
		return m.LookupUID(ctx, uid)
	}
	key := req.GetKey()
	kind, err := m.kindNamed(key)
	if err != nil {
		return manifest.Item{}, err
	}
	return m.Lookup(ctx, manifest.Key{Kind: kind, Namespace: key.GetNamespace(), Name: key.GetName()})
}

// kindNamed fills in the version where the backup holds only one.
func (m *openManifestFile) kindNamed(key *manifestv1.ItemKey) (string, error) {
	if v := key.GetVersion(); v != "" {
		return manifest.KindName(key.GetGroup(), v, key.GetKind()), nil
	}
	var found string
	for _, k := range m.Kinds() {
		group, _, kind, ok := manifest.SplitKindName(k.Kind)
		if !ok || group != key.GetGroup() || kind != key.GetKind() {
			continue
		}
		if found != "" {
			return "", errgrpc.Field("key.version", "is needed: the backup holds %s and %s", found, k.Kind)
		}
		found = k.Kind
	}
	if found == "" {
		return "", fmt.Errorf("kind %s: %w", manifest.KindName(key.GetGroup(), "*", key.GetKind()), manifest.ErrNotFound)
	}
	return found, nil
}

// pageToken is a page token: the last item of the page before, and what was asked for.
type pageToken struct {
	Query string       `json:"q"`
	After manifest.Key `json:"a"`
}

func queryHash(req *manifestv1.ListItemsRequest) string {
	return strings.Join([]string{req.GetBackup(), req.GetGroupResource(), req.GetNamespace(), req.GetName()}, "\n")
}

func encodeToken(req *manifestv1.ListItemsRequest, after manifest.Key) (string, error) {
	data, err := json.Marshal(pageToken{Query: queryHash(req), After: after})
	if err != nil {
		return "", err
	}
	return base64.RawURLEncoding.EncodeToString(data), nil
}

func decodeToken(req *manifestv1.ListItemsRequest) (*manifest.Key, error) {
	text := req.GetPageToken()
	if text == "" {
		return nil, nil //nolint:nilnil // no token means the first page
	}
	var t pageToken
	data, err := base64.RawURLEncoding.DecodeString(text)
	if err == nil {
		err = json.Unmarshal(data, &t)
	}
	if err == nil && t.Query != queryHash(req) {
		err = errors.New("made for another backup or other filters")
	}
	if err != nil {
		return nil, errgrpc.Field("page_token", "%v", err)
	}
	return &t.After, nil
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
	for _, owner := range item.Owners {
		p.OwnerUids = append(p.OwnerUids, owner.UID)
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
		all[name] = fmt.Sprintf("length:%d sha256:%s", hidden.Length, hidden.SHA256)
	}
	return all
}

// pluralName cuts the group off "deployments.apps".
func pluralName(groupResource string) string {
	name, _, _ := strings.Cut(groupResource, ".")
	return name
}
