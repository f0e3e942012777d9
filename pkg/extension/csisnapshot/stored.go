package csisnapshot

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	"k8s.io/utils/ptr"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/extension/action"
)

// OperationID is the identifier of the operation that waits until a snapshot is ready, as Velero
// 1.18 has it: namespace, name, and a time, which is the same when the call is repeated.
func OperationID(vs *snapshotv1.VolumeSnapshot) string {
	return fmt.Sprintf("%s/%s/%s", vs.Namespace, vs.Name, vs.CreationTimestamp.UTC().Format(time.RFC3339))
}

// snapshotAction stores content and class with a VolumeSnapshot of the backup, and begins the
// operation that ends once it is ready.
type snapshotAction struct {
	named
	*Snapshotter
}

var (
	_ action.BackupStarter    = (*snapshotAction)(nil)
	_ action.BackupOperations = (*snapshotAction)(nil)
)

// OperationKind implements action.BackupOperations.
func (*snapshotAction) OperationKind() string { return kind }

// Execute implements action.BackupItem.
func (a *snapshotAction) Execute(context.Context, *action.Object, *action.Backup) (action.BackupResult, error) {
	return action.BackupResult{}, fmt.Errorf("action %s: Execute: it takes a key", a.name)
}

// Start implements action.BackupStarter. It changes nothing in the cluster. A snapshot that is not
// this backup's is stored as it is.
func (a *snapshotAction) Start(_ context.Context, o *action.Object, _ *action.Backup, _ string) (r action.BackupResult, err error) {
	defer a.guardPanic(&err)
	raw, err := o.JSON()
	if err != nil {
		return r, err
	}
	vs := &snapshotv1.VolumeSnapshot{}
	if err := json.Unmarshal(raw, vs); err != nil {
		return r, fmt.Errorf("read the VolumeSnapshot: %w", err)
	}
	r.Object = o
	if vs.Labels[velerov1.LabelBackupUID] != string(a.Backup.UID) || vs.Annotations[AnnotationKey] == "" {
		return r, nil
	}
	bound := ""
	if vs.Status != nil {
		bound = ptr.Deref(vs.Status.BoundVolumeSnapshotContentName, "")
	}
	if bound == "" {
		return r, fmt.Errorf("VolumeSnapshot %s/%s is bound to no content", vs.Namespace, vs.Name)
	}
	content := action.Item{GroupResource: Contents, Name: bound}
	if class := ptr.Deref(vs.Spec.VolumeSnapshotClassName, ""); class != "" {
		r.Additional = append(r.Additional, action.Item{GroupResource: Classes, Name: class})
	}
	r.Additional = append(r.Additional, content)
	r.OperationID = OperationID(vs)
	r.PostOperation = []action.Item{{GroupResource: Snapshots, Namespace: vs.Namespace, Name: vs.Name}, content}
	r.Object, err = withIncludedItems(o)
	return r, err
}

// withIncludedItems annotates the object so that its additional items are stored regardless of the filters.
func withIncludedItems(o *action.Object) (*action.Object, error) {
	u, err := o.Copy()
	if err != nil {
		return nil, err
	}
	annotations := u.GetAnnotations()
	if annotations == nil {
		annotations = map[string]string{}
	}
	annotations[velerov1.AnnotationMustIncludeAdditional] = "true"
	u.SetAnnotations(annotations)
	return action.FromContent(u.Object), nil
}

// secretAction stores the Secret that annotations of an object name with it (Velero 1.18).
type secretAction struct {
	named
	secret, namespace string // annotations
}

// Execute implements action.BackupItem.
func (a secretAction) Execute(_ context.Context, o *action.Object, _ *action.Backup) (r action.BackupResult, err error) {
	defer a.guardPanic(&err)
	u, err := o.Copy()
	if err != nil {
		return r, err
	}
	all := u.GetAnnotations()
	if all[a.secret] == "" || all[a.namespace] == "" {
		return action.BackupResult{Object: o}, nil
	}
	r.Additional = []action.Item{{GroupResource: secrets, Namespace: all[a.namespace], Name: all[a.secret]}}
	r.Object, err = withIncludedItems(o)
	return r, err
}
