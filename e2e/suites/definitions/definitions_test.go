package definitions

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-io/holdfast/e2e/harness/testbed"
	"github.com/holdfast-io/holdfast/pkg/apis/crds"
	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/kube"
)

// TestDefinitions shares one control plane: starting one costs more than all the checks.
func TestDefinitions(t *testing.T) {
	cluster := testbed.StartT(t)
	cfg := cluster.RestConfig()
	c, err := client.New(cfg, client.Options{Scheme: kube.Scheme()})
	require.NoError(t, err)

	t.Run("all are missing at first", func(t *testing.T) {
		missing, err := crds.Missing(t.Context(), cfg)
		require.NoError(t, err)
		require.Len(t, missing, 13)
	})
	t.Run("an older definition is completed", func(t *testing.T) { completeOlder(t, c, func() error { return crds.Install(t.Context(), cfg) }) })
	t.Run("none is missing afterwards", func(t *testing.T) {
		missing, err := crds.Missing(t.Context(), cfg)
		require.NoError(t, err)
		require.Empty(t, missing)
		require.NoError(t, crds.Install(t.Context(), cfg), "again")
	})
	require.NoError(t, c.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "velero"}}))
	t.Run("every field is kept", func(t *testing.T) { keepEveryField(t, c) })
	t.Run("bad values are refused", func(t *testing.T) { refuseBadValues(t, c) })
	t.Run("kubectl knows the short names", func(t *testing.T) { shortNames(t, cluster.Kubeconfig()) })
	t.Run("status is written through the main resource", func(t *testing.T) {
		b := &velerov1.Backup{ObjectMeta: metav1.ObjectMeta{Namespace: "velero", Name: "status"}}
		b.Status.Phase = velerov1.BackupPhaseCompleted
		require.NoError(t, c.Create(t.Context(), b), "a create may carry a status: the search of a bucket relies on it")
		require.NoError(t, kube.Update(t.Context(), c, c, b, func(b *velerov1.Backup) error {
			b.Status.Errors = 7
			return nil
		}))
		read := &velerov1.Backup{}
		require.NoError(t, c.Get(t.Context(), client.ObjectKeyFromObject(b), read))
		require.Equal(t, velerov1.BackupPhaseCompleted, read.Status.Phase)
		require.Equal(t, 7, read.Status.Errors)
	})
}

// completeOlder plays a cluster in which an older Velero left a definition without a field and a
// phase of today.
func completeOlder(t *testing.T, c client.Client, install func() error) {
	t.Helper()
	all, err := crds.All()
	require.NoError(t, err)
	for _, crd := range all {
		if crd.Spec.Names.Plural != "backups" {
			continue
		}
		root := crd.Spec.Versions[0].Schema.OpenAPIV3Schema
		delete(root.Properties["spec"].Properties, "uploaderConfig")
		phase := root.Properties["status"].Properties["phase"]
		phase.Enum = []apiextensionsv1.JSON{{Raw: []byte(`"New"`)}, {Raw: []byte(`"Completed"`)}}
		root.Properties["status"].Properties["phase"] = phase
		require.NoError(t, c.Create(t.Context(), crd))
	}
	require.NoError(t, install())
}

// keepEveryField stores the hand-written documents of the API types and reads them back without
// types.
func keepEveryField(t *testing.T, c client.Client) {
	t.Helper()
	root, err := testbed.RepositoryRoot()
	require.NoError(t, err)
	files, err := filepath.Glob(filepath.Join(root, "pkg/apis/velero/*/testdata/*.json"))
	require.NoError(t, err)
	require.Len(t, files, 13)
	for _, file := range files {
		data, err := os.ReadFile(file)
		require.NoError(t, err)
		obj := &unstructured.Unstructured{}
		require.NoError(t, obj.UnmarshalJSON(data), file)
		want := obj.DeepCopy()
		require.NoError(t, c.Create(t.Context(), obj), file)
		read := &unstructured.Unstructured{}
		read.SetGroupVersionKind(want.GroupVersionKind())
		require.Eventually(t, func() bool {
			return c.Get(t.Context(), types.NamespacedName{Namespace: "velero", Name: "full"}, read) == nil
		}, time.Minute, 50*time.Millisecond)
		require.Equal(t, want.Object["spec"], read.Object["spec"], file)
		require.Equal(t, want.Object["status"], read.Object["status"], file)
	}
}

func refuseBadValues(t *testing.T, c client.Client) {
	t.Helper()
	b := &velerov1.Backup{ObjectMeta: metav1.ObjectMeta{Namespace: "velero", Name: "bad"}}
	b.Status.Phase = "Nonsense"
	require.ErrorContains(t, c.Create(t.Context(), b), "status.phase")
	location := &velerov1.BackupStorageLocation{ObjectMeta: metav1.ObjectMeta{Namespace: "velero", Name: "bad"}}
	require.ErrorContains(t, c.Create(t.Context(), location), "objectStorage")
}

func shortNames(t *testing.T, kubeconfig string) {
	t.Helper()
	kubectl, err := testbed.Binary("kubectl")
	require.NoError(t, err)
	for short, header := range map[string]string{"bsl": "PHASE LAST VALIDATED AGE DEFAULT", "vsl": "AGE", "ssr": "AGE", "schedules.velero.io": "STATUS SCHEDULE LASTBACKUP AGE PAUSED"} {
		var problems bytes.Buffer
		cmd := exec.CommandContext(t.Context(), kubectl, "--kubeconfig", kubeconfig, "-n", "velero", "get", short)
		cmd.Stderr = &problems
		out, err := cmd.Output()
		require.NoError(t, err, problems.String())
		first, _, _ := strings.Cut(string(out), "\n")
		require.Equal(t, "NAME "+header, strings.Join(strings.Fields(first), " "))
	}
}
