package wireserver

import (
	"context"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/holdfast-io/holdfast/pkg/plugin"
	velerov2 "github.com/holdfast-io/holdfast/pkg/plugin/wire/velero/v2"
)

// restoreInput is backupInput of a restore.
func (s *Server) restoreInput(ctx context.Context, h *pluginHandle, action plugin.Action, item, stored, restore []byte) (plugin.RestoreInput, bool, error) {
	object, err := decodeItem("item", item)
	if err != nil {
		return plugin.RestoreInput{}, false, err
	}
	matched, err := h.matchesItem(ctx, action, object)
	if err != nil || !matched {
		return plugin.RestoreInput{}, false, err
	}
	original, err := decodeItem("itemFromBackup", stored)
	if err != nil {
		return plugin.RestoreInput{}, false, err
	}
	job, err := s.jobs.decodeJob("restore", restore)
	return plugin.RestoreInput{Item: object, ItemFromBackup: original, Restore: job}, err == nil, err
}

// restoreActions serves version 2 alone: a name in both versions would run twice in Velero. It has
// the asynchronous actions too whose operations live outside the process.
type restoreActions struct {
	velerov2.UnimplementedRestoreItemActionServer
	*Server
}

func (a restoreActions) AppliesTo(ctx context.Context, req *velerov2.RestoreItemActionAppliesToRequest) (*velerov2.RestoreItemActionAppliesToResponse, error) {
	kind := plugin.KindRestoreItemAction
	if a.isMoved(req.GetPlugin()) {
		kind = plugin.KindAsyncRestoreItemAction
	}
	selector, err := appliesTo(ctx, a.Server, kind, req.GetPlugin())
	if err != nil {
		return nil, err
	}
	return &velerov2.RestoreItemActionAppliesToResponse{ResourceSelector: selector}, nil
}

// isMoved reports whether a name is that of an asynchronous action.
func (a restoreActions) isMoved(name string) bool {
	h, ok := a.byName[kindAndName{plugin.KindAsyncRestoreItemAction, name}]
	return ok && h.OutOfProcess
}

func (a restoreActions) Execute(ctx context.Context, req *velerov2.RestoreItemActionExecuteRequest) (*velerov2.RestoreItemActionExecuteResponse, error) {
	if a.isMoved(req.GetPlugin()) {
		return a.executeAsync(ctx, req)
	}
	action, h, err := findPlugin[plugin.RestoreItemAction](a.Server, plugin.KindRestoreItemAction, req.GetPlugin())
	if err != nil {
		return nil, err
	}
	in, matched, err := a.restoreInput(ctx, h, action, req.GetItem(), req.GetItemFromBackup(), req.GetRestore())
	if err != nil {
		return nil, err
	}
	var out *plugin.RestoreOutput
	if matched {
		if out, err = action.Execute(ctx, &in); err != nil {
			return nil, err
		}
	}
	if out == nil {
		return &velerov2.RestoreItemActionExecuteResponse{Item: req.GetItem()}, nil
	}
	return restoreResponse(out, req.GetItem(), in)
}

func restoreResponse(out *plugin.RestoreOutput, given []byte, in plugin.RestoreInput) (*velerov2.RestoreItemActionExecuteResponse, error) {
	if out.AdditionalItemsReadyTimeout < 0 {
		return nil, status.Errorf(codes.Internal, "AdditionalItemsReadyTimeout: %s is negative", out.AdditionalItemsReadyTimeout)
	}
	resp := &velerov2.RestoreItemActionExecuteResponse{
		Item: given, AdditionalItems: wireIdentifiers(out.AdditionalItems), SkipRestore: out.SkipRestore, WaitForAdditionalItems: out.WaitForAdditionalItems,
	}
	if out.AdditionalItemsReadyTimeout > 0 {
		resp.AdditionalItemsReadyTimeout = durationpb.New(out.AdditionalItemsReadyTimeout)
	}
	item := out.Item
	if item == nil {
		item = in.Item
	}
	var err error
	resp.Item, err = encodeItem(item)
	return resp, err
}

func (a restoreActions) AreAdditionalItemsReady(ctx context.Context, req *velerov2.RestoreItemActionItemsReadyRequest) (*velerov2.RestoreItemActionItemsReadyResponse, error) {
	if a.isMoved(req.GetPlugin()) { // it waits for none
		return &velerov2.RestoreItemActionItemsReadyResponse{Ready: true}, nil
	}
	action, _, err := findPlugin[plugin.RestoreItemAction](a.Server, plugin.KindRestoreItemAction, req.GetPlugin())
	if err != nil {
		return nil, err
	}
	job, err := a.jobs.decodeJob("restore", req.GetRestore())
	if err != nil {
		return nil, err
	}
	items := make([]plugin.ResourceIdentifier, 0, len(req.GetAdditionalItems()))
	for _, i := range req.GetAdditionalItems() {
		items = append(items, plugin.ResourceIdentifier{Group: i.GetGroup(), Resource: i.GetResource(), Namespace: i.GetNamespace(), Name: i.GetName()})
	}
	ready, err := action.AreAdditionalItemsReady(ctx, job, items)
	if err != nil {
		return nil, err
	}
	return &velerov2.RestoreItemActionItemsReadyResponse{Ready: ready}, nil
}
