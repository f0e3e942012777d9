package app

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/extension/action"
	"github.com/holdfast-io/holdfast/pkg/extension/builtin"
	"github.com/holdfast-io/holdfast/pkg/extension/csisnapshot"
	"github.com/holdfast-io/holdfast/pkg/extension/pluginhost"
	"github.com/holdfast-io/holdfast/pkg/joblog"
	"github.com/holdfast-io/holdfast/pkg/kube/resource"
	"github.com/holdfast-io/holdfast/pkg/service"
	"github.com/holdfast-io/holdfast/pkg/spec/selection"
	"github.com/holdfast-io/holdfast/services/backup-runner/internal/collect"
	"github.com/holdfast-io/holdfast/services/backup-runner/internal/job"
)

// actionSource opens the actions of one backup: those of plugins, in processes of its own, and the
// built-in ones.
type actionSource struct {
	host  *pluginhost.Host
	base  service.Base
	lists builtin.Lists
	csi   *csiSupport
	// podVolumes opens the file-system backups.
	podVolumes *podVolumeSource
}

// builtinAsks are the resources of which built-in actions name objects.
var builtinAsks = []schema.GroupResource{
	{Resource: "pods"}, {Resource: "persistentvolumeclaims"}, {Resource: "persistentvolumes"},
	{Group: "scheduling.k8s.io", Resource: "priorityclasses"},
	{Group: "rbac.authorization.k8s.io", Resource: "clusterroles"}, {Group: "rbac.authorization.k8s.io", Resource: "clusterrolebindings"},
}

// snapshotAsks are further ones of the actions that take CSI snapshots, but for Secrets.
var snapshotAsks = []schema.GroupResource{csisnapshot.Snapshots, csisnapshot.Contents, csisnapshot.Classes}

// Open implements job.Actions.
func (a *actionSource) Open(ctx context.Context, backup *velerov1.Backup, catalog *resource.Catalog, filter *selection.Filter, note func(joblog.Entry), lock job.Lock) collect.Actions {
	session := a.host.Open(ctx, pluginhost.ServiceLog(a.base, note))
	ownItems, ownBlocks := builtin.ForBackup(builtin.Live{Lists: a.lists, Catalog: catalog})
	snapshotter := a.csi.openSnapshotter(backup, catalog, lock, note)
	podVolumes, warning := a.podVolumes.openBackupper(backup, filter)
	if !isSelective(backup) && snapshotter == nil {
		ownBlocks = nil
	}
	for i := range ownItems {
		if ownItems[i].Name() == claimAction {
			ownItems[i] = withoutVolume{ownItems[i]}
		}
	}
	closeAll, asks := session.Close, builtinAsks
	ownItems = append(ownItems, podVolumes.Action())
	if snapshotter != nil {
		snapshotter.Skips = func(ctx context.Context, namespace, claim string) (bool, error) {
			return podVolumes.Takes(ctx, namespace, claim, false)
		}
		if ptr.Deref(backup.Spec.SnapshotMoveData, false) {
			snapshotter.Movement = &csisnapshot.Movement{Namespace: podVolumes.Namespace, FindProblem: podVolumes.FindProblem}
		}
		ownItems = append(ownItems, snapshotter.Actions()...)
		asks = slices.Concat(builtinAsks, snapshotAsks, []schema.GroupResource{{Resource: "secrets"}})
		closeAll = func() { session.Close(); snapshotter.Wait() }
	}
	items, blocks := session.BackupItems(), session.ItemBlocks()
	set := collect.Actions{Close: closeAll, PodVolumes: podVolumes, IsNotSent: isNotSent, IsProcessCrash: func(err error) bool { return errors.Is(err, pluginhost.ErrCrashed) }}
	if len(items)+len(blocks) == 0 {
		set.Asks = asks
	}
	var hiddenItems []action.BackupItem
	var hiddenBlocks []action.ItemBlock
	set.Items, hiddenItems = action.Merge(ownItems, items)
	set.Blocks, hiddenBlocks = action.Merge(ownBlocks, blocks)
	set.Warnings = append(hiddenWarnings(hiddenItems), hiddenWarnings(hiddenBlocks)...)
	if warning != "" {
		set.Warnings = append(set.Warnings, warning)
	}
	for _, missing := range session.MissingFromBackups() {
		set.Errors = append(set.Errors, fmt.Sprintf("objects may lack what a plugin changes: %v", missing))
	}
	return set
}

// isSelective reports whether labels select. Only then, and where CSI snapshots of a block are cut
// together, the built-in block actions add anything: what they name is in the selection itself or
// an additional item of the item actions, and they read the Pods of every namespace that has
// claims.
func isSelective(b *velerov1.Backup) bool {
	return b.Spec.LabelSelector != nil || len(b.Spec.OrLabelSelectors) > 0
}

// claimAction is the built-in action on claims.
const claimAction = "velero.io/pv"

// withoutVolume is that action without the volumes among its additional items: these come with
// their claims whatever actions there are, all at once and not one by one.
type withoutVolume struct{ action.BackupItem }

// Execute implements action.BackupItem.
func (w withoutVolume) Execute(ctx context.Context, o *action.Object, b *action.Backup) (action.BackupResult, error) {
	r, err := w.BackupItem.Execute(ctx, o, b)
	r.Additional = nil
	return r, err //nolint:wrapcheck // it names action and method
}

// DryRunSafe implements action.DryRunSafe.
func (withoutVolume) DryRunSafe() {}

func isNotSent(err error) bool {
	if errors.Is(err, collect.ErrStopped) { // while a built-in action waited for a volume
		return true
	}
	var failed *pluginhost.Error
	return errors.As(err, &failed) && !failed.Sent
}

func hiddenWarnings[A action.Action](all []A) (warnings []string) {
	for _, a := range all {
		warnings = append(warnings, fmt.Sprintf("action %s of a plugin is not used: one of that name is built in", a.Name()))
	}
	return warnings
}
