package locations

import (
	"context"

	"sigs.k8s.io/controller-runtime/pkg/client"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/kube"
	"github.com/holdfast-io/holdfast/pkg/objectstore/location"
)

// ensureDefault keeps one default: at the start the location of that name is made one, and of
// several the newest stays (Velero 1.18). The given locations are brought up to date.
func (v *Validator) ensureDefault(ctx context.Context, locs []velerov1.BackupStorageLocation) error {
	if err := v.makeDefault(ctx, locs); err != nil {
		return err
	}
	newest := location.NewestDefault(locs)
	for i := range locs {
		if !locs[i].Spec.Default || locs[i].UID == newest.UID {
			continue
		}
		if err := v.setDefault(ctx, &locs[i], false); err != nil {
			return err
		}
		v.Log.Info("location is no longer the default, a newer one is", "location", locs[i].Name, "default", newest.Name)
	}
	return nil
}

func (v *Validator) makeDefault(ctx context.Context, locs []velerov1.BackupStorageLocation) error {
	if v.defaultDone || v.Default == "" {
		return nil
	}
	for i := range locs {
		if locs[i].Name != v.Default || locs[i].Spec.Default {
			continue
		}
		if err := v.setDefault(ctx, &locs[i], true); err != nil {
			return err
		}
	}
	v.defaultDone = true
	return nil
}

func (v *Validator) setDefault(ctx context.Context, loc *velerov1.BackupStorageLocation, value bool) error {
	return client.IgnoreNotFound(kube.Update(ctx, v.Reader, v.Client, loc, func(l *velerov1.BackupStorageLocation) error {
		if l.Spec.Default == value {
			return kube.ErrSkip
		}
		l.Spec.Default = value
		return nil
	}))
}
