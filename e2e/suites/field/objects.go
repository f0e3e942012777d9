package field

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
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

func (r *reference) resourceClient() dynamic.ResourceInterface {
	if r.namespaced {
		return r.resource.Namespace(r.namespace)
	}
	return r.resource
}

// newMapper returns the kinds that the API server serves now.
func (b *bed) newMapper() (meta.RESTMapper, error) {
	groups, err := restmapper.GetAPIGroupResources(b.discovery)
	if err != nil {
		return nil, err
	}
	return restmapper.NewDiscoveryRESTMapper(groups), nil
}

func (b *bed) resolveMapping(mapping *meta.RESTMapping, namespace, name string) *reference {
	return &reference{resource: b.dynamic.Resource(mapping.Resource), namespaced: mapping.Scope.Name() == meta.RESTScopeNameNamespace,
		namespace: namespace, name: name, kind: mapping.GroupVersionKind}
}

// resolveText reads "resource[.group] [namespace/]name"; of a list the name may be a namespace, or nothing.
func (b *bed) resolveText(text string, list bool) (*reference, error) {
	resource, rest, _ := strings.Cut(text, " ")
	mapper, err := b.newMapper()
	if err != nil {
		return nil, err
	}
	gvr, err := mapper.ResourceFor(schema.ParseGroupResource(resource).WithVersion(""))
	if err != nil {
		return nil, err
	}
	kind, err := mapper.KindFor(gvr)
	if err != nil {
		return nil, err
	}
	mapping, err := mapper.RESTMapping(kind.GroupKind(), kind.Version)
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
	mapper, err := b.newMapper()
	if err != nil {
		return nil, err
	}
	kind := o.GroupVersionKind()
	mapping, err := mapper.RESTMapping(kind.GroupKind(), kind.Version)
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
		r.pauseBriefly()
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
		if o["kind"] == "Namespace" && o["apiVersion"] == "v1" {
			r.awaitNamespace((&unstructured.Unstructured{Object: o}).GetName())
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

// deleteObjects deletes objects and waits until they are gone. With force it removes their finalizers.
func (r *run) deleteObjects(texts []string, force bool) {
	for _, text := range texts {
		ref, err := r.resolveText(text, false)
		require.NoError(r.t, err, text)
		// No kubelet confirms the deletion of a Pod that has a node.
		now := metav1.DeleteOptions{PropagationPolicy: new(metav1.DeletePropagationBackground), GracePeriodSeconds: new(int64)}
		err = ref.resourceClient().Delete(r.t.Context(), ref.name, now)
		require.NoError(r.t, client.IgnoreNotFound(err), text)
		r.awaitCondition(text+" goes", func(ctx context.Context) error {
			_, err := ref.resourceClient().Get(ctx, ref.name, metav1.GetOptions{})
			if err == nil && force {
				_, err = ref.resourceClient().Patch(ctx, ref.name, types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{})
			}
			switch {
			case apierrors.IsNotFound(err):
				return nil
			case err != nil:
				return err
			}
			return fmt.Errorf("%s is still there", text)
		})
	}
}

func (r *run) runPods(texts []string) {
	for _, text := range texts {
		ref, err := r.resolveText(text, false)
		require.NoError(r.t, err, text)
		r.awaitCondition(text+" runs", func(ctx context.Context) error { return r.node.Adopt(ctx, ref.namespace, ref.name, true) })
	}
}
