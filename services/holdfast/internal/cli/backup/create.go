package backup

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/holdfast-io/holdfast/pkg/apis/holdfast"
	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/spec/selection"
	"github.com/holdfast-io/holdfast/services/holdfast/internal/cli/command"
	"github.com/holdfast-io/holdfast/services/holdfast/internal/cli/job"
)

// CreateOptions are the flags of `backup create`.
type CreateOptions struct {
	job.Creation
	FromSchedule string
	// FromPlan is the id of a plan to execute, Strict fails the backup where it differs.
	FromPlan string
	Strict   bool
	Spec     velerov1.BackupSpec

	kind             *job.Kind[*velerov1.Backup]
	resourcePolicies string
	parallelFiles    int
}

// NewCreateCommand returns `backup create`.
func NewCreateCommand(g *command.Global, kind *job.Kind[*velerov1.Backup]) *cobra.Command {
	return job.Creating(&cobra.Command{
		Use:   "create NAME",
		Short: "Create a backup",
		Example: `  holdfast backup create first --wait
  holdfast backup create web --include-namespaces web,web-db --ttl 48h
  holdfast backup create crds --include-cluster-scoped-resources customresourcedefinitions -o yaml
  holdfast backup create web-2 --from-plan 20260304-050607-abcdef --strict`,
	}, &CreateOptions{Creation: job.NewCreation(g, "backup"), kind: kind})
}

// BindFlags adds the command's flags.
func (o *CreateOptions) BindFlags(fs *pflag.FlagSet) {
	o.bindSpecFlags(fs)
	fs.StringVar(&o.FromPlan, "from-plan", "", "execute the plan with this `id`, which backup plan printed; take everything but the name from it")
	fs.BoolVar(&o.Strict, "strict", false, "fail the backup if what it holds differs from the plan of --from-plan")
	o.Creation.BindFlags(fs)
}

// bindSpecFlags adds the flags that describe a backup, named as Velero's CLI names them.
func (o *CreateOptions) bindSpecFlags(fs *pflag.FlagSet) {
	s := &o.Spec
	fs.StringSliceVar(&s.IncludedNamespaces, "include-namespaces", []string{selection.All}, "namespaces to back up, patterns allowed")
	fs.StringSliceVar(&s.ExcludedNamespaces, "exclude-namespaces", nil, "namespaces to leave out")
	fs.StringSliceVar(&s.IncludedResources, "include-resources", nil, "resources to back up, as resource or resource.group")
	fs.StringSliceVar(&s.ExcludedResources, "exclude-resources", nil, "resources to leave out")
	fs.StringSliceVar(&s.IncludedClusterScopedResources, "include-cluster-scoped-resources", nil, "cluster-scoped resources to back up")
	fs.StringSliceVar(&s.ExcludedClusterScopedResources, "exclude-cluster-scoped-resources", nil, "cluster-scoped resources to leave out")
	fs.StringSliceVar(&s.IncludedNamespaceScopedResources, "include-namespace-scoped-resources", nil, "namespaced resources to back up")
	fs.StringSliceVar(&s.ExcludedNamespaceScopedResources, "exclude-namespace-scoped-resources", nil, "namespaced resources to leave out")
	command.OptionalBoolVar(fs, &s.IncludeClusterResources, "include-cluster-resources", "back up cluster-scoped objects; unset takes those that are needed")
	command.SelectorVar(fs, &s.LabelSelector, "selector", "l", "back up only objects that match the `selector`")
	command.OrSelectorVar(fs, &s.OrLabelSelectors, "or-selector", "back up objects that match any of the `selectors`, joined by \" or \"")
	fs.DurationVar(&s.TTL.Duration, "ttl", 0, "how long to keep the backup; 0 is the server's default")
	fs.StringVar(&s.StorageLocation, "storage-location", "", "where to store the backup; the default location when empty")
	fs.StringSliceVar(&s.VolumeSnapshotLocations, "volume-snapshot-locations", nil, "where to keep volume snapshots")
	command.OptionalBoolVar(fs, &s.SnapshotVolumes, "snapshot-volumes", "take snapshots of volumes")
	command.OptionalBoolVar(fs, &s.SnapshotMoveData, "snapshot-move-data", "move snapshot data to the storage location")
	command.OptionalBoolVar(fs, &s.DefaultVolumesToFsBackup, "default-volumes-to-fs-backup", "take Pod volumes through the file system")
	fs.StringVar(&s.DataMover, "data-mover", "", "data mover to use")
	command.MapVar(fs, &s.OrderedResources, "ordered-resources", "=", "what to store first: resource=ns/a;ns/b pairs")
	fs.DurationVar(&s.CSISnapshotTimeout.Duration, "csi-snapshot-timeout", 0, "how long to wait for a CSI snapshot; 0 is the server's default")
	fs.DurationVar(&s.ItemOperationTimeout.Duration, "item-operation-timeout", 0, "how long to wait for asynchronous operations; 0 is the server's default")
	fs.StringVar(&s.VolumeGroupSnapshotLabelKey, "volume-group-snapshot-label-key", "", "label that groups volumes for snapshots")
	fs.StringVar(&o.resourcePolicies, "resource-policies-configmap", "", "ConfigMap with volume policies")
	fs.IntVar(&o.parallelFiles, "parallel-files-upload", 0, "files of a volume read at a time")
	fs.StringVar(&o.FromSchedule, "from-schedule", "", "take everything from a schedule's template")
}

// Complete fills in what follows from the arguments.
func (o *CreateOptions) Complete(args []string) error {
	if len(args) == 0 && o.FromSchedule == "" {
		return errors.New("give the name of the backup, or --from-schedule")
	}
	return errors.Join(o.completeSpec(args), o.completePlan())
}

// completePlan has the backup take its spec from a plan.
func (o *CreateOptions) completePlan() error {
	if o.FromPlan == "" {
		if o.Strict {
			return errors.New("--strict: give the plan with --from-plan")
		}
		return nil
	}
	given := o.Spec
	given.StorageLocation, given.IncludedNamespaces = "", nil
	if !equality.Semantic.DeepEqual(given, velerov1.BackupSpec{}) || !slices.Equal(o.Spec.IncludedNamespaces, []string{selection.All}) || o.FromSchedule != "" {
		return errors.New("--from-plan takes what is backed up from the plan: of the flags that say so only --storage-location may be given")
	}
	o.Spec = velerov1.BackupSpec{StorageLocation: o.Spec.StorageLocation}
	o.Annotations = mergeMaps(o.Annotations, map[string]string{holdfast.AnnotationPlan: o.FromPlan})
	if o.Strict {
		o.Annotations[holdfast.AnnotationPlanStrict] = "true"
	}
	return nil
}

// completeSpec fills in what follows from the flags that describe a backup, and connects.
func (o *CreateOptions) completeSpec(args []string) error {
	if len(args) > 0 {
		o.Name = args[0]
	}
	for resource, names := range o.Spec.OrderedResources {
		o.Spec.OrderedResources[resource] = strings.ReplaceAll(names, ";", ",")
	}
	if o.resourcePolicies != "" {
		o.Spec.ResourcePolicy = &corev1.TypedLocalObjectReference{Kind: "ConfigMap", Name: o.resourcePolicies}
	}
	if o.parallelFiles > 0 {
		o.Spec.UploaderConfig = &velerov1.UploaderConfigForBackup{ParallelFilesUpload: o.parallelFiles}
	}
	return o.Connect()
}

// Validate refuses what the server would refuse, where that is decided without the server's
// settings.
func (o *CreateOptions) Validate(ctx context.Context) error {
	s := &o.Spec
	errs := []error{o.CheckName()}
	if s.TTL.Duration < 0 {
		errs = append(errs, errors.New("--ttl: must not be negative"))
	}
	errs = append(errs, o.CheckWait())
	errs = append(errs, checkFilters(s)...)
	if err := errors.Join(errs...); err != nil {
		return err
	}
	return o.checkLocations(ctx)
}

func checkFilters(s *velerov1.BackupSpec) []error {
	var errs []error
	older := len(s.IncludedResources) > 0 || len(s.ExcludedResources) > 0 || s.IncludeClusterResources != nil
	newer := len(s.IncludedClusterScopedResources) > 0 || len(s.ExcludedClusterScopedResources) > 0 ||
		len(s.IncludedNamespaceScopedResources) > 0 || len(s.ExcludedNamespaceScopedResources) > 0
	if older && newer {
		errs = append(errs, errors.New("--include-resources, --exclude-resources and --include-cluster-resources cannot be combined with the filters by scope"))
	}
	errs = append(errs, job.CheckSelectors(s.LabelSelector, s.OrLabelSelectors))
	for _, err := range selection.ValidateNamespaces(s.IncludedNamespaces, s.ExcludedNamespaces) {
		errs = append(errs, fmt.Errorf("namespaces: %w", err))
	}
	return errs
}

func (o *CreateOptions) checkLocations(ctx context.Context) error {
	if name := o.Spec.StorageLocation; name != "" {
		if err := o.Client.Get(ctx, types.NamespacedName{Namespace: o.Namespace, Name: name}, &velerov1.BackupStorageLocation{}); err != nil {
			return fmt.Errorf("--storage-location: %w", err)
		}
	}
	for _, name := range o.Spec.VolumeSnapshotLocations {
		if err := o.Client.Get(ctx, types.NamespacedName{Namespace: o.Namespace, Name: name}, &velerov1.VolumeSnapshotLocation{}); err != nil {
			return fmt.Errorf("--volume-snapshot-locations: %w", err)
		}
	}
	return nil
}

// Build returns the backup the flags describe.
func (o *CreateOptions) Build(ctx context.Context) (*velerov1.Backup, error) {
	b := &velerov1.Backup{
		TypeMeta:   metav1.TypeMeta{APIVersion: velerov1.GroupVersion.String(), Kind: "Backup"},
		ObjectMeta: o.Meta(),
		Spec:       o.Spec,
	}
	if o.FromSchedule == "" {
		return b, nil
	}
	return b, o.fromSchedule(ctx, b)
}

// fromSchedule takes spec, labels and annotations from a schedule, as its own backups get them.
func (o *CreateOptions) fromSchedule(ctx context.Context, b *velerov1.Backup) error {
	schedule := &velerov1.Schedule{}
	if err := o.Client.Get(ctx, types.NamespacedName{Namespace: o.Namespace, Name: o.FromSchedule}, schedule); err != nil {
		return fmt.Errorf("--from-schedule: %w", err)
	}
	name := b.Name
	if name == "" {
		name = holdfast.ScheduledBackupName(schedule.Name, o.Global.Clock.Now())
	}
	*b = *holdfast.ScheduledBackup(schedule, name)
	b.Labels = mergeMaps(b.Labels, o.Labels, map[string]string{velerov1.LabelScheduleName: schedule.Name})
	b.Annotations = mergeMaps(b.Annotations, o.Annotations)
	return nil
}

func mergeMaps(all ...map[string]string) map[string]string {
	merged := map[string]string{}
	for _, m := range all {
		for k, v := range m {
			merged[k] = v
		}
	}
	return merged
}

// Run creates the backup, or prints it with -o, and waits for its end if asked.
func (o *CreateOptions) Run(ctx context.Context) error {
	b, err := o.Build(ctx)
	if err != nil {
		return err
	}
	return o.kind.Create(ctx, &o.Creation, b)
}
