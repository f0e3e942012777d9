package job

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/types"

	"github.com/holdfast-io/holdfast/pkg/apis/holdfast"
	"github.com/holdfast-io/holdfast/pkg/archive/volumedata"
	"github.com/holdfast-io/holdfast/pkg/extension/podvolume"
	"github.com/holdfast-io/holdfast/pkg/spec/selection"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/apply"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/dispatch"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/outcome"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/restore/object"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/restore/volumes"
)

const claimsResource = "persistentvolumeclaims"

// restoresFiles reports whether the restore is of files in the volumes of claims, and of no objects.
func (s *session) restoresFiles() bool {
	_, files := s.restore.Annotations[holdfast.AnnotationFiles]
	return files
}

// restoreFiles has the files that the restore names be written into the volumes of its claims. What cannot be is an
// error of the claim.
func (a *restoreAttempt) restoreFiles(ctx context.Context) error {
	in, made := a.inputs, a.prepared.Plan
	items, err := selection.ParseItems(a.restore.Annotations)
	if err != nil {
		return fatalErrorf("%w", err)
	}
	found, others, err := volumedata.FindFiles(ctx, in.store, in.backup.Name, func(d volumedata.Data) bool {
		_, named := made.Find(claimsResource, d.Namespace, d.Claim)
		return named
	})
	switch {
	case errors.Is(err, volumedata.ErrMalformed):
		return fatalErrorf("volumes of the backup: %w", err)
	case err != nil:
		return fmt.Errorf("read the volumes of the backup: %w", err)
	}
	client, err := apply.NewClient(a.cfg.REST, apply.ManagerOf(a.restore.UID), &dispatch.Limiter{}, a.cfg.Clock, a.confirm)
	if err != nil {
		return fmt.Errorf("restore files: %w", err)
	}
	filler := volumes.NewPodFiller(volumes.PodFillerConfig{
		Recorder: in.recorder, Existing: &object.LiveReader{Client: client}, Unrecorded: in.records.readOnly, Clock: a.cfg.Clock,
		Restore: podvolume.RestoreJob{Name: a.restore.Name, UID: a.restore.UID, Namespace: a.cfg.Namespace, Location: in.backup.Spec.StorageLocation,
			Settings: podvolume.RestoreSettings(a.restore.Spec.UploaderConfig, true)},
	})
	data := slices.Concat(found, others)
	for i, item := range items.Named {
		node, ok := made.Find(claimsResource, item.Namespace, item.Name)
		if !ok || in.recorder.Action(node) != "" {
			continue
		}
		if a.stopped.Err() != nil {
			return dispatch.ErrStopped
		}
		e := in.recorder.Begin(node)
		e.Done(apply.Updated, "")
		if err := a.requestFiles(ctx, filler, e, node, data, items.Files[i]); ctx.Err() != nil {
			return context.Cause(ctx)
		} else if err != nil {
			e.Fail(fmt.Errorf("claim %s/%s: its files are not restored: %w", made.Target(node), item.Name, err))
		}
		e.Commit()
	}
	return nil
}

// requestFiles makes the request for the files of a claim, through a Pod that has mounted it. Of the data in the backup what
// has files comes first.
func (a *restoreAttempt) requestFiles(ctx context.Context, filler *volumes.PodFiller, e *outcome.Entry, node int32, data []volumedata.Data, paths []string) error {
	made := a.prepared.Plan
	if other, taken := made.RivalBefore(node); taken {
		return fmt.Errorf("the files of claim %s/%s go to the same one", made.Source(other), made.Name(other))
	}
	i := slices.IndexFunc(data, func(d volumedata.Data) bool { return d.Namespace == made.Source(node) && d.Claim == made.Name(node) })
	switch {
	case i < 0:
		return errors.New("the backup has no files of it")
	case data[i].Files == nil:
		return fmt.Errorf("the backup has no files of it, but %s", data[i].Method)
	}
	api := podvolume.API{Reader: a.cfg.Reader, Client: a.cfg.Client, Namespace: a.cfg.Namespace, Clock: a.cfg.Clock, Log: a.log}
	volume, err := api.FindMount(ctx, types.NamespacedName{Namespace: made.Target(node), Name: made.Name(node)})
	if err != nil {
		return err
	}
	volume.Source = made.Source(node)
	return filler.RequestFiles(ctx, e, &volume, data[i].Files, paths)
}
