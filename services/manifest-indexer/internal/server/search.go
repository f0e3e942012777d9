package server

import (
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"

	"google.golang.org/protobuf/types/known/timestamppb"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/holdfast-io/holdfast/pkg/archive/manifest"
	"github.com/holdfast-io/holdfast/pkg/errgrpc"
	"github.com/holdfast-io/holdfast/pkg/service/grpcserver"
	manifestv1 "github.com/holdfast-io/holdfast/proto/gen/holdfast/manifest/v1"
	"github.com/holdfast-io/holdfast/services/manifest-indexer/internal/search"
)

// SearchItems implements ManifestService.
func (s *Server) SearchItems(ctx context.Context, req *manifestv1.SearchItemsRequest) (*manifestv1.SearchItemsResponse, error) {
	coverage := s.coverage() // before the search: what is added meanwhile is not promised
	query, err := newSearchQuery(req)
	if err != nil {
		return nil, err
	}
	if query.Kinds, err = s.findIndexedKinds(ctx, "kinds", req.GetKinds()...); err != nil {
		return nil, err
	}
	found, err := s.Index.FindObjects(ctx, query)
	if err != nil {
		return nil, s.indexError(err)
	}
	resp := &manifestv1.SearchItemsResponse{Coverage: coverage}
	for i := range found {
		f, info := &found[i], found[i].Kind.Info()
		resp.Items = append(resp.Items, &manifestv1.FoundItem{
			Group: f.Kind.Group, Version: f.Kind.Version, Kind: f.Kind.Kind, Resource: info.Plural(), Namespace: f.Namespace, Name: f.Name,
			Backups: f.Backups, Oldest: newBackupReference(&f.Oldest), Newest: newBackupReference(&f.Newest),
		})
	}
	if len(found) == query.Limit {
		last := &found[len(found)-1]
		resp.NextPageToken, err = encodeToken(req, manifest.Key{Kind: manifest.KindName(last.Kind.Group, "", last.Kind.Kind), Namespace: last.Namespace, Name: last.Name})
	}
	return resp, err
}

// newSearchQuery reads all of a request but the kinds; errors name the field.
func newSearchQuery(req *manifestv1.SearchItemsRequest) (*search.Query, error) {
	q := &search.Query{Name: req.GetName(), Namespace: req.GetNamespace(), Annotations: req.GetAnnotations(), Backups: newBackupFilter(req.GetBackups()), Limit: pageSizeOf(req)}
	if _, err := path.Match(q.Name, ""); err != nil || strings.ContainsRune(q.Name, '\\') {
		return nil, errgrpc.Field("name", "%q is not a pattern: a bracket is not closed, or there is a backslash", q.Name)
	}
	var err error
	if q.Labels, err = labels.Parse(req.GetLabelSelector()); err != nil {
		return nil, errgrpc.Field("label_selector", "%v", err)
	}
	after, err := decodeToken(req)
	if after != nil {
		group, _, kind, _ := manifest.SplitKindName(after.Kind)
		q.After = &search.Key{Group: group, Kind: kind, Namespace: after.Namespace, Name: after.Name}
	}
	return q, err
}

func newBackupFilter(f *manifestv1.BackupFilter) search.BackupFilter {
	filter := search.BackupFilter{Name: f.GetBackup(), Schedule: f.GetSchedule(), Location: f.GetLocation()}
	if f.GetSince() != nil {
		filter.Since = f.GetSince().AsTime()
	}
	if f.GetUntil() != nil {
		filter.Until = f.GetUntil().AsTime()
	}
	return filter
}

func newBackupReference(b *search.Backup) *manifestv1.BackupReference {
	return &manifestv1.BackupReference{Backup: b.Name, Location: b.Location, Schedule: b.Schedule, StartTime: timestamppb.New(b.Start), NamesOnly: b.NamesOnly}
}

// findIndexedKinds returns the kinds that some names mean, all kinds where there are no names.
func (s *Server) findIndexedKinds(ctx context.Context, field string, names ...string) ([]search.Kind, error) {
	indexed, err := s.Index.ListKinds(ctx)
	if err != nil || len(names) == 0 {
		return indexed, s.indexError(err)
	}
	infos := make([]manifest.KindInfo, len(indexed))
	for i, k := range indexed {
		infos[i] = k.Info()
	}
	var kinds []search.Kind
	for _, name := range names {
		found, err := findKinds(infos, field, name)
		if errors.Is(err, manifest.ErrNoKind) {
			return nil, fmt.Errorf("no backup that is indexed %w: %w", err, errgrpc.ErrNotFound)
		}
		if err != nil {
			return nil, err
		}
		for _, f := range found {
			k := indexed[slices.IndexFunc(infos, func(i manifest.KindInfo) bool { return i.Kind == f.Kind })]
			if !slices.Contains(kinds, k) {
				kinds = append(kinds, k)
			}
		}
	}
	return kinds, nil
}

func (s *Server) coverage() *manifestv1.Coverage {
	c, counted := s.Index.Coverage()
	return &manifestv1.Coverage{Indexed: c.Indexed, Backups: c.Backups, NamesOnly: c.NamesOnly, Incomplete: !counted || c.Indexed < c.Backups}
}

// indexError has a damaged index built again.
func (s *Server) indexError(err error) error {
	if errors.Is(err, search.ErrDamaged) {
		s.Index.Wake()
		return fmt.Errorf("the search index is being built again, ask again later: %w: %w", errgrpc.ErrUnavailable, err)
	}
	return err
}

// GetHistory implements ManifestService.
func (s *Server) GetHistory(ctx context.Context, req *manifestv1.GetHistoryRequest) (*manifestv1.GetHistoryResponse, error) {
	coverage := s.coverage()
	skip, err := grpcserver.PageOffset(req.GetPageToken())
	if err != nil {
		return nil, err
	}
	kinds, err := s.findIndexedKinds(ctx, "kind", req.GetKind())
	if err != nil {
		return nil, err
	}
	filter := newBackupFilter(req.GetBackups())
	entries, err := s.Index.ReadHistory(ctx, kinds[0], req.GetNamespace(), req.GetName(), &filter)
	if err != nil {
		return nil, s.indexError(err)
	}
	resp := &manifestv1.GetHistoryResponse{Group: kinds[0].Group, Kind: kinds[0].Kind, Coverage: coverage}
	for i := min(skip, len(entries)); i < len(entries); i++ {
		if len(resp.Entries) == pageSizeOf(req) {
			resp.NextPageToken = fmt.Sprint(i)
			break
		}
		resp.Entries = append(resp.Entries, &manifestv1.HistoryEntry{Backup: newBackupReference(&entries[i].Backup), Change: changeSince(entries[i:])})
	}
	return resp, nil
}

// changeSince compares the first entry with the next older one.
func changeSince(entries []search.Entry) manifestv1.HistoryEntry_Change {
	if len(entries) == 1 {
		return manifestv1.HistoryEntry_CHANGE_FIRST
	}
	switch same, known := entries[0].IsSame(&entries[1]); {
	case !known:
		return manifestv1.HistoryEntry_CHANGE_UNKNOWN
	case same:
		return manifestv1.HistoryEntry_CHANGE_UNCHANGED
	}
	return manifestv1.HistoryEntry_CHANGE_CHANGED
}
