package wireserver

import (
	"context"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/holdfast-io/holdfast/pkg/plugin"
	"github.com/holdfast-io/holdfast/pkg/plugin/wire/velero"
	velerov1 "github.com/holdfast-io/holdfast/pkg/plugin/wire/velero/v1"
)

// backupInput decodes what actions of a backup get, and reports whether the action's expression
// selects the object.
func (s *Server) backupInput(ctx context.Context, h *pluginHandle, action plugin.Action, item, backup []byte) (plugin.BackupInput, bool, error) {
	object, err := decodeItem("item", item)
	if err != nil {
		return plugin.BackupInput{}, false, err
	}
	matched, err := h.matchesItem(ctx, action, object)
	if err != nil || !matched {
		return plugin.BackupInput{}, false, err
	}
	job, err := s.jobs.decodeJob("backup", backup)
	return plugin.BackupInput{Item: object, Backup: job}, err == nil, err
}

type backupActions struct {
	velero.UnimplementedBackupItemActionServer
	*Server
}

func (a backupActions) AppliesTo(ctx context.Context, req *velero.BackupItemActionAppliesToRequest) (*velero.BackupItemActionAppliesToResponse, error) {
	selector, err := appliesTo(ctx, a.Server, plugin.KindBackupItemAction, req.GetPlugin())
	if err != nil {
		return nil, err
	}
	return &velero.BackupItemActionAppliesToResponse{ResourceSelector: selector}, nil
}

func (a backupActions) Execute(ctx context.Context, req *velero.ExecuteRequest) (*velero.ExecuteResponse, error) {
	action, h, err := findPlugin[plugin.BackupItemAction](a.Server, plugin.KindBackupItemAction, req.GetPlugin())
	if err != nil {
		return nil, err
	}
	in, matched, err := a.backupInput(ctx, h, action, req.GetItem(), req.GetBackup())
	if err != nil {
		return nil, err
	}
	// A server cannot do without the object, so it gets back what it sent when nothing is to
	// change.
	unchanged := &velero.ExecuteResponse{Item: req.GetItem()}
	if !matched {
		return unchanged, nil
	}
	out, err := action.Execute(ctx, &in)
	if err != nil {
		return nil, err
	}
	if out == nil {
		return unchanged, nil
	}
	raw, err := encodeItem(annotatedItem(out, in.Item))
	if err != nil {
		return nil, err
	}
	return &velero.ExecuteResponse{Item: raw, AdditionalItems: wireIdentifiers(out.AdditionalItems)}, nil
}

// Velero's annotations on the object that a backup item action returns, which stand for what its
// messages have no field for.
const (
	mustIncludeAnnotation = "backup.velero.io/must-include-additional-items"
	skipAnnotation        = "velero.io/skip-from-backup"
)

// annotatedItem returns the object as a server gets it: the output's or else the given one, with the
// annotations it asks for.
func annotatedItem(out *plugin.BackupOutput, given *unstructured.Unstructured) *unstructured.Unstructured {
	item := out.Item
	if item == nil {
		item = given
	}
	if out.MustInclude {
		setAnnotation(item, mustIncludeAnnotation)
	}
	if out.SkipBackup {
		setAnnotation(item, skipAnnotation)
	}
	return item
}

func setAnnotation(item *unstructured.Unstructured, key string) {
	all := item.GetAnnotations()
	if all == nil {
		all = map[string]string{}
	}
	all[key] = "true"
	item.SetAnnotations(all)
}

type deleteActions struct {
	velero.UnimplementedDeleteItemActionServer
	*Server
}

func (a deleteActions) AppliesTo(ctx context.Context, req *velero.DeleteItemActionAppliesToRequest) (*velero.DeleteItemActionAppliesToResponse, error) {
	selector, err := appliesTo(ctx, a.Server, plugin.KindDeleteItemAction, req.GetPlugin())
	if err != nil {
		return nil, err
	}
	return &velero.DeleteItemActionAppliesToResponse{ResourceSelector: selector}, nil
}

func (a deleteActions) Execute(ctx context.Context, req *velero.DeleteItemActionExecuteRequest) (*velero.Empty, error) {
	action, h, err := findPlugin[plugin.DeleteItemAction](a.Server, plugin.KindDeleteItemAction, req.GetPlugin())
	if err != nil {
		return nil, err
	}
	in, matched, err := a.backupInput(ctx, h, action, req.GetItem(), req.GetBackup())
	if err != nil {
		return nil, err
	}
	if matched {
		err = action.Execute(ctx, &in)
	}
	return &velero.Empty{}, err
}

type blockActions struct {
	velerov1.UnimplementedItemBlockActionServer
	*Server
}

func (a blockActions) AppliesTo(ctx context.Context, req *velerov1.ItemBlockActionAppliesToRequest) (*velerov1.ItemBlockActionAppliesToResponse, error) {
	selector, err := appliesTo(ctx, a.Server, plugin.KindItemBlockAction, req.GetPlugin())
	if err != nil {
		return nil, err
	}
	return &velerov1.ItemBlockActionAppliesToResponse{ResourceSelector: selector}, nil
}

func (a blockActions) GetRelatedItems(ctx context.Context, req *velerov1.ItemBlockActionGetRelatedItemsRequest) (*velerov1.ItemBlockActionGetRelatedItemsResponse, error) {
	action, h, err := findPlugin[plugin.ItemBlockAction](a.Server, plugin.KindItemBlockAction, req.GetPlugin())
	if err != nil {
		return nil, err
	}
	in, matched, err := a.backupInput(ctx, h, action, req.GetItem(), req.GetBackup())
	if err != nil || !matched {
		return &velerov1.ItemBlockActionGetRelatedItemsResponse{}, err
	}
	related, err := action.GetRelatedItems(ctx, &in)
	if err != nil {
		return nil, err
	}
	return &velerov1.ItemBlockActionGetRelatedItemsResponse{RelatedItems: wireIdentifiers(related)}, nil
}
