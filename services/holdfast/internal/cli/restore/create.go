package restore

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-io/holdfast/pkg/apis/holdfast"
	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/spec/restoreorder"
	"github.com/holdfast-io/holdfast/pkg/spec/selection"
	"github.com/holdfast-io/holdfast/services/holdfast/internal/cli/backup"
	"github.com/holdfast-io/holdfast/services/holdfast/internal/cli/command"
	"github.com/holdfast-io/holdfast/services/holdfast/internal/cli/job"
)

// CreateOptions are the flags of `restore create`.
type CreateOptions struct {
	job.Creation
	Spec                 velerov1.RestoreSpec
	AllowPartiallyFailed bool
	Now                  bool
	Order                string

	kind          *job.Kind[*velerov1.Restore]
	items         itemOptions
	plan          planOptions
	status        velerov1.RestoreStatusSpec
	policy        string
	modifier      string
	sparse        *bool
	parallelFiles int
}

// NewCreateCommand returns `restore create`.
func NewCreateCommand(g *command.Global, kind *job.Kind[*velerov1.Restore]) *cobra.Command {
	o := &CreateOptions{Creation: job.NewCreation(g, "restore"), kind: kind}
	cmd := newCreatingCommand(g, o, o, &cobra.Command{
		Use:   "create [NAME] --from-backup BACKUP",
		Short: "Restore from a backup",
		Example: `  holdfast restore create --from-backup first --wait
  holdfast restore create copy --from-backup first --include-namespaces web --namespace-mappings web:web-copy
  holdfast restore create --from-backup first --item deploy/web -n shop --with-dependencies --wait
  holdfast restore create --from-backup first --files data:etc/app.conf,data:uploads -n shop --wait
  holdfast restore create --from-plan 20260304-050607-q4ztk2 --wait`,
	})
	o.plan.bindFlags(cmd.Flags())
	return cmd
}

// newCreatingCommand makes cmd one with the flags of `restore create`, completed by shells. creator has the options o.
func newCreatingCommand(g *command.Global, creator job.Creator, o *CreateOptions, cmd *cobra.Command) *cobra.Command {
	cmd = job.Creating(cmd, creator)
	backups := &job.Kind[*velerov1.Backup]{NewList: func() client.ObjectList { return &velerov1.BackupList{} }}
	_ = cmd.RegisterFlagCompletionFunc("from-backup", backups.CompleteNames(g)) // the flag exists
	of := func() (string, string) { return o.Spec.BackupName, o.items.namespace }
	_ = cmd.RegisterFlagCompletionFunc("item", backup.CompleteItems(g, of))   // the flag exists
	_ = cmd.RegisterFlagCompletionFunc("files", backup.CompleteClaims(g, of)) // the flag exists
	return cmd
}

// BindFlags adds the command's flags, named as Velero's CLI names them.
func (o *CreateOptions) BindFlags(fs *pflag.FlagSet) {
	s := &o.Spec
	fs.StringVar(&s.BackupName, "from-backup", "", "backup to restore from")
	fs.StringVar(&s.ScheduleName, "from-schedule", "", "schedule whose newest completed backup to restore from")
	fs.BoolVar(&o.AllowPartiallyFailed, "allow-partially-failed", false, "with --from-schedule, accept a partially failed backup too")
	fs.StringSliceVar(&s.IncludedNamespaces, "include-namespaces", []string{selection.All}, "namespaces of the backup to restore")
	fs.StringSliceVar(&s.ExcludedNamespaces, "exclude-namespaces", nil, "namespaces to leave out")
	fs.StringSliceVar(&s.IncludedResources, "include-resources", nil, "resources to restore, as resource or resource.group")
	fs.StringSliceVar(&s.ExcludedResources, "exclude-resources", nil, "resources to leave out")
	command.MapVar(fs, &s.NamespaceMapping, "namespace-mappings", ":", "namespaces to restore under another name: from:to pairs")
	command.OptionalBoolVar(fs, &s.IncludeClusterResources, "include-cluster-resources", "restore cluster-scoped objects")
	command.SelectorVar(fs, &s.LabelSelector, "selector", "l", "restore only objects that match the `selector`")
	command.OrSelectorVar(fs, &s.OrLabelSelectors, "or-selector", "restore objects that match any of the `selectors`, joined by \" or \"")
	fs.StringVar(&o.policy, "existing-resource-policy", "", "what to do with objects that exist: none or update")
	command.OptionalBoolVar(fs, &s.RestorePVs, "restore-volumes", "restore volumes from snapshots")
	command.OptionalBoolVar(fs, &s.PreserveNodePorts, "preserve-nodeports", "keep the node ports of Services")
	fs.StringSliceVar(&o.status.IncludedResources, "status-include-resources", nil, "resources whose status to restore")
	fs.StringSliceVar(&o.status.ExcludedResources, "status-exclude-resources", nil, "resources whose status not to restore")
	fs.StringVar(&o.modifier, "resource-modifier-configmap", "", "ConfigMap with patches to apply")
	fs.DurationVar(&s.ItemOperationTimeout.Duration, "item-operation-timeout", 0, "how long to wait for asynchronous operations; 0 is the server's default")
	command.OptionalBoolVar(fs, &o.sparse, "write-sparse-files", "leave holes in files where their data is zero")
	fs.IntVar(&o.parallelFiles, "parallel-files-download", 0, "files of a volume written at a time")
	fs.BoolVar(&o.Now, "now", false, "do not wait for running backups of the same namespaces")
	fs.StringVar(&o.Order, "order", "", "what comes first: stages (the default: no controller acts before what it would make is there), owners, or velero for its list of priorities alone")
	o.items.bindFlags(fs)
	o.Creation.BindFlags(fs)
}

// Complete fills in what follows from the arguments and flags.
func (o *CreateOptions) Complete(args []string) error {
	source := o.Spec.BackupName
	if source == "" {
		source = o.Spec.ScheduleName
	}
	if len(args) > 0 {
		o.Name = args[0]
	} else if source != "" {
		o.Name = source + "-" + o.Global.Clock.Now().Format("20060102150405")
	}
	o.Spec.ExistingResourcePolicy = velerov1.PolicyType(o.policy)
	if len(o.status.IncludedResources) > 0 {
		o.Spec.RestoreStatus = &o.status
	}
	if o.modifier != "" {
		o.Spec.ResourceModifier = &corev1.TypedLocalObjectReference{Kind: "ConfigMap", Name: o.modifier}
	}
	if o.sparse != nil || o.parallelFiles > 0 {
		o.Spec.UploaderConfig = &velerov1.UploaderConfigForRestore{WriteSparseFiles: o.sparse, ParallelFilesDownload: o.parallelFiles}
	}
	if o.Now {
		o.addAnnotation(holdfast.AnnotationIgnoreRunning, "true")
	}
	if o.Order != "" {
		o.addAnnotation(holdfast.AnnotationOrder, o.Order)
	}
	if err := o.completeItems(); err != nil {
		return err
	}
	return o.Connect()
}

func (o *CreateOptions) addAnnotation(key, value string) {
	if o.Annotations == nil {
		o.Annotations = map[string]string{}
	}
	o.Annotations[key] = value
}

// Validate refuses what the server would refuse.
func (o *CreateOptions) Validate(ctx context.Context) error {
	if o.plan.from != "" {
		return o.adoptPlan(ctx)
	}
	s := &o.Spec
	var errs []error
	if o.plan.strict {
		errs = append(errs, errors.New("--strict needs --from-plan"))
	}
	if (s.BackupName == "") == (s.ScheduleName == "") {
		errs = append(errs, errors.New("give either --from-backup or --from-schedule"))
	}
	errs = append(errs, o.CheckName())
	switch s.ExistingResourcePolicy {
	case "", velerov1.PolicyTypeNone, velerov1.PolicyTypeUpdate:
	default:
		errs = append(errs, fmt.Errorf("--existing-resource-policy: %q is not none or update", s.ExistingResourcePolicy))
	}
	errs = append(errs, job.CheckSelectors(s.LabelSelector, s.OrLabelSelectors))
	if len(o.status.ExcludedResources) > 0 && len(o.status.IncludedResources) == 0 {
		errs = append(errs, errors.New("--status-exclude-resources needs --status-include-resources"))
	}
	if _, err := restoreorder.ParseOrder(o.Order); err != nil {
		errs = append(errs, fmt.Errorf("--order: %w", err))
	}
	if o.AllowPartiallyFailed && s.ScheduleName == "" {
		errs = append(errs, errors.New("--allow-partially-failed needs --from-schedule"))
	}
	errs = append(errs, o.CheckWait())
	for from, to := range s.NamespaceMapping {
		if problems := validation.IsDNS1123Label(to); len(problems) > 0 {
			errs = append(errs, fmt.Errorf("--namespace-mappings: %s:%s: %s", from, to, problems[0]))
		}
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	return o.checkSource(ctx)
}

func (o *CreateOptions) checkSource(ctx context.Context) error {
	if o.Spec.BackupName != "" {
		if err := o.Client.Get(ctx, types.NamespacedName{Namespace: o.Namespace, Name: o.Spec.BackupName}, &velerov1.Backup{}); err != nil {
			return fmt.Errorf("--from-backup: %w", err)
		}
		return nil
	}
	if o.AllowPartiallyFailed {
		return o.newestOfSchedule(ctx)
	}
	if err := o.Client.Get(ctx, types.NamespacedName{Namespace: o.Namespace, Name: o.Spec.ScheduleName}, &velerov1.Schedule{}); err != nil {
		return fmt.Errorf("--from-schedule: %w", err)
	}
	return nil
}

// newestOfSchedule turns the schedule into its newest usable backup: only the server's own choice
// insists on a completed one.
func (o *CreateOptions) newestOfSchedule(ctx context.Context) error {
	backups := &velerov1.BackupList{}
	labels := client.MatchingLabels{velerov1.LabelScheduleName: o.Spec.ScheduleName}
	if err := o.Client.List(ctx, backups, client.InNamespace(o.Namespace), labels); err != nil {
		return fmt.Errorf("list backups of schedule %q: %w", o.Spec.ScheduleName, err)
	}
	var newest *velerov1.Backup
	for i := range backups.Items {
		b := &backups.Items[i]
		usable := b.Status.Phase == velerov1.BackupPhaseCompleted || b.Status.Phase == velerov1.BackupPhasePartiallyFailed
		if usable && (newest == nil || newest.CreationTimestamp.Before(&b.CreationTimestamp)) {
			newest = b
		}
	}
	if newest == nil {
		return fmt.Errorf("--from-schedule: schedule %q has no completed or partially failed backup", o.Spec.ScheduleName)
	}
	o.Spec.BackupName, o.Spec.ScheduleName = newest.Name, ""
	return nil
}

// Run creates the restore, or prints it with -o, and waits for its end if asked.
func (o *CreateOptions) Run(ctx context.Context) error {
	return o.kind.Create(ctx, &o.Creation, &velerov1.Restore{
		TypeMeta:   metav1.TypeMeta{APIVersion: velerov1.GroupVersion.String(), Kind: "Restore"},
		ObjectMeta: o.Meta(),
		Spec:       o.Spec,
	})
}
