package fault

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-io/holdfast/e2e/harness/seed"
	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/job/ledger"
)

// begin is a step of a scenario under a name.
type begin = func(ctx context.Context, b *Bed, name string) error

// observe waits for the end of a scenario and returns what can be seen of it.
type observe = func(ctx context.Context, b *Bed, name string) (Facts, error)

// Scenario is something a user does, with what can be observed when it is over.
type Scenario struct {
	prepare begin // before points are armed
	begin   begin
	observe observe
	tidy    begin // frees what would slow down the rest
}

// Scenarios are all there are, by name.
var Scenarios = map[string]*Scenario{
	"cancel":         {prepare: becomeHolder, begin: beginCancel, observe: observeCancel, tidy: leaveClaim},
	"cancel-waiting": {prepare: doNothing, begin: beginCancelWaiting, observe: observeCancelWaiting, tidy: doNothing},
	"overlap":        {prepare: doNothing, begin: beginOverlap, observe: observeOverlap, tidy: doNothing},

	"backup":    {prepare: doNothing, begin: beginBackup, observe: observeBackup, tidy: doNothing},
	"snapshots": {prepare: prepareSnapshots, begin: beginSnapshots, observe: observeMore(observeBackup, addCalls), tidy: removeSnapshotLocation},
	// A backup item action of version 2 is called; it begins an operation where the object asks for one.
	"backup-calls": {prepare: doNothing, begin: backupOf(actions), observe: observeMore(observeBackup, addCalls), tidy: doNothing},
	"operations":   {prepare: doNothing, begin: backupOf(long), observe: observeMore(observeBackup, addCalls, addOperations), tidy: doNothing},
	"hooks": {prepare: prepareHooked, begin: backupOf(hooked, func(s *velerov1.BackupSpec) { s.IncludedResources = []string{"pods"} }),
		observe: observeMore(observeBackup, addHooks), tidy: doNothing},
	"later-backup-runner": {prepare: doNothing, begin: backupOf(small), observe: observeBackup, tidy: doNothing},

	// What an action is called for is left out: where a death falls between the announcement and the answer of such a
	// call, its object is an error, which restore-calls shows.
	"restore": {prepare: doNothing, begin: restoreOf(estate[0], func(s *velerov1.RestoreSpec) { s.ExcludedResources = []string{acted} }),
		observe: observeRestore, tidy: removeNamespace},
	"restore-calls":        {prepare: doNothing, begin: restoreOf(actions), observe: observeMore(observeRestore, addCalls), tidy: removeNamespace},
	"restore-operations":   {prepare: doNothing, begin: restoreOf(long), observe: observeMore(observeRestore, addCalls, addRestoreOperations), tidy: removeNamespace},
	"restore-hooks":        {prepare: prepareHooked, begin: beginHookedRestore, observe: observeMore(observeRestore, addRestoreHooks), tidy: removeHookedRestore},
	"definitions":          {prepare: dropKind, begin: restoreOf(kinds, withCluster), observe: observeRestore, tidy: removeNamespace},
	"later-restore-runner": {prepare: doNothing, begin: restoreOf(kinds, withCluster), observe: observeRestore, tidy: removeNamespace},
	"owners":               {prepare: doNothing, begin: restoreOf(small), observe: observeRestore, tidy: removeNamespace},
	"owners-live":          {prepare: makeNamespace, begin: restoreOf(small), observe: observeRestore, tidy: removeNamespace},
	"refused":              {prepare: prepareRefused, begin: restoreOf(small), observe: observeRestore, tidy: tidyRefused},
	"update": {prepare: prepareUpdate, begin: restoreOf(small, func(s *velerov1.RestoreSpec) { s.ExistingResourcePolicy = velerov1.PolicyTypeUpdate }),
		observe: observeRestore, tidy: removeNamespace},
	"grant": {prepare: prepareGrant, begin: restoreOf(small), observe: observeRestore, tidy: removeNamespace},
	"update-refused": {prepare: prepareRefusedUpdate, begin: restoreOf(small, func(s *velerov1.RestoreSpec) { s.ExistingResourcePolicy = velerov1.PolicyTypeUpdate }),
		observe: observeRestore, tidy: removeNamespace},
	"account":    {prepare: prepareAccount, begin: restoreOf(small), observe: observeRestore, tidy: removeNamespace},
	"freed":      {prepare: prepareFreed, begin: restoreBound(freed), observe: observeBound(freed), tidy: doNothing},
	"given-back": {prepare: prepareLost, begin: restoreBound(givenBack), observe: observeBound(givenBack), tidy: doNothing},
	"webhook":    {prepare: prepareWebhook, begin: beginWebhook, observe: observeRestore, tidy: tidyWebhook},
	"paused":     {prepare: doNothing, begin: restoreOf(paused), observe: observeRestore, tidy: removeNamespace},

	"deletion":         {prepare: prepareDeletion, begin: beginDeletion, observe: observeDeletion, tidy: removeNamespace},
	"deletion-kept":    {prepare: prepareKept, begin: beginDeletion, observe: observeKept, tidy: tidyKept},
	"deletion-actions": {prepare: endedBackup(actions), begin: beginDeletion, observe: observeMore(observeDeletion, addCleaned), tidy: doNothing},
	"expiry": {prepare: doNothing, begin: backupOf(small, func(s *velerov1.BackupSpec) { s.TTL.Duration = 2 * time.Second }),
		observe: observeGone, tidy: doNothing},
	"sweep": {prepare: doNothing, begin: plantLeftovers, observe: observeGone, tidy: doNothing},

	"sync":     {prepare: doNothing, begin: plantBackup, observe: observeSynced, tidy: unplantBackup},
	"orphan":   {prepare: prepareOrphan, begin: unplantBackup, observe: observeOrphan, tidy: doNothing},
	"download": {prepare: doNothing, begin: beginDownload, observe: observeDownload, tidy: doNothing},
	"status":   {prepare: doNothing, begin: beginStatus, observe: observeStatus, tidy: doNothing},
	"location": {prepare: doNothing, begin: beginLocation, observe: observeLocation, tidy: removeLocation},
	"default":  {prepare: doNothing, begin: beginDefault, observe: observeDefault, tidy: restoreDefault},
}

// estate are the namespaces of the sample estate.
var estate = seed.Options{}.Namespaces()

func doNothing(context.Context, *Bed, string) error { return nil }

func makeNamespace(ctx context.Context, b *Bed, name string) error {
	return b.apiClient.createObject(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}})
}

// backupOf backs up a namespace.
func backupOf(namespace string, change ...func(*velerov1.BackupSpec)) begin {
	return func(ctx context.Context, b *Bed, name string) error {
		backup := &velerov1.Backup{ObjectMeta: namedMeta(name), Spec: velerov1.BackupSpec{IncludedNamespaces: []string{namespace}}}
		for _, f := range change {
			f(&backup.Spec)
		}
		return b.apiClient.createObject(ctx, backup)
	}
}

// endedBackup makes a backup of a namespace, which is to complete.
func endedBackup(namespace string) begin {
	return func(ctx context.Context, b *Bed, name string) error {
		if err := backupOf(namespace)(ctx, b, name); err != nil {
			return err
		}
		backup, err := b.apiClient.awaitEnded(ctx, name)
		if err == nil && backup.Status.Phase != velerov1.BackupPhaseCompleted {
			err = fmt.Errorf("backup %s is %s", name, backup.Status.Phase)
		}
		return err
	}
}

// restoreOf restores a namespace of the prepared backup to one of the restore's name.
func restoreOf(namespace string, change ...func(*velerov1.RestoreSpec)) begin {
	return func(ctx context.Context, b *Bed, name string) error {
		restore := &velerov1.Restore{ObjectMeta: namedMeta(name), Spec: velerov1.RestoreSpec{
			BackupName: prepared, IncludedNamespaces: []string{namespace}, NamespaceMapping: map[string]string{namespace: name},
		}}
		for _, f := range change {
			f(&restore.Spec)
		}
		return b.apiClient.createObject(ctx, restore)
	}
}

func withCluster(s *velerov1.RestoreSpec) { s.IncludeClusterResources = new(true) }

// observeMore adds to what can be seen.
func observeMore(first observe, more ...func(ctx context.Context, b *Bed, name string, f Facts) error) observe {
	return func(ctx context.Context, b *Bed, name string) (Facts, error) {
		f, err := first(ctx, b, name)
		if err != nil {
			return nil, err
		}
		for _, add := range more {
			err = errors.Join(err, add(ctx, b, name, f))
		}
		return f, err
	}
}

// restless are kinds that controllers write to whenever they like: two backups differ in them
// without a fault.
var restless = []string{"resourcequotas", "horizontalpodautoscalers.autoscaling", "events", "events.events.k8s.io"}

// beginBackup backs up a namespace of the estate.
var beginBackup = backupOf(estate[1], func(s *velerov1.BackupSpec) { s.ExcludedResources = restless })

// followers wait for the first backup of the scenario: they all have the same namespace.
var followers = []string{"-second", "-third"}

func beginOverlap(ctx context.Context, b *Bed, name string) error {
	errs := []error{beginBackup(ctx, b, name)}
	for _, follower := range followers {
		errs = append(errs, beginBackup(ctx, b, name+follower))
	}
	return errors.Join(errs...)
}

func observeOverlap(ctx context.Context, b *Bed, name string) (Facts, error) {
	f, err := observeBackup(ctx, b, name)
	if err != nil {
		return nil, err
	}
	for _, follower := range followers {
		more, err := observeBackup(ctx, b, name+follower)
		if err != nil {
			return nil, err
		}
		if err := f.Compare(more); err != nil {
			return nil, err
		}
	}
	return f, nil
}

func observeBackup(ctx context.Context, b *Bed, name string) (Facts, error) {
	backup, err := b.apiClient.awaitEnded(ctx, name)
	if err != nil {
		return nil, err
	}
	dir := filepath.Join("backups", name)
	f := Facts{
		"phase": string(backup.Status.Phase), "reason": backup.Status.FailureReason, "format": backup.Status.FormatVersion,
		"warnings": strconv.Itoa(backup.Status.Warnings), "errors": strconv.Itoa(backup.Status.Errors), "validation": fmt.Sprint(backup.Status.ValidationErrors),
	}
	if p := backup.Status.Progress; p != nil {
		f["progress"] = fmt.Sprintf("%d of %d", p.ItemsBackedUp, p.TotalItems)
	}
	if backup.Status.Phase == velerov1.BackupPhaseFailed {
		return f, nil
	}
	scrub := strings.NewReplacer(name, "NAME", string(backup.UID), "UID")
	if err := b.bucket.awaitSwept(ctx, f, dir, scrub); err != nil {
		return nil, err
	}
	if err := b.bucket.addContent(ctx, f, dir, name, scrub); err != nil {
		return nil, fmt.Errorf("%w: %s, %s: %w", ErrDiffers, f["phase"], f["reason"], err)
	}
	if err := b.bucket.checkCommitted(backup, dir); err != nil {
		return nil, err
	}
	return f, b.apiClient.awaitReleased(ctx, backup)
}

// checkCommitted checks that bucket and object agree on a finished backup.
func (d *bucketDir) checkCommitted(backup *velerov1.Backup, dir string) error {
	var committed velerov1.Backup
	data, err := os.ReadFile(filepath.Join(d.path, dir, "velero-backup.json"))
	if err != nil {
		return err
	}
	if err := json.Unmarshal(data, &committed); err != nil {
		return err
	}
	if committed.Status.Phase != backup.Status.Phase || !committed.Status.CompletionTimestamp.Equal(backup.Status.CompletionTimestamp) {
		return fmt.Errorf("%w: the bucket says %+v, the object %+v", ErrDiffers, committed.Status, backup.Status)
	}
	return nil
}

// addContent adds what the bucket holds of a finished backup.
func (d *bucketDir) addContent(ctx context.Context, f Facts, dir, name string, scrub *strings.Replacer) error {
	stored, err := storedObjects(filepath.Join(d.path, dir, name+".tar.gz"))
	if err != nil {
		return err
	}
	listed, err := listedObjects(ctx, filepath.Join(d.path, dir, "manifest.json.gz"))
	if err != nil {
		return err
	}
	for path, item := range listed {
		if !strings.Contains(item, stored[path]) || stored[path] == "" {
			return fmt.Errorf("%w: the manifest says of %s %s, the tarball holds %q", ErrDiffers, path, item, stored[path])
		}
	}
	f.addPrefixed("stored ", stored)
	f.addPrefixed("listed ", listed)
	texts, err := d.readTexts(dir, []string{
		name + "-results.gz", name + "-resource-list.json.gz", name + "-volumeinfo.json.gz", name + "-itemoperations.json.gz",
		name + "-volumesnapshots.json.gz", name + "-podvolumebackups.json.gz",
	}, scrub)
	f.addPrefixed("document ", texts)
	return err
}

// awaitSwept waits until a job's directory holds no parts and records, and adds what it holds.
func (d *bucketDir) awaitSwept(ctx context.Context, f Facts, dir string, scrub *strings.Replacer) error {
	keys := map[string]string{}
	err := pollUntil(ctx, patience, dir+" is swept", func() (_ bool, err error) {
		if keys, err = d.listKeys(dir); err != nil {
			return false, err
		}
		for key := range keys {
			if strings.HasPrefix(key, "parts/") || strings.HasPrefix(key, "records/") || strings.Contains(key, "tmp") {
				return false, nil
			}
		}
		return true, nil
	})
	if err != nil {
		return fmt.Errorf("%w: %v", err, keys)
	}
	for key := range keys {
		f["key "+scrub.Replace(key)] = "there"
	}
	return nil
}

// awaitReleased waits until the ledger has no entry of a job.
func (a *apiClient) awaitReleased(ctx context.Context, o client.Object) error {
	l := ledger.New(a.client, a.client, server)
	return pollUntil(ctx, patience, o.GetName()+" leaves the ledger", func() (bool, error) {
		_, found, err := l.Get(ctx, o.GetUID())
		if apierrors.IsNotFound(err) {
			return true, nil
		}
		return !found, err
	})
}
