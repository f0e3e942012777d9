// Command velerofw is a plugin of every kind and version, compiled with Velero's own published
// framework: what vendors ship. Tests run it unmodified in Holdfast. It uses the framework through
// its public interfaces only.
package main

import (
	"errors"
	"os"
	"time"

	"github.com/sirupsen/logrus"
	v1 "github.com/vmware-tanzu/velero/pkg/apis/velero/v1"
	"github.com/vmware-tanzu/velero/pkg/plugin/framework"
	"github.com/vmware-tanzu/velero/pkg/plugin/velero"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

func main() {
	framework.NewServer().
		RegisterBackupItemAction("velerofw.io/backup", withLog(func(l logrus.FieldLogger) any { return &backup1{log: l} })).
		RegisterBackupItemActionV2("velerofw.io/backup-v2", withLog(func(l logrus.FieldLogger) any { return &backup2{log: l} })).
		RegisterBackupItemAction("velerofw.io/both", withLog(func(l logrus.FieldLogger) any { return &backup1{log: l} })).
		RegisterBackupItemActionV2("velerofw.io/both", withLog(func(l logrus.FieldLogger) any { return &backup2{log: l} })).
		RegisterRestoreItemAction("velerofw.io/restore", withLog(func(l logrus.FieldLogger) any { return &restore1{log: l} })).
		RegisterRestoreItemActionV2("velerofw.io/restore-v2", withLog(func(l logrus.FieldLogger) any { return &restore2{log: l} })).
		RegisterDeleteItemAction("velerofw.io/delete", withLog(func(l logrus.FieldLogger) any { return &delete1{log: l} })).
		RegisterItemBlockAction("velerofw.io/block", withLog(func(l logrus.FieldLogger) any { return &block1{log: l} })).
		RegisterVolumeSnapshotter("velerofw.io/volumes", withLog(func(logrus.FieldLogger) any { return &volumes{} })).
		Serve()
}

func withLog(make func(logrus.FieldLogger) any) func(logrus.FieldLogger) (any, error) {
	return func(l logrus.FieldLogger) (any, error) { return make(l), nil }
}

// pods is what the actions apply to.
func pods() (velero.ResourceSelector, error) {
	return velero.ResourceSelector{IncludedResources: []string{"pods"}, LabelSelector: "velerofw"}, nil
}

// mark annotates the object.
func mark(item runtime.Unstructured, key, value string) runtime.Unstructured {
	u := &unstructured.Unstructured{Object: item.UnstructuredContent()}
	annotations := u.GetAnnotations()
	if annotations == nil {
		annotations = map[string]string{}
	}
	annotations["velerofw.io/"+key] = value
	u.SetAnnotations(annotations)
	return u
}

func name(item runtime.Unstructured) string {
	return (&unstructured.Unstructured{Object: item.UnstructuredContent()}).GetName()
}

func secret() []velero.ResourceIdentifier {
	return []velero.ResourceIdentifier{{GroupResource: schema.GroupResource{Resource: "secrets"}, Namespace: "a", Name: "velerofw"}}
}

type backup1 struct{ log logrus.FieldLogger }

func (b *backup1) AppliesTo() (velero.ResourceSelector, error) { return pods() }

func (b *backup1) Execute(item runtime.Unstructured, backup *v1.Backup) (runtime.Unstructured, []velero.ResourceIdentifier, error) {
	b.log.WithField("pod", name(item)).Warn("backup v1 executed")
	switch name(item) {
	case "error":
		return nil, nil, errors.New("velerofw refuses")
	case "panic":
		panic("velerofw panics")
	case "exit":
		os.Exit(7)
	case "nil":
		return nil, nil, nil
	}
	return mark(item, "backup", backup.Name), secret(), nil
}

type backup2 struct{ log logrus.FieldLogger }

func (b *backup2) Name() string                                { return "velerofw.io/backup-v2" }
func (b *backup2) AppliesTo() (velero.ResourceSelector, error) { return pods() }

func (b *backup2) Execute(item runtime.Unstructured, backup *v1.Backup) (runtime.Unstructured, []velero.ResourceIdentifier, string, []velero.ResourceIdentifier, error) {
	operation := ""
	switch name(item) {
	case "operation":
		operation = "op-" + backup.Name
	case "operation-fails":
		operation = "broken-" + backup.Name
	}
	return mark(item, "backup-v2", backup.Name), nil, operation, secret(), nil
}

func (b *backup2) Progress(operationID string, backup *v1.Backup) (velero.OperationProgress, error) {
	if operationID == "broken-"+backup.Name {
		return velero.OperationProgress{Completed: true, Err: "velerofw breaks"}, nil
	}
	return velero.OperationProgress{Completed: true, NCompleted: 3, NTotal: 3, OperationUnits: "Bytes", Description: operationID, Started: time.Unix(1, 0)}, nil
}

func (b *backup2) Cancel(operationID string, _ *v1.Backup) error {
	return errors.New("cannot cancel " + operationID)
}

type restore1 struct{ log logrus.FieldLogger }

func (r *restore1) AppliesTo() (velero.ResourceSelector, error) { return pods() }

func (r *restore1) Execute(in *velero.RestoreItemActionExecuteInput) (*velero.RestoreItemActionExecuteOutput, error) {
	if name(in.Item) == "skip" {
		return velero.NewRestoreItemActionExecuteOutput(in.Item).WithoutRestore(), nil
	}
	out := velero.NewRestoreItemActionExecuteOutput(mark(in.Item, "restore", in.Restore.Name+" of "+name(in.ItemFromBackup)))
	out.AdditionalItems = secret()
	return out, nil
}

type restore2 struct{ log logrus.FieldLogger }

func (r *restore2) Name() string                                { return "velerofw.io/restore-v2" }
func (r *restore2) AppliesTo() (velero.ResourceSelector, error) { return pods() }

func (r *restore2) Execute(in *velero.RestoreItemActionExecuteInput) (*velero.RestoreItemActionExecuteOutput, error) {
	out := velero.NewRestoreItemActionExecuteOutput(mark(in.Item, "restore-v2", in.Restore.Name))
	out.AdditionalItems = secret()
	out.WaitForAdditionalItems = true
	out.AdditionalItemsReadyTimeout = 90 * time.Second
	switch name(in.Item) {
	case "operation":
		out.OperationID = "op-" + in.Restore.Name
	case "operation-fails":
		out.OperationID = "broken-" + in.Restore.Name
	}
	return out, nil
}

func (r *restore2) Progress(operationID string, restore *v1.Restore) (velero.OperationProgress, error) {
	if operationID != "op-"+restore.Name {
		return velero.OperationProgress{Completed: true, Err: "velerofw breaks", Description: operationID}, nil
	}
	return velero.OperationProgress{Completed: true, NCompleted: 3, NTotal: 3, OperationUnits: "Bytes", Description: operationID, Started: time.Unix(1, 0)}, nil
}

func (r *restore2) Cancel(string, *v1.Restore) error { return nil }

func (r *restore2) AreAdditionalItemsReady(items []velero.ResourceIdentifier, _ *v1.Restore) (bool, error) {
	return len(items) == 1 && items[0].Name == "velerofw", nil
}

type delete1 struct{ log logrus.FieldLogger }

func (d *delete1) AppliesTo() (velero.ResourceSelector, error) { return pods() }

func (d *delete1) Execute(in *velero.DeleteItemActionExecuteInput) error {
	if n := name(in.Item); n == "error" || n == "kept" {
		return errors.New("velerofw cannot delete what " + in.Backup.Name + " holds")
	}
	return nil
}

type block1 struct{ log logrus.FieldLogger }

func (b *block1) Name() string                                { return "velerofw.io/block" }
func (b *block1) AppliesTo() (velero.ResourceSelector, error) { return pods() }

func (b *block1) GetRelatedItems(runtime.Unstructured, *v1.Backup) ([]velero.ResourceIdentifier, error) {
	return secret(), nil
}

// store keeps a bucket in the directory that its configuration names.
