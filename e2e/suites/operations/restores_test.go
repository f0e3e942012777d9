package operations

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/types/known/emptypb"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-io/holdfast/e2e/harness/site"
	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/archive/itemoperation"
	"github.com/holdfast-io/holdfast/pkg/plugin"
	"github.com/holdfast-io/holdfast/pkg/plugin/wire/velero"
	velerov2 "github.com/holdfast-io/holdfast/pkg/plugin/wire/velero/v2"
)

// ownRestore is the action of Holdfast's protocol for objects that are restored.
type ownRestore struct{ own }

// Start implements plugin.AsyncRestoreItemAction. It leaves objects out whose name begins with
// "left-out".
func (a ownRestore) Start(ctx context.Context, in *plugin.AsyncRestoreInput) (*plugin.AsyncRestoreOutput, error) {
	w, err := a.startOperation(ctx, in.Item, restoreOrderKey, in.Restore.Name(), in.IdempotencyKey)
	if w == nil || err != nil {
		return nil, err
	}
	return &plugin.AsyncRestoreOutput{OperationID: w.workID(), SkipRestore: strings.HasPrefix(in.Item.GetName(), "left-out")}, nil
}

// vendorRestore is a restore item action of Velero's version 2.
type vendorRestore struct {
	velerov2.UnimplementedRestoreItemActionServer
	*provider
}

// AppliesTo selects Secrets.
func (*vendorRestore) AppliesTo(context.Context, *velerov2.RestoreItemActionAppliesToRequest) (*velerov2.RestoreItemActionAppliesToResponse, error) {
	return &velerov2.RestoreItemActionAppliesToResponse{ResourceSelector: &velero.ResourceSelector{IncludedResources: []string{"secrets"}}}, nil
}

// Execute begins the operation.
func (v *vendorRestore) Execute(ctx context.Context, r *velerov2.RestoreItemActionExecuteRequest) (*velerov2.RestoreItemActionExecuteResponse, error) {
	var item, restore unstructured.Unstructured
	if err := errors.Join(json.Unmarshal(r.GetItem(), &item.Object), json.Unmarshal(r.GetRestore(), &restore.Object)); err != nil {
		return nil, fmt.Errorf("decode: %w", err)
	}
	answer := &velerov2.RestoreItemActionExecuteResponse{Item: r.GetItem()}
	w, err := v.startOperation(ctx, &item, restoreOrderKey, restore.GetName(), "")
	if w != nil {
		answer.OperationId = w.workID()
	}
	return answer, err
}

// Progress returns the progress of an operation.
func (v *vendorRestore) Progress(ctx context.Context, r *velerov2.RestoreItemActionProgressRequest) (*velerov2.RestoreItemActionProgressResponse, error) {
	w, err := v.readProgress(ctx, r.GetOperationId())
	if err != nil {
		return nil, err
	}
	return &velerov2.RestoreItemActionProgressResponse{Progress: progressOf(w)}, nil
}

// Cancel ends an operation.
func (v *vendorRestore) Cancel(ctx context.Context, r *velerov2.RestoreItemActionCancelRequest) (*emptypb.Empty, error) {
	_, err := v.cancelOperation(ctx, r.GetOperationId())
	return &emptypb.Empty{}, err
}

// createRestorable makes objects, for which operations are begun when they are restored, and a backup of
// them.
func (b *bed) createRestorable(t *testing.T, namespace string, own, vendor map[string]operationOrder) {
	t.Helper()
	b.Namespace(t, namespace)
	meta := func(name string, o operationOrder) metav1.ObjectMeta {
		text, err := json.Marshal(o)
		require.NoError(t, err)
		return metav1.ObjectMeta{Namespace: namespace, Name: name, Annotations: map[string]string{restoreOrderKey: string(text)}}
	}
	for name, o := range own {
		require.NoError(t, b.Client.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: meta(name, o)}))
	}
	for name, o := range vendor {
		require.NoError(t, b.Client.Create(t.Context(), &corev1.Secret{ObjectMeta: meta(name, o)}))
	}
	b.Backup(t, namespace, b.bucket, namespace)
	require.Equal(t, velerov1.BackupPhaseCompleted, b.BackupEnds(t, namespace).Status.Phase)
}

// restoreWaits returns a restore when it waits for its operations.
func (b *bed) restoreWaits(t *testing.T, name string) *velerov1.Restore {
	t.Helper()
	restore := &velerov1.Restore{}
	require.Eventually(t, func() bool {
		require.NoError(t, b.Client.Get(t.Context(), client.ObjectKey{Namespace: site.Server, Name: name}, restore))
		return restore.Status.Phase == velerov1.RestorePhaseWaitingForPluginOperations || restore.Status.Phase.Terminal()
	}, site.Patience, site.Look, "restore %s waits", name)
	require.Equal(t, velerov1.RestorePhaseWaitingForPluginOperations, restore.Status.Phase, restore.Status.FailureReason)
	return restore
}

// testRestored has operations of a restore complete and fail; objects are there before they end, and
// nothing holds the restore meanwhile.
func (b *bed) testRestored(t *testing.T) {
	const name = "restored"
	b.controller.holdOperations(name)
	b.createRestorable(t, name,
		map[string]operationOrder{"good": {Seconds: 1}, "bad": {Fails: "the disk is full"}, "left-out": {}}, map[string]operationOrder{"right": {}, "worse": {Fails: "the tape broke"}})
	b.Restore(t, name, name, name, name+"-copy")
	waiting := b.restoreWaits(t, name)
	require.Equal(t, 5, waiting.Status.RestoreItemOperationsAttempted)
	require.NoError(t, b.Client.Get(t.Context(), client.ObjectKey{Namespace: name + "-copy", Name: "good"}, &corev1.ConfigMap{}), "it is there before its operation has ended")
	require.Error(t, b.Client.Get(t.Context(), client.ObjectKey{Namespace: name + "-copy", Name: "left-out"}, &corev1.ConfigMap{}))
	free := slices.ContainsFunc(b.History.Of("Restore", name), func(step site.Step) bool {
		return step.Phase == string(velerov1.RestorePhaseWaitingForPluginOperations) && step.Holder == "" && step.Epoch > 0
	})
	require.True(t, free, "the claim is let go: %v", b.History.Of("Restore", name))
	b.controller.releaseHeld(name)

	restore := b.RestoreEnds(t, name)
	results := string(b.bucket.ReadZipped(t, "restores/"+name+"/restore-"+name+"-results.gz"))
	require.Equal(t, velerov1.RestorePhasePartiallyFailed, restore.Status.Phase, results)
	s := restore.Status
	require.Equal(t, []int{5, 3, 2, 2}, []int{s.RestoreItemOperationsAttempted, s.RestoreItemOperationsCompleted, s.RestoreItemOperationsFailed, s.Errors}, results)
	file := b.restoreOperations(t, name)
	require.Len(t, file, 5)
	for _, w := range b.worksOf(t, name) {
		o, action, resource := file[w.Spec.Item], ownRestores, "configmaps"
		if w.Spec.Key == "" {
			action, resource = vendorRestores, "secrets"
		}
		require.Equal(t, []string{w.workID(), action}, []string{o.Spec.ID, o.Spec.RestoreAction})
		require.Equal(t, itemoperation.Resource{Resource: resource, Namespace: name + "-copy", Name: w.Spec.Item}, o.Spec.Resource)
		require.Len(t, b.calls.callsOf(t, "start", name)[w.Spec.Item], 1, "%s is begun once", w.Spec.Item)
		if why := w.Spec.Order.Fails; why != "" {
			require.Equal(t, []string{itemoperation.PhaseFailed, why}, []string{o.Status.Phase, o.Status.Error})
			require.Contains(t, results, why)
			continue
		}
		require.Equal(t, itemoperation.PhaseCompleted, o.Status.Phase, o.Status.Error)
		require.Equal(t, []int64{total, total}, []int64{o.Status.Completed, o.Status.Total})
	}
}
