package app

import (
	"context"
	"errors"
	"fmt"

	"github.com/holdfast-io/holdfast/pkg/archive/nativesnapshot"
	"github.com/holdfast-io/holdfast/pkg/extension/action"
	"github.com/holdfast-io/holdfast/pkg/extension/builtin"
	"github.com/holdfast-io/holdfast/pkg/extension/pluginhost"
	"github.com/holdfast-io/holdfast/pkg/extension/podvolume"
	"github.com/holdfast-io/holdfast/pkg/joblog"
	"github.com/holdfast-io/holdfast/pkg/plugin"
	"github.com/holdfast-io/holdfast/pkg/service"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/job"
)

// actionSets opens for each restore the built-in actions and those of plugins, in processes of its
// own.
func (a *App) actionSets(base service.Base) func(context.Context, func(joblog.Entry)) job.ActionSet {
	target := builtin.Reader{Client: a.runtime.Manager().GetAPIReader(), Namespace: base.Options.Namespace}
	return func(ctx context.Context, note func(joblog.Entry)) job.ActionSet {
		session := a.plugins.Open(ctx, pluginhost.ServiceLog(base, note))
		items, hidden := action.Merge(builtin.ForRestore(target), session.RestoreItems())
		set := job.ActionSet{Items: items, Close: session.Close, IsProcessCrash: func(err error) bool { return errors.Is(err, pluginhost.ErrCrashed) }, IsNotSent: isNotSent}
		for _, h := range hidden {
			set.Warnings = append(set.Warnings, fmt.Sprintf("action %s of a plugin is not used: one of that name is built in", h.Name()))
		}
		for _, missing := range session.MissingFromRestores() {
			set.Errors = append(set.Errors, fmt.Sprintf("objects may lack what a plugin changes: %v", missing))
		}
		return set
	}
}

// waitConfig reads the ConfigMap of the init container in which restored Pods wait for data.
func (a *App) waitConfig(base service.Base) func(context.Context) (*podvolume.WaitConfig, error) {
	target := builtin.Reader{Client: nativesnapshot.RetryingReader(a.runtime.Manager().GetAPIReader(), base.Clock, base.Log), Namespace: base.Options.Namespace}
	return func(ctx context.Context) (*podvolume.WaitConfig, error) {
		found, err := target.Configs(ctx, plugin.ConfigSelector(plugin.KindRestoreItemAction, podvolume.NameVelero))
		switch {
		case err != nil:
			return nil, fmt.Errorf("read the ConfigMap of %s: %w", podvolume.NameVelero, err)
		case len(found) == 0:
			return podvolume.ParseWaitConfig(nil)
		case len(found) > 1:
			return nil, fmt.Errorf("%w: %d ConfigMaps are labelled for %s", podvolume.ErrWaitConfig, len(found), podvolume.NameVelero)
		}
		config, err := podvolume.ParseWaitConfig(found[0].Data)
		if err != nil {
			return nil, fmt.Errorf("ConfigMap %s: %w", found[0].Name, err)
		}
		return config, nil
	}
}

// operations answers about what restores began.
func (a *App) operations(config *Config) action.Operations {
	mgr := a.runtime.Manager()
	return &podvolume.Operations{
		API:    podvolume.API{Reader: mgr.GetAPIReader(), Client: mgr.GetClient(), Namespace: config.Options.Namespace, Clock: config.Clock, Log: config.Log},
		Others: a.home.Processes,
	}
}

func isNotSent(err error) bool {
	var failed *pluginhost.Error
	return errors.As(err, &failed) && !failed.Sent
}
