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

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/job/ledger"
)

// Scenario is something a user does, with what can be observed when it is over.
type Scenario struct {
	prepare func(ctx context.Context, b *Bed, name string) error // before points are armed
	begin   func(ctx context.Context, b *Bed, name string) error
	observe func(ctx context.Context, b *Bed, name string) (Facts, error) // waits for the end
	tidy    func(ctx context.Context, b *Bed, name string) error          // frees what would slow down the rest
}

// Scenarios are all there are, by name.
var Scenarios = map[string]*Scenario{
	"cancel":               {prepare: becomeHolder, begin: beginCancel, observe: observeCancel, tidy: leaveClaim},
	"cancel-waiting":       {prepare: doNothing, begin: beginCancelWaiting, observe: observeCancelWaiting, tidy: doNothing},
	"owners":               {prepare: doNothing, begin: beginOwners, observe: observeRestore, tidy: removeNamespace},
	"update":               {prepare: prepareUpdate, begin: beginUpdate, observe: observeRestore, tidy: removeNamespace},
	"overlap":              {prepare: doNothing, begin: beginOverlap, observe: observeOverlap, tidy: doNothing},
	"backup":               {prepare: doNothing, begin: beginBackup, observe: observeBackup, tidy: doNothing},
	"restore":              {prepare: doNothing, begin: beginRestore, observe: observeRestore, tidy: removeNamespace},
	"definitions":          {prepare: dropKind, begin: beginDefinitions, observe: observeRestore, tidy: removeNamespace},
	"deletion":             {prepare: prepareDeletion, begin: beginDeletion, observe: observeDeletion, tidy: removeNamespace},
	"expiry":               {prepare: doNothing, begin: beginExpiry, observe: observeGone, tidy: doNothing},
	"later-backup-runner":  {prepare: doNothing, begin: beginSmallBackup, observe: observeBackup, tidy: doNothing},
	"later-restore-runner": {prepare: doNothing, begin: beginDefinitions, observe: observeRestore, tidy: removeNamespace},
	"sync":                 {prepare: doNothing, begin: plantBackup, observe: observeSynced, tidy: unplantBackup},
	"orphan":               {prepare: prepareOrphan, begin: unplantBackup, observe: observeOrphan, tidy: doNothing},
	"sweep":                {prepare: doNothing, begin: plantLeftovers, observe: observeGone, tidy: doNothing},
	"download":             {prepare: doNothing, begin: beginDownload, observe: observeDownload, tidy: doNothing},
	"status":               {prepare: doNothing, begin: beginStatus, observe: observeStatus, tidy: doNothing},
	"location":             {prepare: doNothing, begin: beginLocation, observe: observeLocation, tidy: removeLocation},
	"suspended":            {prepare: doNothing, begin: beginSuspended, observe: observeBackup, tidy: doNothing},
	"snapshots":            {prepare: prepareSnapshots, begin: beginSnapshots, observe: observeActedBackup, tidy: removeSnapshotLocation},
	"backup-calls":         {prepare: doNothing, begin: beginActedBackup, observe: observeActedBackup, tidy: doNothing},
	"hooks":                {prepare: prepareHooked, begin: beginHooked, observe: observeHooked, tidy: doNothing},
	"operations":           {prepare: doNothing, begin: beginLongBackup, observe: observeLongBackup, tidy: doNothing},
	"restore-calls":        {prepare: doNothing, begin: beginActedRestore, observe: observeActedRestore, tidy: removeNamespace},
	"restore-hooks":        {prepare: prepareHooked, begin: beginHookedRestore, observe: observeHookedRestore, tidy: removeHookedRestore},
	"restore-operations":   {prepare: doNothing, begin: beginLongRestore, observe: observeLongRestore, tidy: removeNamespace},
	"terminating":          {prepare: prepareTerminating, begin: beginTerminating, observe: observeRestore, tidy: removeNamespace},
	"webhook":              {prepare: prepareWebhook, begin: beginWebhook, observe: observeRestore, tidy: tidyWebhook},
	"aggregated":           {prepare: prepareAggregated, begin: beginAggregated, observe: observeRestore, tidy: tidyAggregated},
	"refused":              {prepare: prepareRefused, begin: beginOwners, observe: observeRestore, tidy: tidyRefused},
	"owners-live":          {prepare: makeNamespace, begin: beginOwners, observe: observeRestore, tidy: removeNamespace},
	"paused":               {prepare: doNothing, begin: beginPaused, observe: observeRestore, tidy: removeNamespace},
	"deletion-restored":    {prepare: prepareRestored, begin: beginRestored, observe: observeDeletion, tidy: leaveClaim},
	"deletion-kept":        {prepare: prepareKept, begin: beginDeletion, observe: observeKept, tidy: tidyKept},
	"deletion-actions":     {prepare: prepareCleaned, begin: beginDeletion, observe: observeCleaned, tidy: doNothing},
}

func doNothing(context.Context, *Bed, string) error { return nil }

func beginSmallBackup(ctx context.Context, b *Bed, name string) error {
	return b.apiClient.createObject(ctx, &velerov1.Backup{ObjectMeta: namedMeta(name), Spec: velerov1.BackupSpec{IncludedNamespaces: []string{small}}})
}

// restless are kinds that controllers write to whenever they like: two backups differ in them
// without a fault.
var restless = []string{"resourcequotas", "horizontalpodautoscalers.autoscaling", "events", "events.events.k8s.io"}

func beginBackup(ctx context.Context, b *Bed, name string) error {
	return b.apiClient.createObject(ctx, &velerov1.Backup{
		ObjectMeta: namedMeta(name), Spec: velerov1.BackupSpec{IncludedNamespaces: []string{b.estate.Namespaces()[1]}, ExcludedResources: restless},
	})
}

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
		return f, nil // its parts stay for the delete item action
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
