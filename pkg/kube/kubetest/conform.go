package kubetest

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
)

// Site is an API server that Conform compares, the one of this package or a real one.
type Site struct {
	Config *rest.Config
	// Compact drops every revision up to now, as etcd does on its own.
	Compact func(ctx context.Context) error
	// Collect returns when garbage has been collected, or will be without help.
	Collect func()
}

// waitLimit bounds the wait for a garbage collector.
const waitLimit = 2 * time.Minute

// Conform checks that an API server does what our code counts on, in a namespace of its own. That
// both the server of this package and a real one pass is why tests against the former say
// something.
func Conform(t *testing.T, site Site) {
	c := &conformance{site: site, namespace: "kubetest-conformance"}
	config := rest.CopyConfig(site.Config)
	config.QPS = -1
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return impatient{next} })
	var err error
	c.client, err = dynamic.NewForConfig(config)
	require.NoError(t, err)
	namespaces := c.client.Resource(schema.GroupVersionResource{Version: "v1", Resource: "namespaces"})
	_, err = namespaces.Create(t.Context(), object("v1", "Namespace", "", c.namespace, nil), metav1.CreateOptions{})
	require.NoError(t, err)
	for name, check := range map[string]func(*testing.T){
		"creates":            c.creates,
		"updates":            c.updates,
		"patches":            c.patches,
		"preconditions":      c.preconditions,
		"finalizers":         c.finalizers,
		"revisions":          c.revisions,
		"pages":              c.pages,
		"compacted pages":    c.compactedPages,
		"garbage":            c.garbage,
		"what is not served": c.unserved,
	} {
		t.Run(name, check)
	}
}

// impatient hides from clients when they should retry: the first answer is what counts.
type impatient struct{ http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (i impatient) RoundTrip(r *http.Request) (*http.Response, error) {
	response, err := i.RoundTripper.RoundTrip(r)
	if err == nil {
		response.Header.Del("Retry-After")
	}
	return response, err
}

type conformance struct {
	site      Site
	client    *dynamic.DynamicClient
	namespace string
}

func (c *conformance) maps() dynamic.ResourceInterface {
	return c.client.Resource(schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}).Namespace(c.namespace)
}

func object(apiVersion, kind, namespace, name string, more map[string]any) *unstructured.Unstructured {
	out := &unstructured.Unstructured{Object: map[string]any{"apiVersion": apiVersion, "kind": kind}}
	for key, value := range more {
		out.Object[key] = value
	}
	out.SetNamespace(namespace)
	out.SetName(name)
	return out
}

func (c *conformance) configMap(name, value string) *unstructured.Unstructured {
	return object("v1", "ConfigMap", c.namespace, name, map[string]any{"data": map[string]any{"k": value}})
}

func (c *conformance) create(t *testing.T, name string, change ...func(*unstructured.Unstructured)) *unstructured.Unstructured {
	t.Helper()
	obj := c.configMap(name, "1")
	for _, f := range change {
		f(obj)
	}
	created, err := c.maps().Create(t.Context(), obj, metav1.CreateOptions{})
	require.NoError(t, err)
	return created
}

func revisionOf(t *testing.T, text string) int64 {
	t.Helper()
	revision, err := strconv.ParseInt(text, 10, 64)
	require.NoError(t, err)
	require.Positive(t, revision)
	return revision
}

func (c *conformance) creates(t *testing.T) {
	first := c.create(t, "create-a")
	require.NotEmpty(t, first.GetUID())
	made := first.GetCreationTimestamp()
	require.False(t, made.IsZero())
	second := c.create(t, "create-b")
	require.Greater(t, revisionOf(t, second.GetResourceVersion()), revisionOf(t, first.GetResourceVersion()), "one revision for all objects")
	require.NotEqual(t, first.GetUID(), second.GetUID())

	_, err := c.maps().Create(t.Context(), c.configMap("create-a", "2"), metav1.CreateOptions{})
	require.True(t, apierrors.IsAlreadyExists(err), "%v", err)
	revised := c.configMap("create-c", "1")
	revised.SetResourceVersion(first.GetResourceVersion())
	_, err = c.maps().Create(t.Context(), revised, metav1.CreateOptions{})
	require.Error(t, err, "a new object has no revision")
	elsewhere := c.client.Resource(schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}).Namespace("kubetest-nowhere")
	_, err = elsewhere.Create(t.Context(), object("v1", "ConfigMap", "kubetest-nowhere", "x", nil), metav1.CreateOptions{})
	require.True(t, apierrors.IsNotFound(err), "%v", err)

	require.NoError(t, c.maps().Delete(t.Context(), "create-a", metav1.DeleteOptions{}))
	_, err = c.maps().Get(t.Context(), "create-a", metav1.GetOptions{})
	require.True(t, apierrors.IsNotFound(err), "%v", err)
	again := c.create(t, "create-a")
	require.NotEqual(t, first.GetUID(), again.GetUID(), "an object of the same name is another object")
}

func (c *conformance) updates(t *testing.T) {
	created := c.create(t, "update")
	stale := created.DeepCopy()
	require.NoError(t, unstructured.SetNestedField(created.Object, "2", "data", "k"))
	updated, err := c.maps().Update(t.Context(), created, metav1.UpdateOptions{})
	require.NoError(t, err)
	require.Greater(t, revisionOf(t, updated.GetResourceVersion()), revisionOf(t, stale.GetResourceVersion()))
	require.Equal(t, stale.GetUID(), updated.GetUID())

	_, err = c.maps().Update(t.Context(), stale, metav1.UpdateOptions{})
	require.True(t, apierrors.IsConflict(err), "%v", err)
	another := updated.DeepCopy()
	another.SetUID("another")
	_, err = c.maps().Update(t.Context(), another, metav1.UpdateOptions{})
	require.True(t, apierrors.IsConflict(err), "%v", err)
	same, err := c.maps().Update(t.Context(), updated, metav1.UpdateOptions{})
	require.NoError(t, err)
	require.Equal(t, updated.GetResourceVersion(), same.GetResourceVersion(), "what does not change keeps its revision")
	stale.SetResourceVersion("")
	_, err = c.maps().Update(t.Context(), stale, metav1.UpdateOptions{})
	require.NoError(t, err, "without a revision any object is replaced")
	_, err = c.maps().Update(t.Context(), c.configMap("update-absent", "1"), metav1.UpdateOptions{})
	require.True(t, apierrors.IsNotFound(err), "%v", err)
}

func (c *conformance) patch(t *testing.T, name string, kind types.PatchType, body any) (*unstructured.Unstructured, error) {
	t.Helper()
	data, err := json.Marshal(body)
	require.NoError(t, err)
	return c.maps().Patch(t.Context(), name, kind, data, metav1.PatchOptions{FieldManager: "kubetest"})
}

func (c *conformance) patches(t *testing.T) {
	created := c.create(t, "patch")
	patched, err := c.patch(t, "patch", types.MergePatchType, map[string]any{"data": map[string]any{"k": nil, "l": "2"}})
	require.NoError(t, err)
	data, _, err := unstructured.NestedStringMap(patched.Object, "data")
	require.NoError(t, err)
	require.Equal(t, map[string]string{"l": "2"}, data)
	require.Greater(t, revisionOf(t, patched.GetResourceVersion()), revisionOf(t, created.GetResourceVersion()))
	require.Contains(t, fmt.Sprint(patched.GetManagedFields()), "kubetest")

	meta := func(field, value string) error {
		_, err := c.patch(t, "patch", types.MergePatchType, map[string]any{"metadata": map[string]any{field: value}, "data": map[string]any{"l": "3"}})
		return err
	}
	err = meta("resourceVersion", created.GetResourceVersion())
	require.True(t, apierrors.IsConflict(err), "%v", err)
	err = meta("uid", "another")
	require.True(t, apierrors.IsInvalid(err), "no conflict: %v", err)
	replace := map[string]any{"op": "replace", "path": "/data/l", "value": "3"}
	_, err = c.patch(t, "patch", types.JSONPatchType, []any{map[string]any{"op": "test", "path": "/data/l", "value": "9"}, replace})
	require.True(t, apierrors.IsInvalid(err), "%v", err)
	_, err = c.patch(t, "patch", types.JSONPatchType, []any{map[string]any{"op": "test", "path": "/data/l", "value": "2"}, replace})
	require.NoError(t, err)
	_, err = c.patch(t, "patch-absent", types.MergePatchType, map[string]any{})
	require.True(t, apierrors.IsNotFound(err), "%v", err)
}

func (c *conformance) preconditions(t *testing.T) {
	created := c.create(t, "precondition")
	uid, other, revision := created.GetUID(), types.UID("another"), "1"
	for _, p := range []metav1.Preconditions{{UID: &other}, {ResourceVersion: &revision}, {UID: &uid, ResourceVersion: &revision}} {
		err := c.maps().Delete(t.Context(), "precondition", metav1.DeleteOptions{Preconditions: &p})
		require.True(t, apierrors.IsConflict(err), "%v", err)
	}
	revision = created.GetResourceVersion()
	require.NoError(t, c.maps().Delete(t.Context(), "precondition", metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid, ResourceVersion: &revision}}))
	err := c.maps().Delete(t.Context(), "precondition", metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid}})
	require.True(t, apierrors.IsNotFound(err), "%v", err)
}

func (c *conformance) finalizers(t *testing.T) {
	c.create(t, "finalized", func(o *unstructured.Unstructured) { o.SetFinalizers([]string{"example.com/waits"}) })
	require.NoError(t, c.maps().Delete(t.Context(), "finalized", metav1.DeleteOptions{}))
	waiting, err := c.maps().Get(t.Context(), "finalized", metav1.GetOptions{})
	require.NoError(t, err)
	require.NotNil(t, waiting.GetDeletionTimestamp())
	require.NoError(t, c.maps().Delete(t.Context(), "finalized", metav1.DeleteOptions{}), "once more")
	waiting.SetFinalizers(nil)
	_, err = c.maps().Update(t.Context(), waiting, metav1.UpdateOptions{})
	require.NoError(t, err)
	_, err = c.maps().Get(t.Context(), "finalized", metav1.GetOptions{})
	require.True(t, apierrors.IsNotFound(err), "%v", err)
}

// values are the contents of a list of one page, by name.
func (c *conformance) values(t *testing.T, revision string) (map[string]string, string) {
	t.Helper()
	options := metav1.ListOptions{LabelSelector: "case=revisions"}
	if revision != "" {
		options.ResourceVersion, options.ResourceVersionMatch = revision, metav1.ResourceVersionMatchExact
	}
	list, err := c.maps().List(t.Context(), options)
	require.NoError(t, err)
	out := map[string]string{}
	for i := range list.Items {
		out[list.Items[i].GetName()], _, _ = unstructured.NestedString(list.Items[i].Object, "data", "k")
	}
	return out, list.GetResourceVersion()
}

func (c *conformance) revisions(t *testing.T) {
	labelled := func(o *unstructured.Unstructured) { o.SetLabels(map[string]string{"case": "revisions"}) }
	c.create(t, "revision-a", labelled)
	c.create(t, "revision-b", labelled)
	want, at := c.values(t, "")
	require.Equal(t, map[string]string{"revision-a": "1", "revision-b": "1"}, want)
	_, err := c.patch(t, "revision-a", types.MergePatchType, map[string]any{"data": map[string]any{"k": "2"}})
	require.NoError(t, err)
	require.NoError(t, c.maps().Delete(t.Context(), "revision-b", metav1.DeleteOptions{}))
	c.create(t, "revision-c", labelled)
	now, later := c.values(t, "")
	require.Equal(t, map[string]string{"revision-a": "2", "revision-c": "1"}, now)
	require.Greater(t, revisionOf(t, later), revisionOf(t, at))
	then, answered := c.values(t, at)
	require.Equal(t, want, then, "what there was at that revision")
	require.Equal(t, at, answered)

	future := fmt.Sprint(revisionOf(t, later) + 1_000_000)
	_, err = c.maps().List(t.Context(), metav1.ListOptions{ResourceVersion: future, ResourceVersionMatch: metav1.ResourceVersionMatchExact})
	require.True(t, apierrors.HasStatusCause(err, metav1.CauseTypeResourceVersionTooLarge), "%v", err)
	require.NoError(t, c.site.Compact(t.Context()))
	_, err = c.maps().List(t.Context(), metav1.ListOptions{ResourceVersion: at, ResourceVersionMatch: metav1.ResourceVersionMatchExact})
	require.True(t, apierrors.IsResourceExpired(err), "%v", err)
	require.Empty(t, continuation(err), "no page was given")
}

func continuation(err error) string {
	if status, ok := err.(apierrors.APIStatus); ok {
		return status.Status().Continue
	}
	return ""
}

// page reads one page of the objects of pages.
func (c *conformance) page(t *testing.T, next string) (names []string, list *unstructured.UnstructuredList, err error) {
	t.Helper()
	options := metav1.ListOptions{LabelSelector: "case=pages", Limit: 2, Continue: next}
	list, err = c.maps().List(t.Context(), options)
	if err != nil {
		return nil, nil, err
	}
	for i := range list.Items {
		names = append(names, strings.TrimPrefix(list.Items[i].GetName(), "page-"))
	}
	return names, list, nil
}

func (c *conformance) paged(t *testing.T) {
	t.Helper()
	for _, name := range []string{"page-c", "page-a", "page-e", "page-b", "page-d"} {
		if _, err := c.maps().Get(t.Context(), name, metav1.GetOptions{}); err != nil {
			c.create(t, name, func(o *unstructured.Unstructured) { o.SetLabels(map[string]string{"case": "pages"}) })
		}
	}
}

func (c *conformance) pages(t *testing.T) {
	c.paged(t)
	names, list, err := c.page(t, "")
	require.NoError(t, err)
	require.Equal(t, []string{"a", "b"}, names, "in order of names")
	at := list.GetResourceVersion()
	c.create(t, "page-bb", func(o *unstructured.Unstructured) { o.SetLabels(map[string]string{"case": "pages"}) })
	require.NoError(t, c.maps().Delete(t.Context(), "page-d", metav1.DeleteOptions{}))
	names, list, err = c.page(t, list.GetContinue())
	require.NoError(t, err)
	require.Equal(t, []string{"c", "d"}, names, "at the revision of the first page")
	require.Equal(t, at, list.GetResourceVersion())
	names, list, err = c.page(t, list.GetContinue())
	require.NoError(t, err)
	require.Equal(t, []string{"e"}, names)
	require.Empty(t, list.GetContinue())
	require.NoError(t, c.maps().Delete(t.Context(), "page-bb", metav1.DeleteOptions{}))
}

// A token of a revision that was compacted comes back as one that continues behind the last key, at
// a newer revision.
func (c *conformance) compactedPages(t *testing.T) {
	c.paged(t)
	_, list, err := c.page(t, "")
	require.NoError(t, err)
	before := revisionOf(t, list.GetResourceVersion())
	require.NoError(t, c.maps().Delete(t.Context(), "page-c", metav1.DeleteOptions{}))
	require.NoError(t, c.site.Compact(t.Context()))
	_, _, err = c.page(t, list.GetContinue())
	require.True(t, apierrors.IsResourceExpired(err), "%v", err)
	require.NotEmpty(t, continuation(err))
	names, list, err := c.page(t, continuation(err))
	require.NoError(t, err)
	require.Equal(t, []string{"d", "e"}, names)
	require.Greater(t, revisionOf(t, list.GetResourceVersion()), before)
}

func owned(by ...*unstructured.Unstructured) func(*unstructured.Unstructured) {
	return func(o *unstructured.Unstructured) {
		var owners []metav1.OwnerReference
		for _, b := range by {
			owners = append(owners, metav1.OwnerReference{APIVersion: "v1", Kind: "ConfigMap", Name: b.GetName(), UID: b.GetUID()})
		}
		o.SetOwnerReferences(owners)
	}
}

func (c *conformance) garbage(t *testing.T) {
	going, staying := c.create(t, "owner-going"), c.create(t, "owner-staying")
	former := staying.DeepCopy()
	former.SetUID("00000000-0000-4000-8000-000000000000")
	c.create(t, "owned-one", owned(going))
	c.create(t, "owned-two", owned(going, staying))
	c.create(t, "owned-former", owned(former))
	below, err := c.maps().Get(t.Context(), "owned-one", metav1.GetOptions{})
	require.NoError(t, err)
	c.create(t, "owned-below", owned(below))
	background := metav1.DeletePropagationBackground
	require.NoError(t, c.maps().Delete(t.Context(), "owner-going", metav1.DeleteOptions{PropagationPolicy: &background}))
	c.site.Collect()
	for _, name := range []string{"owned-one", "owned-below", "owned-former"} {
		require.Eventually(t, func() bool {
			_, err := c.maps().Get(t.Context(), name, metav1.GetOptions{})
			return apierrors.IsNotFound(err)
		}, waitLimit, 20*time.Millisecond, name)
	}
	_, err = c.maps().Get(t.Context(), "owned-two", metav1.GetOptions{})
	require.NoError(t, err, "one of its owners lives")
}

func (c *conformance) unserved(t *testing.T) {
	kind := schema.GroupVersionResource{Group: "kubetest.example.com", Version: "v1", Resource: "nothings"}
	_, err := c.client.Resource(kind).List(t.Context(), metav1.ListOptions{})
	require.True(t, apierrors.IsNotFound(err), "%v", err)
}
