package validate

import (
	"context"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/version"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-io/holdfast/pkg/apis/holdfast"
	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/objectstore"
	"github.com/holdfast-io/holdfast/pkg/objectstore/location"
)

// Defaults fill fields a spec leaves out.
type Defaults struct {
	TTL                  time.Duration
	ItemOperationTimeout time.Duration
	CSISnapshotTimeout   time.Duration
	ResourceTimeout      time.Duration
	Location             string // used where no location is marked as the default
	// SnapshotMoveData moves the data of CSI snapshots.
	SnapshotMoveData bool
	// SnapshotLocations names the location to use of a provider that has several.
	SnapshotLocations map[string]string
	// VolumesToFsBackup is spec.defaultVolumesToFsBackup.
	VolumesToFsBackup bool
}

// Locations reads backup storage locations; location.Opener is one.
type Locations interface {
	// Get reads a location; an absent one satisfies apierrors.IsNotFound.
	Get(ctx context.Context, name string) (*velerov1.BackupStorageLocation, error)
	// Default reads the default location, or returns location.ErrNoDefault.
	Default(ctx context.Context) (*velerov1.BackupStorageLocation, error)
	// Open returns the store of a location, which the caller closes.
	Open(ctx context.Context, loc *velerov1.BackupStorageLocation) (objectstore.Store, error)
}

// Validator checks and completes objects. What it reads of the cluster is reused for a second, see
// Forget. Safe for concurrent use.
type Validator struct {
	Reader    client.Reader // uncached
	Namespace string
	Locations Locations
	Defaults  Defaults
	// CSI means that backups take CSI snapshots.
	CSI bool
	// Version returns the version of the API server.
	Version func(ctx context.Context) (*version.Info, error)
	Clock   clock.PassiveClock

	memory answerCache
}

// Backup completes a Backup in place, also when it has problems (Velero writes both back), and
// returns its problems. The error means that the cluster could not be asked: nothing is decided
// then.
func (v *Validator) Backup(ctx context.Context, b *velerov1.Backup) (Problems, error) {
	problems := BackupSpec(&b.Spec)
	problems.checkAnnotations(b.Annotations)
	if _, set := b.Annotations[holdfast.AnnotationIgnoreRunning]; set {
		problems.addProblem("metadata.annotations["+holdfast.AnnotationIgnoreRunning+"]", "only a restore can ignore running backups")
	}
	v.fillDefaults(b)
	if err := v.backupLocation(ctx, b, &problems); err != nil {
		return nil, err
	}
	if err := v.snapshotLocations(ctx, b, &problems); err != nil {
		return nil, err
	}
	if err := v.sourceCluster(ctx, b); err != nil {
		return nil, err
	}
	if err := v.excludedNamespaces(ctx, b, &problems); err != nil {
		return nil, err
	}
	excludeSnapshots(&b.Spec)
	if len(b.Spec.IncludedNamespaces) == 0 {
		b.Spec.IncludedNamespaces = []string{"*"}
	}
	return problems, nil
}

// backupLocation resolves where the backup goes; it must be writable and available.
func (v *Validator) backupLocation(ctx context.Context, b *velerov1.Backup, problems *Problems) error {
	name, err := v.locationName(ctx, b)
	if err != nil {
		return err
	}
	if name == "" {
		problems.addProblem("spec.storageLocation", "no BackupStorageLocation is the default: name one here, or set spec.default on one")
		return nil
	}
	b.Spec.StorageLocation = name
	metav1.SetMetaDataLabel(&b.ObjectMeta, velerov1.LabelStorageLocation, velerov1.LabelValue(name))
	loc, err := v.availableLocation(ctx, "spec.storageLocation", name, problems)
	if loc != nil && isPassingFailure(loc, b.Status.Phase) {
		(*problems)[len(*problems)-1].Passing = true
	}
	if loc != nil && loc.Spec.AccessMode == velerov1.LocationModeReadOnly {
		problems.addProblem("spec.storageLocation", "backup storage location %q is read-only", name)
	}
	return err
}

// locationName returns where the backup goes: the default location where the spec names none, else the one
// that the flag names; empty where that does not exist.
func (v *Validator) locationName(ctx context.Context, b *velerov1.Backup) (string, error) {
	if b.Spec.StorageLocation != "" {
		return b.Spec.StorageLocation, nil
	}
	loc, err := v.main(ctx)
	if errors.Is(err, location.ErrNoDefault) {
		_, err := v.readLocation(ctx, v.Defaults.Location)
		if apierrors.IsNotFound(err) {
			return "", nil
		}
		return v.Defaults.Location, err
	}
	if err != nil {
		return "", err
	}
	return loc.Name, nil
}

// isPassingFailure reports that a location is unavailable for now: it worked before, is to be validated yet,
// or the backup was queued while it worked. One that never worked is a mistake, which fails a new
// backup at once.
func isPassingFailure(loc *velerov1.BackupStorageLocation, phase velerov1.BackupPhase) bool {
	return loc.Status.Phase != velerov1.LocationPhaseAvailable &&
		(loc.Status.Phase != velerov1.LocationPhaseUnavailable || loc.Status.LastSyncedTime != nil || !phase.IsNew())
}

// Away is the reason why the location of a queued backup is unavailable; empty where it is
// available, or absent, which validation reports.
func (v *Validator) Away(ctx context.Context, b *velerov1.Backup) (string, error) {
	name, err := v.locationName(ctx, b)
	if err != nil || name == "" {
		return "", err
	}
	var problems Problems
	loc, err := v.availableLocation(ctx, "spec.storageLocation", name, &problems)
	if err != nil || loc == nil || len(problems) == 0 {
		return "", err
	}
	return problems[0].Message, nil
}

// availableLocation reads a location and notes when it is missing or not available; one that was never
// validated counts as unavailable.
func (v *Validator) availableLocation(ctx context.Context, field, name string, problems *Problems) (*velerov1.BackupStorageLocation, error) {
	loc, err := v.readLocation(ctx, name)
	if apierrors.IsNotFound(err) {
		problems.addProblem(field, "backup storage location %q not found", name)
		return nil, nil //nolint:nilnil // absent, and already noted as a problem
	}
	if err != nil {
		return nil, err
	}
	if loc.Status.Phase != velerov1.LocationPhaseAvailable {
		problems.addProblem(field, "backup storage location %q is unavailable: %s", name, defaultText(loc.Status.Message, "it has not been validated yet"))
	}
	return loc, nil
}

func defaultText(text, other string) string {
	if text == "" {
		return other
	}
	return text
}

// sourceCluster notes which cluster the backup is of.
func (v *Validator) sourceCluster(ctx context.Context, b *velerov1.Backup) error {
	info, err := v.Version(ctx)
	if err != nil {
		return fmt.Errorf("version of the API server: %w", err)
	}
	for key, value := range map[string]string{
		velerov1.AnnotationSourceClusterGitVersion:   info.GitVersion,
		velerov1.AnnotationSourceClusterMajorVersion: info.Major,
		velerov1.AnnotationSourceClusterMinorVersion: info.Minor,
		velerov1.AnnotationResourceTimeout:           v.Defaults.ResourceTimeout.String(),
	} {
		metav1.SetMetaDataAnnotation(&b.ObjectMeta, key, value)
	}
	return nil
}

// excludedNamespaces takes out namespaces labelled so. Including one of them by name is then a
// contradiction like any other.
func (v *Validator) excludedNamespaces(ctx context.Context, b *velerov1.Backup, problems *Problems) error {
	all, err := v.listNamespaces(ctx)
	if err != nil {
		return err
	}
	labelled := missingNames(b.Spec.ExcludedNamespaces, all.excluded)
	for _, name := range labelled {
		for _, included := range b.Spec.IncludedNamespaces {
			if included == name {
				problems.addProblem("", "Invalid included/excluded namespace lists: %q is included and labelled %s", name, velerov1.LabelExcludeFromBackup)
			}
		}
	}
	b.Spec.ExcludedNamespaces = append(b.Spec.ExcludedNamespaces, labelled...)
	return nil
}

// Namespaces returns the names of the live namespaces, as the server lists them, and those of them
// labelled as excluded from every backup.
func (v *Validator) Namespaces(ctx context.Context) (live, excluded []string, err error) {
	all, err := v.listNamespaces(ctx)
	return all.live, all.excluded, err
}
