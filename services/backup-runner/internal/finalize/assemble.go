package finalize

import (
	"context"
	"fmt"
	"slices"

	"github.com/holdfast-io/holdfast/pkg/apis/holdfast"
	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/archive/assembly"
	"github.com/holdfast-io/holdfast/pkg/archive/commit"
	"github.com/holdfast-io/holdfast/pkg/extension/csisnapshot"
	"github.com/holdfast-io/holdfast/pkg/extension/podvolume"
	"github.com/holdfast-io/holdfast/pkg/joblog"
	"github.com/holdfast-io/holdfast/services/backup-runner/internal/checkpoint"
)

// readRecords reads the records that the composition names, a few at a time.
func readRecords(ctx context.Context, s *State) error {
	if err := s.Holder.Confirm(ctx); err != nil {
		return err
	}
	c := s.Composition
	s.Contents.Hooks = velerov1.HookStatus{}
	s.plan, s.volumes = commit.Plan(s.Backup, s.Cluster), newAboutVolumes(s.Dir)
	s.volumes.ends, s.volumes.moves = s.operationEnds(csisnapshot.NameSnapshot), s.operationEnds(podvolume.NameUpload)
	var err error
	if s.volumes.uploads, err = s.listUploads(ctx); err != nil {
		return err
	}
	if err := s.volumes.addRequests(s.requests); err != nil {
		return err
	}
	if len(c.Revisions) > 0 {
		s.plan.Header.Revision = c.Revisions[0]
	}
	s.plan.Notes = append(s.plan.Notes, s.operationNotes()...)
	err = checkpoint.Each(ctx, s.Store, c.Backup, c.UID, slices.Concat(c.Checkpoints, s.later), func(_ string, rec *checkpoint.Record) error {
		if p := rec.Part; p.SidecarKey != "" {
			s.plan.Parts = append(s.plan.Parts, assembly.PartRef{Key: p.Key, Size: p.Size, SHA256: p.SHA256,
				SidecarKey: p.SidecarKey, SidecarSHA256: p.SidecarSHA256})
		}
		s.plan.Cuts = appendCuts(s.plan.Cuts, rec.Ranges, s.plan.Header.Revision)
		s.countHooks(rec.HooksEnded)
		return s.volumes.addRecord(rec)
	})
	if err != nil {
		return err
	}
	s.Contents.Snapshots, s.Contents.Completed = s.volumes.begun, s.volumes.completed
	return s.volumes.checkComplete()
}

// assembleTarball composes the tarball from its parts.
func assembleTarball(ctx context.Context, s *State) (err error) {
	s.Tarball, err = assembly.Compose(ctx, s.Store, s.plan)
	if err != nil {
		return fmt.Errorf("compose the tarball: %w", err)
	}
	s.Contents.TarballSize = s.Tarball.Size
	return nil
}

// mergeSidecars makes manifest, resource list, results and log of the sidecars.
func mergeSidecars(ctx context.Context, s *State) (err error) {
	merge := s.plan
	if id := s.Backup.Annotations[holdfast.AnnotationPlan]; id != "" {
		compared := newPlanComparison(s, id)
		defer compared.close()
		merge.Stored = compared.addStored
		merge.Ended = func() ([]joblog.Entry, error) { return compared.compareRows(ctx) }
	}
	s.Merged, err = assembly.Merge(ctx, s.Store, merge, s.Dir)
	if err != nil {
		return fmt.Errorf("merge the sidecars: %w", err)
	}
	s.Contents.Items = s.Merged.Items + s.Merged.Failed
	s.Contents.Warnings, s.Contents.Errors = s.Merged.Warnings, s.Merged.Errors
	return nil
}
