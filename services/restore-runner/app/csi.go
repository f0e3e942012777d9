package app

import (
	"slices"

	"github.com/holdfast-io/holdfast/pkg/extension/csisnapshot"
	"github.com/holdfast-io/holdfast/pkg/extension/csisnapshot/restored"
	"github.com/holdfast-io/holdfast/pkg/service"
)

// csi reports that claims are filled from their CSI snapshots.
func csi(base service.Base) bool { return slices.Contains(base.Options.Features, service.FeatureCSI) }

// sweeper returns what removes the snapshot objects of restores once no claim needs them.
func (a *App) sweeper(config *Config) *restored.Sweeper {
	mgr := a.runtime.Manager()
	return &restored.Sweeper{
		API:       csisnapshot.API{Reader: mgr.GetAPIReader(), Client: mgr.GetClient(), Clock: config.Clock, Log: config.Log},
		Namespace: config.Options.Namespace,
	}
}
