package field

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/restmapper"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-io/holdfast/e2e/harness/site"
)

// settleTime bounds how long an object is refused while a definition or policy that the case just made gets into force.
const settleTime = 30 * time.Second

func mergePatch(text string) client.Patch { return client.RawPatch(types.MergePatchType, []byte(text)) }

// reference is an object, or the objects of a kind, as a case names them: "resource[.group] [namespace/]name".
type reference struct {
	resource        dynamic.NamespaceableResourceInterface
	namespaced      bool
	namespace, name string
	kind            schema.GroupVersionKind
}

var namespaces = schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}

func (r *reference) isNamespace() bool {
	return r.kind.GroupKind() == schema.GroupKind{Kind: "Namespace"}
}

func (r *reference) resourceClient() dynamic.ResourceInterface {
	if r.namespaced {
		return r.resource.Namespace(r.namespace)
	}
	return r.resource
}

// discoverKinds returns the kinds that the API server serves now.
func (b *bed) discoverKinds() (meta.RESTMapper, error) {
	groups, err := restmapper.GetAPIGroupResources(b.discovery)
	if err != nil {
		return nil, err
	}
	return restmapper.NewDiscoveryRESTMapper(groups), nil
}

// mapKind finds a kind among those that were there before the cases, which stay as they are, or else among those of now.
func (b *bed) mapKind(find func(meta.RESTMapper) (*meta.RESTMapping, error)) (*meta.RESTMapping, error) {
	if mapping, err := find(b.kinds); err == nil {
		return mapping, nil
	}
	now, err := b.discoverKinds()
	if err != nil {
		return nil, err
	}
	return find(now)
}

func (b *bed) resolveMapping(mapping *meta.RESTMapping, namespace, name string) *reference {
	return &reference{resource: b.dynamic.Resource(mapping.Resource), namespaced: mapping.Scope.Name() == meta.RESTScopeNameNamespace,
		namespace: namespace, name: name, kind: mapping.GroupVersionKind}
}

// resolveText reads "resource[.group] [namespace/]name"; of a list the name may be a namespace, or nothing.
func (b *bed) resolveText(text string, list bool) (*reference, error) {
	resource, rest, _ := strings.Cut(text, " ")
	mapping, err := b.mapKind(func(mapper meta.RESTMapper) (*meta.RESTMapping, error) {
		kind, err := mapper.KindFor(schema.ParseGroupResource(resource).WithVersion(""))
		if err != nil {
			return nil, err
		}
		return mapper.RESTMapping(kind.GroupKind(), kind.Version)
	})
	if err != nil {
		return nil, err
	}
	namespace, name, both := strings.Cut(rest, "/")
	if !both {
		namespace, name = "", rest
	}
	if list {
		namespace, name = rest, ""
	}
	return b.resolveMapping(mapping, namespace, name), nil
}

// resolveObject finds the resource of an object that a case holds.
func (b *bed) resolveObject(o *unstructured.Unstructured) (*reference, error) {
	kind := o.GroupVersionKind()
	mapping, err := b.mapKind(func(mapper meta.RESTMapper) (*meta.RESTMapping, error) {
		return mapper.RESTMapping(kind.GroupKind(), kind.Version)
	})
	if err != nil {
		return nil, err
	}
	return b.resolveMapping(mapping, o.GetNamespace(), o.GetName()), nil
}

// withObject calls fn with an object and its resource until it succeeds, for settleTime at most.
func (r *run) withObject(o object, fn func(ref *reference, u *unstructured.Unstructured) error) {
	r.t.Helper()
	u := &unstructured.Unstructured{Object: o}
	var err error
	deadline := time.Now().Add(settleTime)
	for {
		var ref *reference
		if ref, err = r.resolveObject(u); err == nil {
			err = fn(ref, u)
		}
		if err == nil || time.Now().After(deadline) || r.t.Context().Err() != nil {
			break
		}
		r.pauseFor(site.Look)
	}
	require.NoError(r.t, err, "%s %s/%s", u.GetKind(), u.GetNamespace(), u.GetName())
}

func (r *run) createObjects(objects []object) {
	for _, o := range objects {
		r.checkName(&unstructured.Unstructured{Object: o})
		r.withObject(o, func(ref *reference, u *unstructured.Unstructured) error {
			_, err := ref.resourceClient().Create(r.t.Context(), u, metav1.CreateOptions{})
			return err
		})
		u := &unstructured.Unstructured{Object: o}
		switch u.GroupVersionKind().GroupKind() {
		case schema.GroupKind{Kind: "Namespace"}:
			r.awaitNamespace(u.GetName())
		case schema.GroupKind{Group: "apps", Kind: "Deployment"}:
			r.awaitRevision(u)
		}
	}
}

// awaitNamespace waits for what controllers put into every namespace.
func (r *run) awaitNamespace(name string) {
	r.awaitCondition("what controllers put into namespace "+name, func(ctx context.Context) error {
		if err := r.Client.Get(ctx, client.ObjectKey{Namespace: name, Name: "default"}, &corev1.ServiceAccount{}); err != nil {
			return err
		}
		return r.Client.Get(ctx, client.ObjectKey{Namespace: name, Name: "kube-root-ca.crt"}, &corev1.ConfigMap{})
	})
}

// awaitRevision waits until the controller of Deployments has written its revision, without which a backup differs from what is restored from it.
func (r *run) awaitRevision(u *unstructured.Unstructured) {
	r.awaitCondition("the revision of Deployment "+u.GetName(), func(ctx context.Context) error {
		d := &appsv1.Deployment{}
		err := r.Client.Get(ctx, client.ObjectKeyFromObject(u), d)
		if err == nil && d.Status.ObservedGeneration < d.Generation {
			err = errors.New("its controller has not seen it")
		}
		return err
	})
}

// checkName keeps cases apart, which run on one cluster.
func (r *run) checkName(u *unstructured.Unstructured) {
	r.t.Helper()
	name := u.GetNamespace()
	if name == "" || name == site.Server {
		name = u.GetName() + u.GetGenerateName()
	}
	if u.GetKind() == "CustomResourceDefinition" || u.GetKind() == "APIService" || r.Exclusive {
		return
	}
	require.True(r.t, strings.HasPrefix(name, r.prefix), "%s %q is not called after its case, %q", u.GetKind(), name, r.prefix)
}

func (r *run) patchObjects(objects []object, subresource ...string) {
	for _, o := range objects {
		r.withObject(o, func(ref *reference, u *unstructured.Unstructured) error {
			body, err := u.MarshalJSON()
			if err != nil {
				return err
			}
			_, err = ref.resourceClient().Patch(r.t.Context(), u.GetName(), types.MergePatchType, body, metav1.PatchOptions{}, subresource...)
			return err
		})
	}
}

func (r *run) applyObjects(a *serverSideApply) {
	for _, o := range a.Objects {
		r.withObject(o, func(ref *reference, u *unstructured.Unstructured) error {
			_, err := ref.resourceClient().Apply(r.t.Context(), u.GetName(), u, metav1.ApplyOptions{FieldManager: a.Manager, Force: true})
			return err
		})
		if o["kind"] == "Namespace" && o["apiVersion"] == "v1" {
			r.awaitNamespace((&unstructured.Unstructured{Object: o}).GetName())
		}
	}
}
