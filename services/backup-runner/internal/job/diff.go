package job

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/archive/difference"
	"github.com/holdfast-io/holdfast/pkg/archive/manifest"
	"github.com/holdfast-io/holdfast/pkg/archive/part"
	"github.com/holdfast-io/holdfast/pkg/archive/tarball"
	"github.com/holdfast-io/holdfast/pkg/errgrpc"
	"github.com/holdfast-io/holdfast/pkg/kube/resource"
	"github.com/holdfast-io/holdfast/pkg/objectstore"
	"github.com/holdfast-io/holdfast/pkg/spec/selection"
	"github.com/holdfast-io/holdfast/services/backup-runner/internal/collect/dryrun"
	"github.com/holdfast-io/holdfast/services/backup-runner/internal/collect/plan"
)

// ClusterDiff is a comparison of a backup with the cluster.
type ClusterDiff struct {
	difference.Comparison // without sides
	Backup                *velerov1.Backup
	// Progress gets the number of objects listed so far, one call at a time.
	Progress func(objects int64)
	// Messages gets what could not be read of the cluster, before anything is sent.
	Messages func([]string)
}

// DiffCluster compares a backup with what it would hold now. The objects of the cluster are in the work dir meanwhile,
// compressed as in a backup.
func (k *Kind) DiffCluster(ctx context.Context, run *ClusterDiff) (err error) {
	b := run.Backup
	if !b.Status.Phase.Terminal() {
		return fmt.Errorf("backup %q has not ended: %w", b.Name, errgrpc.ErrPrecondition)
	}
	if err := k.planning.Acquire(ctx, 1); err != nil {
		return err
	}
	defer k.planning.Release(1)
	store, err := k.openForPlan(ctx, b.Spec.StorageLocation)
	if err != nil {
		return codedError(err)
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	if run.From, err = k.storedSide(ctx, store, b.Name); err != nil {
		return codedError(err)
	}
	if run.To, err = k.listLiveSide(ctx, b, run); err != nil {
		return errors.Join(err, run.From.Close())
	}
	return run.Run(ctx)
}

// codedError gives an error of a location or of what is in it the code that callers see.
func codedError(err error) error {
	code := errgrpc.ErrUnavailable
	switch {
	case apierrors.IsNotFound(err), errors.Is(err, context.Canceled):
		return err
	case errors.Is(err, objectstore.ErrNotFound):
		code = errgrpc.ErrNotFound
	case errors.Is(err, tarball.ErrCorrupt), errors.Is(err, tarball.ErrTooLarge):
		code = errgrpc.ErrCorrupt
	}
	return fmt.Errorf("%w: %w", code, err)
}

// storedSide is the backup. Without a manifest that fits its tarball is copied into the work dir, in pieces.
func (k *Kind) storedSide(ctx context.Context, store objectstore.Reader, backup string) (*difference.Side, error) {
	source, err := tarball.Open(ctx, store, backup, k.WorkDir, tarball.Limits{})
	if err != nil {
		return nil, err
	}
	return difference.NewSide(fmt.Sprintf("backup %q", backup), source), nil
}

// listLiveSide lists what the backup would hold now into a part.
func (k *Kind) listLiveSide(ctx context.Context, b *velerov1.Backup, run *ClusterDiff) (_ *difference.Side, err error) {
	dir, err := os.MkdirTemp(k.WorkDir, "diff-*")
	if err != nil {
		return nil, fmt.Errorf("prepare the work dir: %w", err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.RemoveAll(dir))
		}
	}()
	namespaces, err := k.selectedNamespaces(ctx, &b.Spec, run.Namespace)
	if err != nil {
		return nil, err
	}
	objects, err := part.NewWriter(part.Config{Dir: dir, Single: true})
	if err != nil {
		return nil, err
	}
	defer objects.Discard()
	cfg, end, err := k.dryRunConfig(ctx, b, namespaces, k.Log.With("diff", b.Name))
	if err != nil {
		return nil, err
	}
	defer end()
	cfg.Body, cfg.Progress = objects.Add, run.Progress
	found, err := dryrun.Run(ctx, *cfg)
	if err != nil {
		return nil, err
	}
	run.noteGaps(found, cfg.Catalog)
	sealed, err := objects.Seal()
	if err != nil {
		return nil, err
	}
	source, err := tarball.FromPart(ctx, dir, manifest.Header{Backup: b.Name}, sealed)
	if err != nil {
		return nil, err
	}
	return difference.NewSide("the cluster", source), nil
}

// noteGaps keeps what cannot be compared since it could not be read of the cluster.
func (run *ClusterDiff) noteGaps(found *dryrun.Result, catalog *resource.Catalog) {
	var texts []string
	for _, gap := range found.Gaps {
		if run.comparesAny(gap.Resource) {
			texts = append(texts, gap.Text)
		}
	}
	run.Messages(texts)
	isUnread := func(gr schema.GroupResource) bool {
		_, served := catalog.Lookup(gr)
		return found.Unlisted[gr] || !served && plan.Silent(catalog, gr.Group)
	}
	run.IsUnread = func(item *manifest.Item) bool { // definitions come with their objects
		gr := schema.GroupResource{Group: item.Group, Resource: item.Resource}
		return isUnread(gr) || gr == plan.Definitions && isUnread(schema.ParseGroupResource(item.Name))
	}
}

// comparesAny reports that the kinds to compare include a resource, or one of a group.
func (run *ClusterDiff) comparesAny(gr schema.GroupResource) bool {
	return len(run.Kinds) == 0 || slices.ContainsFunc(run.Kinds, func(name string) bool {
		kinds, _ := manifest.FindKinds(run.From.Kinds(), name) // Run returns the error
		return slices.ContainsFunc(kinds, func(k manifest.KindInfo) bool {
			of := schema.ParseGroupResource(k.Resource)
			return of == gr || gr.Resource == "" && of.Group == gr.Group
		})
	})
}

// selectedNamespaces are those that a spec selects now, or one of them.
func (k *Kind) selectedNamespaces(ctx context.Context, spec *velerov1.BackupSpec, only string) ([]string, error) {
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(metav1.SchemeGroupVersion.WithKind("NamespaceList"))
	list.APIVersion = "v1"
	if err := k.Reader.List(ctx, list); err != nil {
		return nil, fmt.Errorf("list namespaces: %w", err)
	}
	live, excluded := make([]string, len(list.Items)), slices.Clone(spec.ExcludedNamespaces)
	for i := range list.Items {
		live[i] = list.Items[i].Name
		if list.Items[i].Labels[selection.LabelExclude] == "true" {
			excluded = append(excluded, live[i])
		}
	}
	selected := selection.ExpandNamespaces(spec.IncludedNamespaces, excluded, live)
	if only == "" {
		return selected, nil
	}
	if selection.MatchesAny(selected, only) {
		return []string{only}, nil
	}
	return []string{}, nil
}
