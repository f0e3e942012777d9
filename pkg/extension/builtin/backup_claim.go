package builtin

import (
	"context"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"

	"github.com/holdfast-io/holdfast/pkg/extension/action"
)

// labelSnapshotName is what Velero's restores of snapshots leave on a claim.
const labelSnapshotName = "velero.io/volume-snapshot-name"

// backupClaim backs up the volume of a bound PersistentVolumeClaim with it, and stores the claim
// without what is settled by the binding: where the data first came from, and which volume was
// looked for. A claim that is not bound still needs that.
type backupClaim struct{ named }

func (a backupClaim) Execute(_ context.Context, o *action.Object, b *action.Backup) (_ action.BackupResult, err error) {
	defer a.guardPanic(execute, &err)
	claim, err := o.Content()
	if err != nil {
		return action.BackupResult{}, err
	}
	volume, err := boundVolume(claim)
	if err != nil || volume == "" {
		return action.BackupResult{Object: o}, err
	}
	result := action.BackupResult{Object: o, Additional: []action.Item{{GroupResource: volumes, Name: volume}}}
	fields, stale, err := boundFields(claim, velerov1.LabelValue(b.Backup().Name))
	if err != nil || len(fields)+len(stale) == 0 {
		return result, err
	}
	changed, err := o.Copy()
	if err != nil {
		return action.BackupResult{}, err
	}
	if err := removeKeys(changed.Object, fields, "spec"); err != nil {
		return action.BackupResult{}, err
	}
	if err := removeKeys(changed.Object, stale, "metadata", "labels"); err != nil {
		return action.BackupResult{}, err
	}
	result.Object = action.FromContent(changed.Object)
	return result, nil
}

// boundVolume returns the volume of a claim, "" when it is not bound.
func boundVolume(claim object) (string, error) {
	phase, _, err := textAt(claim, "status", "phase")
	if err != nil || phase != "Bound" {
		return "", err
	}
	volume, _, err := textAt(claim, "spec", "volumeName")
	return volume, err
}

// boundFields returns the fields of a bound claim's spec and the labels that are not to be stored.
// The selector stays where the class is "": such a claim can only be bound to an existing volume,
// which the selector selects.
func boundFields(claim object, backup string) (fields, stale []string, err error) {
	spec, err := childObject(claim, "spec")
	if err != nil {
		return nil, nil, err
	}
	class, hasClass, err := textAt(spec, "storageClassName")
	if err != nil {
		return nil, nil, wrapFieldError("spec", err)
	}
	for _, field := range []string{"dataSource", "dataSourceRef", "selector"} {
		if _, ok := spec[field]; ok && (field != "selector" || !hasClass || class != "") {
			fields = append(fields, field)
		}
	}
	labels, err := childObject(claim, "metadata", "labels")
	if err != nil {
		return nil, nil, err
	}
	for _, label := range []string{velerov1.LabelRestoreName, labelSnapshotName, velerov1.LabelBackupName} {
		if v, ok := labels[label]; ok && (label != velerov1.LabelBackupName || v != backup) {
			stale = append(stale, label)
		}
	}
	return fields, stale, nil
}

// removeKeys takes keys out of the object at the path. An object that becomes empty goes as well.
func removeKeys(o object, keys []string, path ...string) error {
	at, err := childObject(o, path...)
	if err != nil || at == nil || len(keys) == 0 {
		return err
	}
	for _, key := range keys {
		delete(at, key)
	}
	if len(at) > 0 {
		return nil
	}
	parent, err := childObject(o, path[:len(path)-1]...)
	delete(parent, path[len(path)-1])
	return err
}
