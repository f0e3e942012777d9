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
	_, err = namespaces.Create(t.Context(), newObject("v1", "Namespace", "", c.namespace, nil), metav1.CreateOptions{})
	require.NoError(t, err)
	for name, check := range map[string]func(*testing.T){
		"creates":            c.checkCreates,
		"updates":            c.checkUpdates,
		"patches":            c.checkPatches,
		"preconditions":      c.checkPreconditions,
		"finalizers":         c.checkFinalizers,
		"revisions":          c.checkRevisions,
		"pages":              c.checkPages,
		"compacted pages":    c.compactedPages,
		"garbage":            c.checkGarbage,
		"what is not served": c.checkUnserved,
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

func (c *conformance) configMapClient() dynamic.ResourceInterface {
	return c.client.Resource(schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}).Namespace(c.namespace)
}

func newObject(apiVersion, kind, namespace, name string, more map[string]any) *unstructured.Unstructured {
	out := &unstructured.Unstructured{Object: map[string]any{"apiVersion": apiVersion, "kind": kind}}
	for key, value := range more {
		out.Object[key] = value
	}
	out.SetNamespace(namespace)
	out.SetName(name)
	return out
}

func (c *conformance) configMap(name, value string) *unstructured.Unstructured {
	return newObject("v1", "ConfigMap", c.namespace, name, map[string]any{"data": map[string]any{"k": value}})
}

func (c *conformance) createConfigMap(t *testing.T, name string, change ...func(*unstructured.Unstructured)) *unstructured.Unstructured {
	t.Helper()
	obj := c.configMap(name, "1")
	for _, f := range change {
		f(obj)
	}
	created, err := c.configMapClient().Create(t.Context(), obj, metav1.CreateOptions{})
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

func (c *conformance) checkCreates(t *testing.T) {
	first := c.createConfigMap(t, "create-a")
	require.NotEmpty(t, first.GetUID())
	made := first.GetCreationTimestamp()
	require.False(t, made.IsZero())
	second := c.createConfigMap(t, "create-b")
	require.Greater(t, revisionOf(t, second.GetResourceVersion()), revisionOf(t, first.GetResourceVersion()), "one revision for all objects")
	require.NotEqual(t, first.GetUID(), second.GetUID())

	_, err := c.configMapClient().Create(t.Context(), c.configMap("create-a", "2"), metav1.CreateOptions{})
	require.True(t, apierrors.IsAlreadyExists(err), "%v", err)
	revised := c.configMap("create-c", "1")
	revised.SetResourceVersion(first.GetResourceVersion())
	_, err = c.configMapClient().Create(t.Context(), revised, metav1.CreateOptions{})
	require.Error(t, err, "a new object has no revision")
	elsewhere := c.client.Resource(schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}).Namespace("kubetest-nowhere")
	_, err = elsewhere.Create(t.Context(), newObject("v1", "ConfigMap", "kubetest-nowhere", "x", nil), metav1.CreateOptions{})
	require.True(t, apierrors.IsNotFound(err), "%v", err)

	require.NoError(t, c.configMapClient().Delete(t.Context(), "create-a", metav1.DeleteOptions{}))
	_, err = c.configMapClient().Get(t.Context(), "create-a", metav1.GetOptions{})
	require.True(t, apierrors.IsNotFound(err), "%v", err)
	again := c.createConfigMap(t, "create-a")
	require.NotEqual(t, first.GetUID(), again.GetUID(), "an object of the same name is another object")
}

func (c *conformance) checkUpdates(t *testing.T) {
	created := c.createConfigMap(t, "update")
	stale := created.DeepCopy()
	require.NoError(t, unstructured.SetNestedField(created.Object, "2", "data", "k"))
	updated, err := c.configMapClient().Update(t.Context(), created, metav1.UpdateOptions{})
	require.NoError(t, err)
	require.Greater(t, revisionOf(t, updated.GetResourceVersion()), revisionOf(t, stale.GetResourceVersion()))
	require.Equal(t, stale.GetUID(), updated.GetUID())

	_, err = c.configMapClient().Update(t.Context(), stale, metav1.UpdateOptions{})
	require.True(t, apierrors.IsConflict(err), "%v", err)
	another := updated.DeepCopy()
	another.SetUID("another")
	_, err = c.configMapClient().Update(t.Context(), another, metav1.UpdateOptions{})
	require.True(t, apierrors.IsConflict(err), "%v", err)
	same, err := c.configMapClient().Update(t.Context(), updated, metav1.UpdateOptions{})
	require.NoError(t, err)
	require.Equal(t, updated.GetResourceVersion(), same.GetResourceVersion(), "what does not change keeps its revision")
	stale.SetResourceVersion("")
	_, err = c.configMapClient().Update(t.Context(), stale, metav1.UpdateOptions{})
	require.NoError(t, err, "without a revision any object is replaced")
	_, err = c.configMapClient().Update(t.Context(), c.configMap("update-absent", "1"), metav1.UpdateOptions{})
	require.True(t, apierrors.IsNotFound(err), "%v", err)
}

func (c *conformance) patchConfigMap(t *testing.T, name string, kind types.PatchType, body any) (*unstructured.Unstructured, error) {
	t.Helper()
	data, err := json.Marshal(body)
	require.NoError(t, err)
	return c.configMapClient().Patch(t.Context(), name, kind, data, metav1.PatchOptions{FieldManager: "kubetest"})
}

func (c *conformance) checkPatches(t *testing.T) {
	created := c.createConfigMap(t, "patch")
	patched, err := c.patchConfigMap(t, "patch", types.MergePatchType, map[string]any{"data": map[string]any{"k": nil, "l": "2"}})
	require.NoError(t, err)
	data, _, err := unstructured.NestedStringMap(patched.Object, "data")
	require.NoError(t, err)
	require.Equal(t, map[string]string{"l": "2"}, data)
	require.Greater(t, revisionOf(t, patched.GetResourceVersion()), revisionOf(t, created.GetResourceVersion()))
	require.Contains(t, fmt.Sprint(patched.GetManagedFields()), "kubetest")

	meta := func(field, value string) error {
		_, err := c.patchConfigMap(t, "patch", types.MergePatchType, map[string]any{"metadata": map[string]any{field: value}, "data": map[string]any{"l": "3"}})
		return err
	}
	err = meta("resourceVersion", created.GetResourceVersion())
	require.True(t, apierrors.IsConflict(err), "%v", err)
	err = meta("uid", "another")
	require.True(t, apierrors.IsInvalid(err), "no conflict: %v", err)
	replace := map[string]any{"op": "replace", "path": "/data/l", "value": "3"}
	_, err = c.patchConfigMap(t, "patch", types.JSONPatchType, []any{map[string]any{"op": "test", "path": "/data/l", "value": "9"}, replace})
	require.True(t, apierrors.IsInvalid(err), "%v", err)
	_, err = c.patchConfigMap(t, "patch", types.JSONPatchType, []any{map[string]any{"op": "test", "path": "/data/l", "value": "2"}, replace})
	require.NoError(t, err)
	_, err = c.patchConfigMap(t, "patch-absent", types.MergePatchType, map[string]any{})
	require.True(t, apierrors.IsNotFound(err), "%v", err)
}

func (c *conformance) checkPreconditions(t *testing.T) {
	created := c.createConfigMap(t, "precondition")
	uid, other, revision := created.GetUID(), types.UID("another"), "1"
	for _, p := range []metav1.Preconditions{{UID: &other}, {ResourceVersion: &revision}, {UID: &uid, ResourceVersion: &revision}} {
		err := c.configMapClient().Delete(t.Context(), "precondition", metav1.DeleteOptions{Preconditions: &p})
		require.True(t, apierrors.IsConflict(err), "%v", err)
	}
	revision = created.GetResourceVersion()
	require.NoError(t, c.configMapClient().Delete(t.Context(), "precondition", metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid, ResourceVersion: &revision}}))
	err := c.configMapClient().Delete(t.Context(), "precondition", metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid}})
	require.True(t, apierrors.IsNotFound(err), "%v", err)
}

func (c *conformance) checkFinalizers(t *testing.T) {
	c.createConfigMap(t, "finalized", func(o *unstructured.Unstructured) { o.SetFinalizers([]string{"example.com/waits"}) })
	require.NoError(t, c.configMapClient().Delete(t.Context(), "finalized", metav1.DeleteOptions{}))
	waiting, err := c.configMapClient().Get(t.Context(), "finalized", metav1.GetOptions{})
	require.NoError(t, err)
	require.NotNil(t, waiting.GetDeletionTimestamp())
	require.NoError(t, c.configMapClient().Delete(t.Context(), "finalized", metav1.DeleteOptions{}), "once more")
	waiting.SetFinalizers(nil)
	_, err = c.configMapClient().Update(t.Context(), waiting, metav1.UpdateOptions{})
	require.NoError(t, err)
	_, err = c.configMapClient().Get(t.Context(), "finalized", metav1.GetOptions{})
	require.True(t, apierrors.IsNotFound(err), "%v", err)
}

// valuesAt are the contents of a list of one page, by name.
func (c *conformance) valuesAt(t *testing.T, revision string) (map[string]string, string) {
	t.Helper()
	options := metav1.ListOptions{LabelSelector: "case=revisions"}
	if revision != "" {
		options.ResourceVersion, options.ResourceVersionMatch = revision, metav1.ResourceVersionMatchExact
	}
	list, err := c.configMapClient().List(t.Context(), options)
	require.NoError(t, err)
	out := map[string]string{}
	for i := range list.Items {
		out[list.Items[i].GetName()], _, _ = unstructured.NestedString(list.Items[i].Object, "data", "k")
	}
	return out, list.GetResourceVersion()
}

func (c *conformance) checkRevisions(t *testing.T) {
	labelled := func(o *unstructured.Unstructured) { o.SetLabels(map[string]string{"case": "revisions"}) }
	c.createConfigMap(t, "revision-a", labelled)
	c.createConfigMap(t, "revision-b", labelled)
	want, at := c.valuesAt(t, "")
	require.Equal(t, map[string]string{"revision-a": "1", "revision-b": "1"}, want)
	_, err := c.patchConfigMap(t, "revision-a", types.MergePatchType, map[string]any{"data": map[string]any{"k": "2"}})
	require.NoError(t, err)
	require.NoError(t, c.configMapClient().Delete(t.Context(), "revision-b", metav1.DeleteOptions{}))
	c.createConfigMap(t, "revision-c", labelled)
	now, later := c.valuesAt(t, "")
	require.Equal(t, map[string]string{"revision-a": "2", "revision-c": "1"}, now)
	require.Greater(t, revisionOf(t, later), revisionOf(t, at))
	then, answered := c.valuesAt(t, at)
	require.Equal(t, want, then, "what there was at that revision")
	require.Equal(t, at, answered)

	future := fmt.Sprint(revisionOf(t, later) + 1_000_000)
	_, err = c.configMapClient().List(t.Context(), metav1.ListOptions{ResourceVersion: future, ResourceVersionMatch: metav1.ResourceVersionMatchExact})
	require.True(t, apierrors.HasStatusCause(err, metav1.CauseTypeResourceVersionTooLarge), "%v", err)
	require.NoError(t, c.site.Compact(t.Context()))
	_, err = c.configMapClient().List(t.Context(), metav1.ListOptions{ResourceVersion: at, ResourceVersionMatch: metav1.ResourceVersionMatchExact})
	require.True(t, apierrors.IsResourceExpired(err), "%v", err)
	require.Empty(t, continuationOf(err), "no page was given")
}

func continuationOf(err error) string {
	if status, ok := err.(apierrors.APIStatus); ok {
		return status.Status().Continue
	}
	return ""
}

// readPage reads one page of the objects of pages.
func (c *conformance) readPage(t *testing.T, next string) (names []string, list *unstructured.UnstructuredList, err error) {
	t.Helper()
	options := metav1.ListOptions{LabelSelector: "case=pages", Limit: 2, Continue: next}
	list, err = c.configMapClient().List(t.Context(), options)
	if err != nil {
		return nil, nil, err
	}
	for i := range list.Items {
		names = append(names, strings.TrimPrefix(list.Items[i].GetName(), "page-"))
	}
	return names, list, nil
}

func (c *conformance) createPages(t *testing.T) {
	t.Helper()
	for _, name := range []string{"page-c", "page-a", "page-e", "page-b", "page-d"} {
		if _, err := c.configMapClient().Get(t.Context(), name, metav1.GetOptions{}); err != nil {
			c.createConfigMap(t, name, func(o *unstructured.Unstructured) { o.SetLabels(map[string]string{"case": "pages"}) })
		}
	}
}

func (c *conformance) checkPages(t *testing.T) {
	c.createPages(t)
	names, list, err := c.readPage(t, "")
	require.NoError(t, err)
	require.Equal(t, []string{"a", "b"}, names, "in order of names")
	at := list.GetResourceVersion()
	c.createConfigMap(t, "page-bb", func(o *unstructured.Unstructured) { o.SetLabels(map[string]string{"case": "pages"}) })
	require.NoError(t, c.configMapClient().Delete(t.Context(), "page-d", metav1.DeleteOptions{}))
	names, list, err = c.readPage(t, list.GetContinue())
	require.NoError(t, err)
	require.Equal(t, []string{"c", "d"}, names, "at the revision of the first page")
	require.Equal(t, at, list.GetResourceVersion())
	names, list, err = c.readPage(t, list.GetContinue())
	require.NoError(t, err)
	require.Equal(t, []string{"e"}, names)
	require.Empty(t, list.GetContinue())
	require.NoError(t, c.configMapClient().Delete(t.Context(), "page-bb", metav1.DeleteOptions{}))
}

// A token of a revision that was compacted comes back as one that continues behind the last key, at
// a newer revision.
func (c *conformance) compactedPages(t *testing.T) {
	c.createPages(t)
	_, list, err := c.readPage(t, "")
	require.NoError(t, err)
	before := revisionOf(t, list.GetResourceVersion())
	require.NoError(t, c.configMapClient().Delete(t.Context(), "page-c", metav1.DeleteOptions{}))
	require.NoError(t, c.site.Compact(t.Context()))
	_, _, err = c.readPage(t, list.GetContinue())
	require.True(t, apierrors.IsResourceExpired(err), "%v", err)
	require.NotEmpty(t, continuationOf(err))
	names, list, err := c.readPage(t, continuationOf(err))
	require.NoError(t, err)
	require.Equal(t, []string{"d", "e"}, names)
	require.Greater(t, revisionOf(t, list.GetResourceVersion()), before)
}

func ownedBy(by ...*unstructured.Unstructured) func(*unstructured.Unstructured) {
	return func(o *unstructured.Unstructured) {
		var owners []metav1.OwnerReference
		for _, b := range by {
			owners = append(owners, metav1.OwnerReference{APIVersion: "v1", Kind: "ConfigMap", Name: b.GetName(), UID: b.GetUID()})
		}
		o.SetOwnerReferences(owners)
	}
}

func (c *conformance) checkGarbage(t *testing.T) {
	going, staying := c.createConfigMap(t, "owner-going"), c.createConfigMap(t, "owner-staying")
	former := staying.DeepCopy()
	former.SetUID("00000000-0000-4000-8000-000000000000")
	c.createConfigMap(t, "owned-one", ownedBy(going))
	c.createConfigMap(t, "owned-two", ownedBy(going, staying))
	c.createConfigMap(t, "owned-former", ownedBy(former))
	below, err := c.configMapClient().Get(t.Context(), "owned-one", metav1.GetOptions{})
	require.NoError(t, err)
	c.createConfigMap(t, "owned-below", ownedBy(below))
	background := metav1.DeletePropagationBackground
	require.NoError(t, c.configMapClient().Delete(t.Context(), "owner-going", metav1.DeleteOptions{PropagationPolicy: &background}))
	c.site.Collect()
	for _, name := range []string{"owned-one", "owned-below", "owned-former"} {
		require.Eventually(t, func() bool {
			_, err := c.configMapClient().Get(t.Context(), name, metav1.GetOptions{})
			return apierrors.IsNotFound(err)
		}, waitLimit, 20*time.Millisecond, name)
	}
	_, err = c.configMapClient().Get(t.Context(), "owned-two", metav1.GetOptions{})
	require.NoError(t, err, "one of its owners lives")
}

func (c *conformance) checkUnserved(t *testing.T) {
	kind := schema.GroupVersionResource{Group: "kubetest.example.com", Version: "v1", Resource: "nothings"}
	_, err := c.client.Resource(kind).List(t.Context(), metav1.ListOptions{})
	require.True(t, apierrors.IsNotFound(err), "%v", err)
}
