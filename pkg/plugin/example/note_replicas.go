package main

import (
	"context"
	"fmt"
	"log/slog"
	"strconv"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/holdfast-io/holdfast/pkg/plugin"
)

// readyAnnotation is how many replicas were ready when the Deployment was backed up.
const readyAnnotation = "example.com/ready-replicas"

// noteReplicas stores how many replicas of a Deployment were ready: the status is not restored.
type noteReplicas struct {
	log *slog.Logger
}

func newNoteReplicas(env plugin.Env) (plugin.BackupItemAction, error) {
	return noteReplicas{log: env.Log}, nil
}

// AppliesTo leaves out Deployments that were never ready.
func (noteReplicas) AppliesTo(context.Context) (plugin.Selector, error) {
	return plugin.Selector{Expression: `has(item.status) && has(item.status.readyReplicas)`}, nil
}

// Execute adds the annotation to what is stored. The object in the cluster stays as it is.
func (a noteReplicas) Execute(_ context.Context, in *plugin.BackupInput) (*plugin.BackupOutput, error) {
	ready, _, err := unstructured.NestedInt64(in.Item.Object, "status", "readyReplicas")
	if err != nil {
		return nil, fmt.Errorf("status.readyReplicas: %w", err)
	}
	annotations := in.Item.GetAnnotations()
	if annotations == nil {
		annotations = map[string]string{}
	}
	annotations[readyAnnotation] = strconv.FormatInt(ready, 10)
	in.Item.SetAnnotations(annotations)
	a.log.Debug("Noted ready replicas", "deployment", in.Item.GetName(), "ready", ready)
	return plugin.NewBackupOutput(in.Item), nil
}
