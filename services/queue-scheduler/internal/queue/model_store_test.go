package queue_test

import (
	"context"
	"errors"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
)

// store is an API server small enough for tens of thousands of histories: resource versions,
// conflicts, and nothing else. A patch is taken as its result: every writer here guards it with the
// version it read.
type store struct {
	client.Client // what is not used panics
	objects       []client.Object
	version       int
}

var resource = schema.GroupResource{Resource: "any"}

func (s *store) findIndex(obj client.Object) int {
	return slices.IndexFunc(s.objects, func(o client.Object) bool {
		return o.GetName() == obj.GetName() && sameKind(o, obj)
	})
}

func sameKind(a, b client.Object) bool {
	switch a.(type) {
	case *velerov1.Backup:
		_, ok := b.(*velerov1.Backup)
		return ok
	case *velerov1.Restore:
		_, ok := b.(*velerov1.Restore)
		return ok
	default:
		_, ok := b.(*corev1.ConfigMap)
		return ok
	}
}

func (s *store) Get(_ context.Context, key client.ObjectKey, obj client.Object, _ ...client.GetOption) error {
	obj.SetName(key.Name)
	i := s.findIndex(obj)
	if i < 0 {
		return apierrors.NewNotFound(resource, key.Name)
	}
	switch into := obj.(type) {
	case *velerov1.Backup:
		s.objects[i].(*velerov1.Backup).DeepCopyInto(into) //nolint:forcetypeassert // found by kind
	case *velerov1.Restore:
		s.objects[i].(*velerov1.Restore).DeepCopyInto(into) //nolint:forcetypeassert // found by kind
	case *corev1.ConfigMap:
		s.objects[i].(*corev1.ConfigMap).DeepCopyInto(into) //nolint:forcetypeassert // found by kind
	}
	return nil
}

func (s *store) List(_ context.Context, list client.ObjectList, _ ...client.ListOption) error {
	for _, o := range s.objects {
		switch into := list.(type) {
		case *velerov1.BackupList:
			if b, ok := o.(*velerov1.Backup); ok {
				into.Items = append(into.Items, *b.DeepCopy())
			}
		case *velerov1.RestoreList:
			if r, ok := o.(*velerov1.Restore); ok {
				into.Items = append(into.Items, *r.DeepCopy())
			}
		}
	}
	return nil
}

func (s *store) Create(_ context.Context, obj client.Object, _ ...client.CreateOption) error {
	if s.findIndex(obj) >= 0 {
		return apierrors.NewAlreadyExists(resource, obj.GetName())
	}
	s.objects = append(s.objects, nil)
	s.putObject(len(s.objects)-1, obj)
	return nil
}

func (s *store) putObject(i int, obj client.Object) {
	s.version++
	obj.SetResourceVersion(strconv.Itoa(s.version))
	if o, ok := obj.DeepCopyObject().(client.Object); ok {
		s.objects[i] = o
	}
}

func (s *store) Update(_ context.Context, obj client.Object, _ ...client.UpdateOption) error {
	i := s.findIndex(obj)
	if i < 0 {
		return apierrors.NewNotFound(resource, obj.GetName())
	}
	if s.objects[i].GetResourceVersion() != obj.GetResourceVersion() {
		return apierrors.NewConflict(resource, obj.GetName(), errors.New("changed"))
	}
	s.putObject(i, obj)
	return nil
}

func (s *store) Patch(ctx context.Context, obj client.Object, _ client.Patch, _ ...client.PatchOption) error {
	return s.Update(ctx, obj)
}

func (s *store) removeObject(obj client.Object) {
	if i := s.findIndex(obj); i >= 0 {
		s.objects = slices.Delete(s.objects, i, i+1)
	}
}
