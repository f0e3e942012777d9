package app

import (
	"slices"

	"github.com/holdfast-io/holdfast/pkg/extension/csisnapshot"
	"github.com/holdfast-io/holdfast/pkg/extension/csisnapshot/restored"
	"github.com/holdfast-io/holdfast/pkg/service"
)

// isCSIEnabled reports that claims are filled from their CSI snapshots.
func isCSIEnabled(base service.Base) bool {
	return slices.Contains(base.Options.Features, service.FeatureCSI)
}

// newSweeper returns what removes the snapshot objects of restores once no claim needs them.
func (a *App) newSweeper(config *Config) *restored.Sweeper {
	mgr := a.runtime.Manager()
	return &restored.Sweeper{
		API:       csisnapshot.API{Reader: mgr.GetAPIReader(), Client: mgr.GetClient(), Clock: config.Clock, Log: config.Log},
		Namespace: config.Options.Namespace,
	}
}
