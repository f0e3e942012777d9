package queue

import (
	"context"
	"fmt"
	"reflect"
	"sync"

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
// maps and slices may not be changed. Safe for concurrent use.
type jobCache struct {
	cache cache.Cache

	mu      sync.Mutex
	indexed map[reflect.Type]bool
}

// NewJobCache returns a reader of the unfinished Backups and Restores of a cache. It adds an index to
// the cache with the first list, since that asks the API server, which a service may start without.
func NewJobCache(c cache.Cache) client.Reader {
	return &jobCache{cache: c, indexed: map[reflect.Type]bool{}}
}

// Get implements client.Reader.
func (c *jobCache) Get(ctx context.Context, key client.ObjectKey, obj client.Object, options ...client.GetOption) error {
	return c.cache.Get(ctx, key, obj, options...)
}

// List implements client.Reader.
func (c *jobCache) List(ctx context.Context, list client.ObjectList, options ...client.ListOption) error {
	var kind client.Object = &velerov1.Backup{}
	if _, restores := list.(*velerov1.RestoreList); restores {
		kind = &velerov1.Restore{}
	}
	if err := c.addIndex(ctx, kind); err != nil {
		return err
	}
	options = append(options, client.MatchingFields{unfinishedIndex: unfinishedIndex}, client.UnsafeDisableDeepCopy)
	return c.cache.List(ctx, list, options...)
}

func (c *jobCache) addIndex(ctx context.Context, kind client.Object) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.indexed[reflect.TypeOf(kind)] {
		return nil
	}
	err := c.cache.IndexField(ctx, kind, unfinishedIndex, func(o client.Object) []string {
		if isEnded(o) {
			return nil
		}
		return []string{unfinishedIndex}
	})
	if err != nil {
		return fmt.Errorf("index %T: %w", kind, err)
	}
	c.indexed[reflect.TypeOf(kind)] = true
	return nil
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
