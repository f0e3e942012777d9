package queue

import (
	"context"
	"fmt"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-io/holdfast/pkg/apis/holdfast"
	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
)

// unfinishedIndex is the name of the cache's index of jobs that have not ended.
const unfinishedIndex = "unfinished"

// jobCache lists the jobs of a cache that have not ended. Their number decides what a list costs,
// not the number of all jobs. What it returns shares memory with the cache: fields may be set, and
// maps and slices may not be changed.
type jobCache struct{ client.Reader }

// NewJobCache adds an index to a cache and returns a reader of its unfinished Backups and Restores.
func NewJobCache(ctx context.Context, c cache.Cache) (client.Reader, error) {
	for _, kind := range []client.Object{&velerov1.Backup{}, &velerov1.Restore{}} {
		err := c.IndexField(ctx, kind, unfinishedIndex, func(o client.Object) []string {
			if isEnded(o) {
				return nil
			}
			return []string{unfinishedIndex}
		})
		if err != nil {
			return nil, fmt.Errorf("index %T: %w", kind, err)
		}
	}
	return jobCache{c}, nil
}

// List implements client.Reader.
func (c jobCache) List(ctx context.Context, list client.ObjectList, options ...client.ListOption) error {
	options = append(options, client.MatchingFields{unfinishedIndex: unfinishedIndex}, client.UnsafeDisableDeepCopy)
	return c.Reader.List(ctx, list, options...)
}

func isEnded(o client.Object) bool {
	switch o := o.(type) {
	case *velerov1.Backup:
		return o.Status.Phase.Terminal()
	case *velerov1.Restore:
		return o.Status.Phase.Terminal()
	}
	return false
}

// StripEnded is a transform of the service's cache. Of jobs that have ended it keeps only what gauges
// and controllers read, since there may be thousands of them.
func StripEnded(object any) (any, error) {
	switch o := object.(type) {
	case *velerov1.Backup:
		if o.Status.Phase.Terminal() {
			stripped := &velerov1.Backup{ObjectMeta: stripMeta(&o.ObjectMeta)}
			stripped.Status.Phase, stripped.Status.CompletionTimestamp = o.Status.Phase, o.Status.CompletionTimestamp
			stripped.Status.Progress, stripped.Status.Errors = o.Status.Progress, o.Status.Errors
			return stripped, nil
		}
	case *velerov1.Restore:
		if o.Status.Phase.Terminal() {
			stripped := &velerov1.Restore{ObjectMeta: stripMeta(&o.ObjectMeta)}
			stripped.Status.Phase = o.Status.Phase
			return stripped, nil
		}
	}
	if o, err := apimeta.Accessor(object); err == nil {
		o.SetManagedFields(nil)
	}
	return object, nil
}

func stripMeta(o *metav1.ObjectMeta) metav1.ObjectMeta {
	kept := metav1.ObjectMeta{
		Namespace: o.Namespace, Name: o.Name, UID: o.UID, ResourceVersion: o.ResourceVersion,
		CreationTimestamp: o.CreationTimestamp, DeletionTimestamp: o.DeletionTimestamp,
	}
	if name, ok := o.Labels[velerov1.LabelScheduleName]; ok {
		kept.Labels = map[string]string{velerov1.LabelScheduleName: name}
	}
	for _, key := range []string{holdfast.AnnotationTarballBytes, holdfast.AnnotationCancel} {
		if value, ok := o.Annotations[key]; ok {
			metav1.SetMetaDataAnnotation(&kept, key, value)
		}
	}
	return kept
}
