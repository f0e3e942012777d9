package job

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/extension/podvolume"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/outcome"
)

// listFilled returns the volumes of Pods that the restore made PodVolumeRestores for, as these are now. What
// cannot be read is left out of the volume information.
func (a *restoreAttempt) listFilled(ctx context.Context) (filled []outcome.FilledVolume) {
	claims := map[string]string{} // by the identifiers of operations
	for _, o := range a.inputs.recorder.Operations() {
		if o.Action != podvolume.NameRestore {
			continue
		}
		claims[o.ID] = ""
		if o.Item.Resource == claimsResource {
			claims[o.ID] = o.Item.Name
		}
	}
	if len(claims) == 0 {
		return nil
	}
	api := podvolume.API{Reader: a.cfg.Reader, Client: a.cfg.Client, Namespace: a.cfg.Namespace, Clock: a.cfg.Clock, Log: a.log}
	list, err := api.ListRestores(ctx, map[string]string{velerov1.LabelRestoreUID: string(a.restore.UID)})
	if err != nil {
		a.log.WarnContext(ctx, "Failed to list the PodVolumeRestores; the volume information lacks them", "error", err)
	}
	for i := range list {
		one := outcome.FilledVolume{Request: &list[i], Claim: claims[podvolume.RestoreOperationID(list[i].Labels[podvolume.LabelOperation], 1)]}
		if one.Claim != "" {
			claim := &corev1.PersistentVolumeClaim{}
			if a.cfg.Reader.Get(ctx, client.ObjectKey{Namespace: list[i].Spec.Pod.Namespace, Name: one.Claim}, claim) == nil {
				one.Volume = claim.Spec.VolumeName
			}
		}
		filled = append(filled, one)
	}
	return filled
}
