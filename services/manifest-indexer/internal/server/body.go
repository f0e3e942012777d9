package server

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/holdfast-io/holdfast/pkg/archive/manifest"
	"github.com/holdfast-io/holdfast/pkg/archive/tarball"
	"github.com/holdfast-io/holdfast/pkg/errgrpc"
	"github.com/holdfast-io/holdfast/pkg/json/jsonlimit"
	manifestv1 "github.com/holdfast-io/holdfast/proto/gen/holdfast/manifest/v1"
)

// itemRequest names one item of a backup.
type itemRequest interface {
	GetBackup() string
	GetUid() string
	GetKind() string
	GetNamespace() string
	GetName() string
}

// GetItem implements ManifestService.
func (s *Server) GetItem(ctx context.Context, req *manifestv1.GetItemRequest) (*manifestv1.GetItemResponse, error) {
	item, body, err := s.readItem(ctx, req, req.GetWithBody())
	if err != nil {
		return nil, err
	}
	hideSums(&item)
	resp := &manifestv1.GetItemResponse{Item: toProto(&item), Body: body, Masked: len(body) > 0 && item.IsSecret()}
	if resp.GetMasked() {
		resp.Body, err = maskSecret(body, &item)
	}
	return resp, err
}

// GetUnmaskedItem implements ManifestService.
func (s *Server) GetUnmaskedItem(ctx context.Context, req *manifestv1.GetUnmaskedItemRequest) (*manifestv1.GetUnmaskedItemResponse, error) {
	item, body, err := s.readItem(ctx, req, true)
	if err != nil {
		return nil, err
	}
	return &manifestv1.GetUnmaskedItemResponse{Item: toProto(&item), Body: body}, nil
}

// checkItemRequest finds what is missing in a request for an item, or too much.
func checkItemRequest(req itemRequest) error {
	byName := req.GetKind() != "" || req.GetNamespace() != "" || req.GetName() != ""
	switch {
	case req.GetUid() != "" && byName:
		return errgrpc.Field("uid", "give either a UID or a kind and a name")
	case req.GetUid() == "" && req.GetKind() == "":
		return errgrpc.Field("kind", "is needed, or a UID")
	case req.GetUid() == "" && req.GetName() == "":
		return errgrpc.Field("name", "is needed")
	}
	return nil
}

// readItem finds an item and, withBody, reads its object.
func (s *Server) readItem(ctx context.Context, req itemRequest, withBody bool) (item manifest.Item, body []byte, err error) {
	if err := checkItemRequest(req); err != nil {
		return item, nil, err
	}
	m, err := s.openBackup(ctx, req.GetBackup())
	if err != nil {
		return item, nil, err
	}
	defer m.close(&err)
	item, err = m.findItem(ctx, req)
	if errors.Is(err, manifest.ErrNotFound) {
		return item, nil, fmt.Errorf("backup %q: %w: %w", req.GetBackup(), err, errgrpc.ErrNotFound)
	}
	if err != nil {
		return item, nil, damagedError(err)
	}
	if withBody {
		body, err = m.readBody(ctx, item)
	}
	return item, body, err
}

// findItem looks up an item. Of a kind with several versions it is the first that has the item. For an object without
// namespace any may be given, as for kubectl.
func (m *openManifestFile) findItem(ctx context.Context, req itemRequest) (item manifest.Item, err error) {
	if uid := req.GetUid(); uid != "" {
		return m.LookupUID(ctx, uid)
	}
	kinds, err := findKinds(m.Kinds(), "kind", req.GetKind())
	if err != nil {
		return manifest.Item{}, m.explainMissing(err)
	}
	var first error
	for _, namespace := range slices.Compact([]string{req.GetNamespace(), ""}) {
		for _, k := range kinds {
			item, err = m.Lookup(ctx, manifest.Key{Kind: k.Kind, Namespace: namespace, Name: req.GetName()})
			if !errors.Is(err, manifest.ErrNotFound) {
				return item, err
			}
			first = cmp.Or(first, err)
		}
	}
	return item, first
}

// readBody reads the object out of the tarball, checked against the manifest's hash.
func (m *openManifestFile) readBody(ctx context.Context, item manifest.Item) ([]byte, error) {
	body, err := tarball.ReadItem(ctx, m.store, m.Reader, m.backup, item, tarball.Limits{})
	return body, damagedError(err)
}

// openSource opens the tarball for any number of items. Where the manifest holds no places the tarball is
// copied into the work dir, in pieces.
func (m *openManifestFile) openSource(ctx context.Context) (tarball.Source, error) {
	if m.rebuilt {
		return tarball.FromTarball(ctx, m.store, m.backup, m.server.Rebuilder.WorkDir, tarball.Limits{})
	}
	return tarball.WithManifest(ctx, m.store, m.backup, m.Reader, tarball.Limits{})
}

// masked stands for a value that is not shown. It is no base64, so that no API server takes it for data.
const masked = "***"

// maskSecret returns the body of a Secret without its values. What is shown is listed, and everything else is
// masked: fields that identify the Secret, its metadata, and the annotations that its manifest publishes.
func maskSecret(body []byte, item *manifest.Item) ([]byte, error) {
	secret, err := jsonlimit.UnmarshalObject(body)
	if err != nil {
		return nil, fmt.Errorf("%s: %w: %w", item.Path, errgrpc.ErrCorrupt, err)
	}
	for name, value := range secret {
		switch name {
		case "apiVersion", "kind", "type", "immutable":
		case "metadata":
			metadata, ok := value.(map[string]any)
			if !ok {
				secret[name] = masked
				continue
			}
			if annotations := metadata["annotations"]; annotations != nil {
				metadata["annotations"] = maskValues(annotations, func(key string) bool {
					_, published := item.Annotations[key]
					return published
				})
			}
		default:
			secret[name] = maskValues(value, func(string) bool { return false })
		}
	}
	return json.Marshal(secret)
}

// maskValues masks the values of a map but those that are shown, and anything else as a whole.
func maskValues(value any, shown func(key string) bool) any {
	values, ok := value.(map[string]any)
	if !ok {
		return masked
	}
	for key := range values {
		if !shown(key) {
			values[key] = masked
		}
	}
	return values
}
