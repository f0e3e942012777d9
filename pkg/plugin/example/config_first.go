package main

import (
	"context"

	"github.com/holdfast-io/holdfast/pkg/plugin"
)

// configAnnotation names the ConfigMap that a Deployment reads when it starts.
const configAnnotation = "example.com/config"

// configFirst restores the ConfigMap that a Deployment names before the Deployment, and removes
// what noteReplicas noted.
type configFirst struct {
	plugin.Everything
	// A ConfigMap is ready as soon as it exists. Write AreAdditionalItemsReady, and return
	// WithItemsWait, to wait for more.
	plugin.ItemsReady
}

func newConfigFirst(plugin.Env) (plugin.RestoreItemAction, error) { return configFirst{}, nil }

func (configFirst) Execute(_ context.Context, in *plugin.RestoreInput) (*plugin.RestoreOutput, error) {
	annotations := in.Item.GetAnnotations()
	config := annotations[configAnnotation]
	delete(annotations, readyAnnotation)
	in.Item.SetAnnotations(annotations)
	out := plugin.NewRestoreOutput(in.Item)
	if config != "" {
		out.WithAdditionalItems(plugin.ResourceIdentifier{
			Resource: "configmaps", Namespace: in.ItemFromBackup.GetNamespace(), Name: config,
		})
	}
	return out, nil
}
