package app

import (
	"cmp"
	"slices"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/extension/builtin"
	"github.com/holdfast-io/holdfast/pkg/extension/pluginhost"
)

// pluginInfos lists what the actions of backups, restores and deletions are, for ServerStatusRequests:
// the built-in ones and those of this service's plugin directory, which all services are given
// alike. They are in the order of their kinds and names.
func pluginInfos(found []pluginhost.Registration) []velerov1.PluginInfo {
	var list []velerov1.PluginInfo
	add := func(kind pluginhost.Kind, name string) {
		list = append(list, velerov1.PluginInfo{Kind: string(kind), Name: name})
	}
	items, blocks := builtin.ForBackup(nil) // only asked for their names
	for _, a := range items {
		add(pluginhost.KindBackupItemAction, a.Name())
	}
	for _, a := range blocks {
		add(pluginhost.KindItemBlockAction, a.Name())
	}
	for _, a := range builtin.ForRestore(nil) {
		add(pluginhost.KindRestoreItemAction, a.Name())
	}
	for _, r := range found {
		add(r.Kind, r.Name)
	}
	slices.SortFunc(list, func(a, b velerov1.PluginInfo) int {
		return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Name, b.Name))
	})
	return slices.Compact(list) // a plugin cannot have the name of a built-in action
}
