package operator

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/holdfast-io/holdfast/e2e/harness/site"
	"github.com/holdfast-io/holdfast/e2e/harness/testbed"
	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	namespaces = 5
	backup     = "stores"
)

// bed is a site whose restore-runners reach the API server through a proxy, with their account's
// rights, and an operator.
type bed struct {
	*site.Site
	proxy    *Proxy
	operator *Operator
	bucket   *site.Bucket
	estate   *Estate
	spaces   []string
	count    int // of Stores
}

func startBed(t *testing.T) *bed {
	t.Helper()
	b := &bed{count: 3 * namespaces}
	if os.Getenv("LONG_TESTS") != "" {
		b.count = 10 * namespaces
	}
	b.Site = site.Start(t, site.Config{
		Counts: map[string]int{"restore-runner": 2},
		Cluster: func(config *testbed.Config) {
			config.APIServerArgs = append(config.APIServerArgs, "--enable-admission-plugins=OwnerReferencesPermissionEnforcement")
		},
		Arrange: func(s *site.Site) map[string][]string {
			b.proxy = proxyFor(t, s)
			kubeconfig := filepath.Join(t.TempDir(), "kubeconfig-proxy")
			require.NoError(t, b.proxy.WriteKubeconfig(kubeconfig))
			return map[string][]string{"restore-runner": {"--kubeconfig", kubeconfig, "--claim-timeout", "5s"}}
		},
	})
	b.operator = NewOperator(b.Client)
	bucket, path := site.FileBucket(t, backup)
	b.bucket = bucket
	b.ReachFiles(t, path, bucket)
	b.populateEstate(t)
	return b
}

// proxyFor starts a proxy with the identity of the restore-runner.
func proxyFor(t *testing.T, s *site.Site) *Proxy {
	t.Helper()
	config, err := clientcmd.BuildConfigFromFlags("", s.Accounts["restore-runner"])
	require.NoError(t, err)
	proxy, err := StartProxy(config)
	require.NoError(t, err)
	t.Cleanup(proxy.Close)
	return proxy
}

// populateEstate has the operator make the estate, records it and backs it up.
func (b *bed) populateEstate(t *testing.T) {
	t.Helper()
	crd := &apiextensionsv1.CustomResourceDefinition{}
	require.NoError(t, yaml.UnmarshalStrict([]byte(definition), crd))
	object := &unstructured.Unstructured{}
	require.NoError(t, yaml.Unmarshal([]byte(definition), &object.Object))
	require.NoError(t, b.Client.Create(t.Context(), object))
	for i := range namespaces {
		b.spaces = append(b.spaces, fmt.Sprintf("stores-%d", i))
	}
	b.createStores(t)
	b.operator.Start()
	require.NoError(t, b.operator.Settle(t.Context()))
	b.operator.Stop()
	b.shareSecrets(t)
	var err error
	b.estate, err = Remember(t.Context(), b.Client, b.spaces)
	require.NoError(t, err)
	require.Equal(t, b.count*5, b.estate.Len())
	b.Backup(t, backup, b.bucket, b.spaces...)
	done := b.BackupEnds(t, backup)
	require.Equal(t, velerov1.BackupPhaseCompleted, done.Status.Phase, done.Status.FailureReason)
}

// createStores creates the namespaces and the Stores.
func (b *bed) createStores(t *testing.T) {
	t.Helper()
	for _, namespace := range b.spaces {
		b.Namespace(t, namespace)
		for i := range b.count / namespaces {
			store := newStore(namespace, fmt.Sprintf("store-%d", i))
			require.Eventually(t, func() bool { return b.Client.Create(t.Context(), store) == nil }, site.Patience, site.Look, "the kind is served")
		}
	}
}

func newStore(namespace, name string) *unstructured.Unstructured {
	store := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"size": int64(1)}}}
	store.SetGroupVersionKind(storeGVK)
	store.SetNamespace(namespace)
	store.SetName(name)
	return store
}

// shareSecrets gives the -shared Secret of every Store two owners: the Store and the one that a
// list has after it.
func (b *bed) shareSecrets(t *testing.T) {
	t.Helper()
	for _, namespace := range b.spaces {
		list := &unstructured.UnstructuredList{}
		list.SetGroupVersionKind(storeGVK.GroupVersion().WithKind("StoreList"))
		require.NoError(t, b.Client.List(t.Context(), list, client.InNamespace(namespace)))
		for i := range list.Items {
			shared := &corev1.Secret{}
			require.NoError(t, b.Client.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: list.Items[i].GetName() + "-shared"}, shared))
			shared.OwnerReferences = []metav1.OwnerReference{ownerReference(&list.Items[i], false), ownerReference(&list.Items[(i+1)%len(list.Items)], false)}
			require.NoError(t, b.Client.Update(t.Context(), shared))
		}
	}
}

// destroyNamespaces removes the namespaces; the operator must be stopped.
func (b *bed) destroyNamespaces(t *testing.T) {
	t.Helper()
	for _, name := range b.spaces {
		namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
		require.NoError(t, client.IgnoreNotFound(b.Client.Delete(t.Context(), namespace)))
	}
	for _, name := range b.spaces {
		require.Eventually(t, func() bool {
			return apierrors.IsNotFound(b.Client.Get(t.Context(), client.ObjectKey{Name: name}, &corev1.Namespace{}))
		}, site.Patience, site.Look, "namespace %s goes", name)
	}
}

// runRestore restores everything and returns what came of it.
func (b *bed) runRestore(t *testing.T, name string, annotations map[string]string) *velerov1.Restore {
	t.Helper()
	require.NoError(t, b.Client.Create(t.Context(), &velerov1.Restore{
		ObjectMeta: metav1.ObjectMeta{Namespace: site.Server, Name: name, Annotations: annotations},
		Spec:       velerov1.RestoreSpec{BackupName: backup},
	}))
	return b.RestoreEnds(t, name)
}

// requireRestored requires that nothing was lost, now and after a pass of the garbage collector.
func (b *bed) requireRestored(t *testing.T, restore *velerov1.Restore) {
	t.Helper()
	results := string(b.bucket.ReadZipped(t, "restores/"+restore.Name+"/restore-"+restore.Name+"-results.gz"))
	require.Equal(t, velerov1.RestorePhaseCompleted, restore.Status.Phase, "%s %s", restore.Status.FailureReason, results)
	require.Zero(t, restore.Status.Errors, results)
	b.operator.Start() // whatever it did before: what is missing is made now
	require.NoError(t, b.operator.Settle(t.Context()))
	require.Empty(t, b.operator.Created(), "the operator found everything")
	lost, err := b.estate.Lost(t.Context())
	require.NoError(t, err)
	require.Empty(t, lost)
	unowned, err := b.estate.Unowned(t.Context())
	require.NoError(t, err)
	require.Empty(t, unowned)
	before, err := b.estate.UIDs(t.Context())
	require.NoError(t, err)
	b.collectGarbage(t)
	after, err := b.estate.UIDs(t.Context())
	require.NoError(t, err)
	require.Equal(t, before, after, "the garbage collector removes nothing")
}

// collectGarbage returns when the garbage collector has looked at everything that was there before:
// it removes two objects one after the other that refer to an owner that never was.
func (b *bed) collectGarbage(t *testing.T) {
	t.Helper()
	for i := range 2 {
		canary := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
			Namespace: "default", Name: fmt.Sprintf("canary-%d", i),
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "ConfigMap", Name: "never", UID: "11111111-2222-3333-4444-555555555555"}},
		}}
		require.NoError(t, b.Client.Create(t.Context(), canary))
		require.Eventually(t, func() bool {
			return apierrors.IsNotFound(b.Client.Get(t.Context(), client.ObjectKeyFromObject(canary), canary))
		}, site.Patience, site.Look)
	}
}

// awaitSettling lets the operator and the StatefulSet controller finish before each request.
func (b *bed) awaitSettling(ctx context.Context, _ Request) error { return b.operator.Settle(ctx) }

// createsStore reports whether a request creates a Store.
func createsStore(r Request) bool { return r.Method == "POST" && strings.HasSuffix(r.Path, "/stores") }

// TestNothingIsLostBesideAnOperator restores what an operator and the StatefulSet controller make
// by themselves where they do not find it. With owners restored before what they own, the operator
// saw its custom resources first and stored Secrets were lost to new passwords: Completed, no
// errors.
func TestNothingIsLostBesideAnOperator(t *testing.T) {
	b := startBed(t)
	half := int64(b.count / 2)
	shape := func(name string, run func(t *testing.T, name string)) {
		t.Run(name, func(t *testing.T) {
			b.operator.Stop()
			b.destroyNamespaces(t)
			t.Cleanup(func() { b.proxy.Before(nil) })
			run(t, strings.ReplaceAll(name, " ", "-"))
		})
	}
	shape("live operator", func(t *testing.T, name string) {
		b.operator.Start()
		b.proxy.Before(b.awaitSettling)
		b.requireRestored(t, b.runRestore(t, name, nil))
	})
	shape("restarted operator", func(t *testing.T, name string) {
		var created atomic.Int64
		b.proxy.Before(func(ctx context.Context, r Request) error {
			if createsStore(r) && created.Add(1) == half {
				b.operator.Start()
			}
			return b.operator.Settle(ctx)
		})
		b.requireRestored(t, b.runRestore(t, name, nil))
		require.GreaterOrEqual(t, created.Load(), half, "the operator came back during the restore")
	})
	shape("live owner", func(t *testing.T, name string) {
		b.createStores(t)
		var late atomic.Int64
		b.proxy.Before(func(_ context.Context, r Request) error {
			if r.Method == "POST" && strings.HasSuffix(r.Path, "/persistentvolumeclaims") && strings.Contains(string(r.Body), "-data") && !hasOwner(r.Body) {
				late.Add(1)
			}
			return nil
		})
		b.requireRestored(t, b.runRestore(t, name, nil))
		require.Zero(t, late.Load(), "claims of live owners are created with their owner")
	})
	shape("killed runner", func(t *testing.T, name string) { b.killAtHalf(t, name, half) })
	// The check itself is able to fail: roots first is what loses objects.
	shape("owners first", func(t *testing.T, name string) {
		b.operator.Start()
		b.proxy.Before(b.awaitSettling)
		b.runRestore(t, name, map[string]string{"holdfast.io/order": "owners"})
		lost, err := b.estate.Lost(t.Context())
		require.NoError(t, err)
		require.NotEmpty(t, lost, "with the owner first, the operator makes its own Secrets and claims")
	})
}

// killAtHalf kills the runner that holds the restore when half of the custom resources are created.
func (b *bed) killAtHalf(t *testing.T, name string, half int64) {
	t.Helper()
	b.operator.Start()
	var created atomic.Int64
	reached, gone := make(chan struct{}), make(chan struct{})
	b.proxy.Before(func(ctx context.Context, r Request) error {
		if createsStore(r) && created.Add(1) == half {
			close(reached)
			select {
			case <-gone:
			case <-ctx.Done():
			}
		}
		return b.operator.Settle(ctx)
	})
	require.NoError(t, b.Client.Create(t.Context(), &velerov1.Restore{
		ObjectMeta: metav1.ObjectMeta{Namespace: site.Server, Name: name}, Spec: velerov1.RestoreSpec{BackupName: backup},
	}))
	select {
	case <-reached:
	case <-time.After(site.Patience):
		t.Fatal("half of the custom resources are never created")
	}
	holder := b.Holder(t, name)
	holder.Kill()
	<-holder.Done()
	close(gone)
	b.requireRestored(t, b.RestoreEnds(t, name))
	_, err := b.Fleet.Revive(t.Context())
	require.NoError(t, err)
}

func hasOwner(body []byte) bool {
	var object metav1.PartialObjectMetadata
	return json.Unmarshal(body, &object) == nil && len(object.OwnerReferences) > 0
}

const definition = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata:
  name: stores.operator.test
spec:
  group: operator.test
  scope: Namespaced
  names: {plural: stores, singular: store, kind: Store, listKind: StoreList}
  versions:
  - name: v1
    served: true
    storage: true
    schema:
      openAPIV3Schema:
        type: object
        x-kubernetes-preserve-unknown-fields: true
`
