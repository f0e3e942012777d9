package app

import (
	"context"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"

	"github.com/holdfast-io/holdfast/pkg/action"
	"github.com/holdfast-io/holdfast/pkg/builtin"
	"github.com/holdfast-io/holdfast/pkg/joblog"
	"github.com/holdfast-io/holdfast/pkg/pluginhost"
	"github.com/holdfast-io/holdfast/pkg/pluginhost/forservice"
	"github.com/holdfast-io/holdfast/pkg/resource"
	"github.com/holdfast-io/holdfast/pkg/service"
	"github.com/holdfast-io/holdfast/services/backup-runner/internal/collect"
)

// actions opens the actions of one backup: those of plugins and the built-in ones.
type actions struct {
	host  *pluginhost.Host
	base  service.Base
	lists builtin.Lists
}

// Open implements job.Actions.
func (a *actions) Open(ctx context.Context, backup *velerov1.Backup, catalog *resource.Catalog, note func(joblog.Entry)) collect.Actions {
	session := a.host.Open(ctx, forservice.Log(a.base, note))
	ownItems, ownBlocks := builtin.ForBackup(builtin.Live{Lists: a.lists, Catalog: catalog})
	if !selective(backup) {
		ownBlocks = nil
	}
	items, hiddenItems := action.Merge(ownItems, session.BackupItems())
	blocks, hiddenBlocks := action.Merge(ownBlocks, session.ItemBlocks())
	a.warn(ctx, names(hiddenItems))
	a.warn(ctx, names(hiddenBlocks))
	return collect.Actions{Items: items, Blocks: blocks, Close: session.Close}
}

// selective reports whether labels select. Only then the built-in block actions say
// anything new: what they name is in the selection itself or brought by the item
// actions, and they read the Pods of every namespace that has claims.
func selective(b *velerov1.Backup) bool {
	return b.Spec.LabelSelector != nil || len(b.Spec.OrLabelSelectors) > 0
}

func names[A action.Action](all []A) []string {
	out := make([]string, len(all))
	for i, a := range all {
		out[i] = a.Name()
	}
	return out
}

func (a *actions) warn(ctx context.Context, hidden []string) {
	for _, name := range hidden {
		a.base.Log.WarnContext(ctx, "plugin is not used, an action of that name is built in", "name", name)
	}
}
