package restored

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/extension/csisnapshot"
	"github.com/holdfast-io/holdfast/pkg/service/rungroup"
)

const period = 15 * time.Second

// Sweeper removes the VolumeSnapshots and contents of restores that have ended once no claim is to
// be filled from them: each is bound to its volume, or gone. What the drivers stored stays.
type Sweeper struct {
	csisnapshot.API
	// Namespace is the server's.
	Namespace string
}

// Run makes a pass every 15 s until ctx ends.
func (s *Sweeper) Run(ctx context.Context) error {
	return rungroup.RunPeriodically(ctx, s.Clock, period, nil, func(ctx context.Context) {
		if err := s.Pass(ctx); err != nil && ctx.Err() == nil {
			s.Log.WarnContext(ctx, "Failed to delete the objects of restored CSI snapshots; will retry", "error", err)
		}
	})
}

// Pass checks all objects once.
func (s *Sweeper) Pass(ctx context.Context) error {
	var snapshots snapshotv1.VolumeSnapshotList
	var contents snapshotv1.VolumeSnapshotContentList
	err := s.Reader.List(ctx, &snapshots, client.HasLabels{velerov1.LabelRestoreUID})
	if err == nil {
		err = s.Reader.List(ctx, &contents, client.HasLabels{velerov1.LabelRestoreUID})
	}
	switch {
	case meta.IsNoMatchError(err):
		return nil
	case err != nil:
		return fmt.Errorf("list restored snapshots: %w", err)
	case len(snapshots.Items)+len(contents.Items) == 0:
		return nil
	}
	// Read after them: the restore of an object that is listed is listed too, or gone.
	p := &sweepPass{s, map[types.UID]bool{}, map[string]map[string]bool{}}
	if err := p.lookAtRestores(ctx); err != nil {
		return err
	}
	return p.removeUnneeded(ctx, snapshots.Items, contents.Items)
}

// sweepPass is the state of one Pass.
type sweepPass struct {
	*Sweeper
	under  map[types.UID]bool         // restores that are under way
	wanted map[string]map[string]bool // namespace → VolumeSnapshots that claims are to be filled from
}

func (p *sweepPass) lookAtRestores(ctx context.Context) error {
	var restores velerov1.RestoreList
	if err := p.Reader.List(ctx, &restores, client.InNamespace(p.Namespace)); err != nil {
		return fmt.Errorf("list restores: %w", err)
	}
	for i := range restores.Items {
		p.under[restores.Items[i].UID] = !restores.Items[i].Status.Settled(p.Clock.Now())
	}
	return nil
}

// isOwnEnded reports that an object is of a restore of this server that has ended.
func (p *sweepPass) isOwnEnded(o client.Object) bool {
	return o.GetAnnotations()[AnnotationServer] == p.Namespace && !p.under[types.UID(o.GetLabels()[velerov1.LabelRestoreUID])]
}

// removeUnneeded removes what nothing needs, each pair together.
func (p *sweepPass) removeUnneeded(ctx context.Context, snapshots []snapshotv1.VolumeSnapshot, contents []snapshotv1.VolumeSnapshotContent) error {
	byName := map[string]*snapshotv1.VolumeSnapshotContent{}
	for i := range contents {
		if vsc := &contents[i]; p.isOwnEnded(vsc) {
			byName[vsc.Name] = vsc
		}
	}
	var failed []error
	for i := range snapshots {
		vs := &snapshots[i]
		vsc := byName[vs.Name]
		delete(byName, vs.Name) // it goes with its snapshot, or stays with it
		if !p.isOwnEnded(vs) || vsc != nil && vsc.Spec.VolumeSnapshotRef.Namespace != vs.Namespace {
			continue
		}
		needed, err := p.isNeeded(ctx, vs)
		if err == nil && !needed {
			err = p.releaseSnapshot(ctx, vs, vsc)
		}
		failed = append(failed, err)
	}
	for _, vsc := range byName {
		failed = append(failed, p.releaseSnapshot(ctx, nil, vsc))
	}
	return errors.Join(failed...)
}

func (p *sweepPass) releaseSnapshot(ctx context.Context, vs *snapshotv1.VolumeSnapshot, vsc *snapshotv1.VolumeSnapshotContent) error {
	if vs != nil && vs.DeletionTimestamp != nil {
		vs = nil
	}
	if vsc != nil && vsc.DeletionTimestamp != nil {
		vsc = nil
	}
	if vs == nil && vsc == nil {
		return nil
	}
	if err := p.Release(ctx, vs, vsc); err != nil {
		return err
	}
	p.Log.InfoContext(ctx, "Deleted the objects of a restored CSI snapshot; no claim needs them", "name", cmp.Or(nameOrEmpty(vs), nameOrEmpty(vsc)))
	return nil
}

// nameOrEmpty is that of an object which may be nil.
func nameOrEmpty[T any, P interface {
	*T
	client.Object
}](o P) string {
	if o == nil {
		return ""
	}
	return o.GetName()
}

// isNeeded reports that a claim is to be filled from a VolumeSnapshot.
func (p *sweepPass) isNeeded(ctx context.Context, vs *snapshotv1.VolumeSnapshot) (bool, error) {
	wanted, known := p.wanted[vs.Namespace]
	if !known {
		var claims corev1.PersistentVolumeClaimList
		if err := p.Reader.List(ctx, &claims, client.InNamespace(vs.Namespace)); err != nil {
			return true, fmt.Errorf("list the claims of namespace %s: %w", vs.Namespace, err)
		}
		wanted = map[string]bool{}
		for i := range claims.Items {
			if from := sourceSnapshot(&claims.Items[i]); from != "" && claims.Items[i].Status.Phase != corev1.ClaimBound {
				wanted[from] = true
			}
		}
		p.wanted[vs.Namespace] = wanted
	}
	return wanted[vs.Name], nil
}

// sourceSnapshot is the VolumeSnapshot that a claim is filled from; empty for none.
func sourceSnapshot(c *corev1.PersistentVolumeClaim) string {
	if d := c.Spec.DataSource; d != nil && d.Kind == "VolumeSnapshot" {
		return d.Name
	}
	if d := c.Spec.DataSourceRef; d != nil && d.Kind == "VolumeSnapshot" {
		return d.Name
	}
	return ""
}
