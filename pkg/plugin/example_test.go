package plugin_test

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/holdfast-io/holdfast/pkg/plugin"
)

// quiesce marks Pods as they are backed up, and has their claims backed up before them.
type quiesce struct{ plugin.Everything }

func newQuiesce(plugin.Env) (plugin.BackupItemAction, error) { return quiesce{}, nil }

// Execute implements plugin.BackupItemAction.
func (quiesce) Execute(_ context.Context, in *plugin.BackupInput) (*plugin.BackupOutput, error) {
	in.Item.SetAnnotations(map[string]string{"example.com/backup": in.Backup.Name()})
	claim := plugin.ResourceIdentifier{Resource: "persistentvolumeclaims", Namespace: in.Item.GetNamespace(), Name: "data"}
	return plugin.NewBackupOutput(in.Item).WithAdditionalItems(claim), nil
}

// A registry names everything that a binary serves. Kinds and names are in order.
func ExampleRegistry() {
	registry := (&plugin.Registry{}).
		ObjectStore("example.com/tape", func(plugin.Env) (plugin.ObjectStore, error) { return nil, nil }).
		BackupItemAction("example.com/quiesce", []string{"pods"}, newQuiesce).
		BackupItemAction("example.com/label", []string{"deployments.apps", "pods"}, newQuiesce)
	registrations, err := registry.Plugins()
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, r := range registrations {
		fmt.Println(r.Kind, r.Name)
	}
	// Output:
	// BackupItemAction example.com/label
	// BackupItemAction example.com/quiesce
	// ObjectStore example.com/tape
}

func ExampleBackupItemAction() {
	backup, err := plugin.NewJob([]byte(`{"metadata": {"name": "nightly", "namespace": "velero"}}`))
	if err != nil {
		fmt.Println(err)
		return
	}
	pod := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Pod", "metadata": map[string]any{"namespace": "shop", "name": "db"}}}
	out, err := quiesce{}.Execute(context.Background(), &plugin.BackupInput{Item: pod, Backup: backup})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(out.Item.GetAnnotations())
	for _, item := range out.AdditionalItems {
		fmt.Println(item.Resource, item.Namespace, item.Name)
	}
	// Output:
	// map[example.com/backup:nightly]
	// persistentvolumeclaims shop data
}
