//go:build node

package install

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/holdfast-io/holdfast/e2e/harness/node"
	"github.com/holdfast-io/holdfast/e2e/harness/testbed"
	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
)

const (
	shop    = "shop"
	page    = "hello from the shop\n"
	objects = `
apiVersion: v1
kind: ConfigMap
metadata: {name: page, namespace: shop}
data: {index.html: "hello from the shop\n"}
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: data, namespace: shop}
spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Mi}}}
---
apiVersion: v1
kind: Service
metadata: {name: web, namespace: shop}
spec: {selector: {app: web}, ports: [{port: 80, targetPort: 8080}]}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, namespace: shop}
spec:
  replicas: 2
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      terminationGracePeriodSeconds: 0
      containers:
        - name: web
          image: ` + node.TestImage + `
          imagePullPolicy: Never
          command: [sh, -c, "cp /page/index.html /data/ && exec httpd -f -p 8080 -h /data"]
          volumeMounts: [{name: data, mountPath: /data}, {name: page, mountPath: /page}]
      volumes: [{name: data, persistentVolumeClaim: {claimName: data}}, {name: page, configMap: {name: page}}]
`
)

// testApplications backs up an application that runs, with the command line, and restores it beside
// itself, where it runs and serves as well. No action takes the files of such a volume: the backup
// says so, and the copy has a volume of its own.
func (b *bed) testApplications(t *testing.T) {
	b.createNamespace(t, shop)
	for document := range strings.SplitSeq(objects, "\n---\n") {
		object := map[string]any{}
		require.NoError(t, yaml.Unmarshal([]byte(document), &object))
		require.NoError(t, b.client.Create(t.Context(), unstructuredOf(object)))
	}
	b.awaitServing(t, shop)
	out := b.runHoldfast(t, "backup", "create", "app", "--include-namespaces", shop, "--wait")
	require.Contains(t, out, "Completed")
	backup := b.awaitCompleted(t, "app")
	require.Equal(t, 1, backup.Status.Warnings, "the volume whose files are not taken")
	require.Contains(t, b.runHoldfast(t, "backup", "describe", "app"), "only the objects were backed up")

	require.Contains(t, b.runHoldfast(t, "restore", "create", "copy", "--from-backup", "app", "--namespace-mappings", shop+":copy", "--wait"), "Completed")
	b.awaitServing(t, "copy")
	volume := func(namespace string) string {
		claim := &corev1.PersistentVolumeClaim{}
		require.NoError(t, b.client.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: "data"}, claim))
		require.Equal(t, corev1.ClaimBound, claim.Status.Phase)
		return claim.Spec.VolumeName
	}
	require.NotEqual(t, volume(shop), volume("copy"))
	b.awaitServing(t, shop)
	restore := &velerov1.Restore{}
	require.NoError(t, b.client.Get(t.Context(), client.ObjectKey{Namespace: server, Name: "copy"}, restore))
	require.Zero(t, restore.Status.Errors)
}

// awaitServing waits until the application of a namespace runs, and answers a Pod of it by its name.
func (b *bed) awaitServing(t *testing.T, namespace string) {
	t.Helper()
	require.Eventually(t, func() bool {
		web := &appsv1.Deployment{}
		return b.client.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: "web"}, web) == nil && web.Status.ReadyReplicas == 2
	}, patience, look, "the application of %s runs", namespace)
	kubectl, err := testbed.Binary("kubectl")
	require.NoError(t, err)
	require.Eventually(t, func() bool { // a Pod runs before its process listens
		out, err := b.tryProgram(t.Context(), kubectl, "--namespace", namespace, "exec", "deploy/web", "--", "wget", "-qO-", "http://web."+namespace+".svc.cluster.local")
		return err == nil && out == page
	}, patience, look, "the application of %s answers", namespace)
}

// runHoldfast runs the command line.
func (b *bed) runHoldfast(t *testing.T, args ...string) string {
	t.Helper()
	binary, err := testbed.Product("holdfast")
	require.NoError(t, err)
	return b.runProgram(t, binary, append([]string{"--namespace", server}, args...)...)
}
