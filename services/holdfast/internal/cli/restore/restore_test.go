package restore_test

import (
	"context"
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/services/holdfast/internal/cli/clitest"
)

func newBackup(name string, phase velerov1.BackupPhase, age time.Duration) *velerov1.Backup {
	return &velerov1.Backup{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "velero", Name: name, Labels: map[string]string{velerov1.LabelScheduleName: "daily"},
			CreationTimestamp: metav1.NewTime(time.Now().Add(-age)),
		},
		Spec:   velerov1.BackupSpec{StorageLocation: "default"},
		Status: velerov1.BackupStatus{Phase: phase},
	}
}

func newRestore(name string, phase velerov1.RestorePhase) *velerov1.Restore {
	return &velerov1.Restore{
		ObjectMeta: metav1.ObjectMeta{Namespace: "velero", Name: name, UID: types.UID("uid-" + name)},
		Spec:       velerov1.RestoreSpec{BackupName: "first"},
		Status:     velerov1.RestoreStatus{Phase: phase},
	}
}

func onlyRestore(t *testing.T, c client.Client) *velerov1.Restore {
	t.Helper()
	list := &velerov1.RestoreList{}
	require.NoError(t, c.List(t.Context(), list))
	require.Len(t, list.Items, 1)
	return &list.Items[0]
}

func TestCreateRefusesAnUnknownOrder(t *testing.T) {
	c := clitest.New(t, newBackup("first", velerov1.BackupPhaseCompleted, 0))
	result := c.Run(t.Context(), "", "restore", "create", "r", "--from-backup", "first", "--order", "roots")
	require.NotEqual(t, 0, result.Code)
	require.Contains(t, result.Err, `--order: "roots" is not stages, owners or velero`)
}

func TestCreateSendsWhatTheFlagsSay(t *testing.T) {
	c := clitest.New(t, newBackup("first", velerov1.BackupPhaseCompleted, 0))
	result := c.Run(t.Context(), "", "restore", "create", "r", "--from-backup", "first", "--include-namespaces", "a", "--exclude-namespaces", "b",
		"--include-resources", "pods", "--exclude-resources", "nodes", "--namespace-mappings", "a:z,b:y", "--include-cluster-resources=false",
		"--or-selector", "a=b or c=d", "--existing-resource-policy", "update", "--restore-volumes=false", "--preserve-nodeports",
		"--status-include-resources", "jobs", "--status-exclude-resources", "pods", "--resource-modifier-configmap", "m",
		"--item-operation-timeout", "1h", "--write-sparse-files", "--parallel-files-download", "2", "--labels", "a=b", "--annotations", "c=d", "--now", "--order", "owners")
	require.Equal(t, 0, result.Code, result.Err)
	r := onlyRestore(t, c)
	require.Equal(t, "r", r.Name)
	require.Equal(t, map[string]string{"a": "b"}, r.Labels)
	require.Equal(t, map[string]string{"c": "d", "holdfast.io/ignore-running": "true", "holdfast.io/order": "owners"}, r.Annotations)
	spec, err := json.Marshal(r.Spec)
	require.NoError(t, err)
	require.JSONEq(t, `{"hooks":{},"backupName":"first","includedNamespaces":["a"],"excludedNamespaces":["b"],"includedResources":["pods"],"excludedResources":["nodes"],
		"namespaceMapping":{"a":"z","b":"y"},"includeClusterResources":false,"orLabelSelectors":[{"matchLabels":{"a":"b"}},{"matchLabels":{"c":"d"}}],
		"existingResourcePolicy":"update","restorePVs":false,"preserveNodePorts":true,"restoreStatus":{"includedResources":["jobs"],"excludedResources":["pods"]},
		"resourceModifier":{"apiGroup":null,"kind":"ConfigMap","name":"m"},"itemOperationTimeout":"1h0m0s","uploaderConfig":{"writeSparseFiles":true,"parallelFilesDownload":2}}`, string(spec))
}

func TestDescribeShowsParts(t *testing.T) {
	r := newRestore("parts", velerov1.RestorePhaseCompleted)
	r.Annotations = map[string]string{"holdfast.io/items": "deploy/shop/web, secret/shop/db", "holdfast.io/items-with": "children"}
	r.Status.Progress = &velerov1.RestoreProgress{TotalItems: 7, ItemsRestored: 7}
	result := clitest.New(t, r).Run(t.Context(), "", "restore", "describe", "parts")
	require.Equal(t, 0, result.Code, result.Err)
	require.Regexp(t, `(?s)Items:\n +Named: +deploy/shop/web, secret/shop/db\n +With: +children\n +Brought along: +5\n`, result.Out)
	r.Annotations = map[string]string{"holdfast.io/files": `{"shop/data":["etc","var/x"],"db/data":["a"]}`}
	result = clitest.New(t, r).Run(t.Context(), "", "restore", "describe", "parts")
	require.Regexp(t, `(?s)Files:\n +db/data: +a\n +shop/data: +etc, var/x\n`, result.Out)
}

func TestCreateNamesTheRestoreAfterItsBackup(t *testing.T) {
	c := clitest.New(t, newBackup("first", velerov1.BackupPhaseCompleted, 0))
	require.Equal(t, 0, c.Run(t.Context(), "", "restore", "create", "--from-backup", "first").Code)
	require.Regexp(t, `^first-\d{14}$`, onlyRestore(t, c).Name)
	require.Equal(t, []string{"*"}, onlyRestore(t, c).Spec.IncludedNamespaces)
}

func TestCreateFromASchedule(t *testing.T) {
	objects := []client.Object{
		&velerov1.Schedule{ObjectMeta: metav1.ObjectMeta{Namespace: "velero", Name: "daily"}},
		newBackup("old", velerov1.BackupPhaseCompleted, time.Hour),
		newBackup("newer", velerov1.BackupPhasePartiallyFailed, time.Minute),
		newBackup("failed", velerov1.BackupPhaseFailed, 0),
	}
	c := clitest.New(t, objects...)
	require.Equal(t, 0, c.Run(t.Context(), "", "restore", "create", "r", "--from-schedule", "daily").Code)
	require.Equal(t, "daily", onlyRestore(t, c).Spec.ScheduleName, "the server chooses")

	c = clitest.New(t, objects...)
	require.Equal(t, 0, c.Run(t.Context(), "", "restore", "create", "r", "--from-schedule", "daily", "--allow-partially-failed").Code)
	require.Equal(t, "newer", onlyRestore(t, c).Spec.BackupName)
	require.Empty(t, onlyRestore(t, c).Spec.ScheduleName)
}

func TestCreateRefusesBadInput(t *testing.T) {
	cases := map[string]struct {
		args []string
		want string
	}{
		"no source":        {nil, "--from-backup"},
		"two sources":      {[]string{"--from-backup", "first", "--from-schedule", "s"}, "--from-schedule"},
		"unknown backup":   {[]string{"--from-backup", "nope"}, "nope"},
		"unknown schedule": {[]string{"--from-schedule", "nope"}, "nope"},
		"none usable":      {[]string{"--from-schedule", "nope", "--allow-partially-failed"}, "nope"},
		"bad policy":       {[]string{"--from-backup", "first", "--existing-resource-policy", "merge"}, "--existing-resource-policy"},
		"bad mapping":      {[]string{"--from-backup", "first", "--namespace-mappings", "a=b"}, "--namespace-mappings"},
		"bad target":       {[]string{"--from-backup", "first", "--namespace-mappings", "a:B_"}, "--namespace-mappings"},
		"both selectors":   {[]string{"--from-backup", "first", "-l", "a=b", "--or-selector", "c=d"}, "--or-selector"},
		"status":           {[]string{"--from-backup", "first", "--status-exclude-resources", "pods"}, "--status-include-resources"},
		"partial":          {[]string{"--from-backup", "first", "--allow-partially-failed"}, "--from-schedule"},
		"wait and print":   {[]string{"--from-backup", "first", "-w", "-o", "yaml"}, "--wait"},
		"bad name":         {[]string{"Bad_Name", "--from-backup", "first"}, "Bad_Name"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			c := clitest.New(t, newBackup("first", velerov1.BackupPhaseCompleted, 0))
			result := c.Run(t.Context(), "", append([]string{"restore", "create"}, tc.args...)...)
			require.Equal(t, 1, result.Code)
			require.Contains(t, result.Err, tc.want)
			list := &velerov1.RestoreList{}
			require.NoError(t, c.List(t.Context(), list))
			require.Empty(t, list.Items)
		})
	}
}

func TestCreateWaitsAndReportsTheEnd(t *testing.T) {
	for phase, want := range map[velerov1.RestorePhase]int{
		velerov1.RestorePhaseCompleted: 0, velerov1.RestorePhasePartiallyFailed: 2, velerov1.RestorePhaseFailed: 1, velerov1.RestorePhaseFailedValidation: 1,
	} {
		t.Run(string(phase), func(t *testing.T) {
			c := clitest.New(t, newBackup("first", velerov1.BackupPhaseCompleted, 0))
			ctx := t.Context()
			go func() {
				for ctx.Err() == nil {
					r := &velerov1.Restore{}
					if c.Get(ctx, types.NamespacedName{Namespace: "velero", Name: "r"}, r) == nil {
						r.Status = velerov1.RestoreStatus{Phase: phase, FailureReason: "because", ValidationErrors: []string{"because"}}
						assert.NoError(t, c.Update(ctx, r))
						return
					}
				}
			}()
			result := c.Run(ctx, "", "restore", "create", "r", "--from-backup", "first", "--wait")
			require.Equal(t, want, result.Code)
			require.Contains(t, result.Out+result.Err, string(phase))
			if want == 1 {
				require.Contains(t, result.Err, "because")
			}
		})
	}
}

// A refused Restore was reported as requested, and that was all: https://github.com/velero-io/velero/issues/297.
func TestCreateReportsARefusalWithoutWait(t *testing.T) {
	for name, judged := range map[string]func(*velerov1.Restore){
		"refused": func(r *velerov1.Restore) {
			r.Status = velerov1.RestoreStatus{Phase: velerov1.RestorePhaseFailedValidation, ValidationErrors: []string{"spec.backupName: no such backup"}}
		},
		"valid": func(r *velerov1.Restore) {
			r.Status = velerov1.RestoreStatus{Phase: velerov1.RestorePhaseInProgress, Progress: &velerov1.RestoreProgress{TotalItems: 1}}
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := clitest.New(t, newBackup("first", velerov1.BackupPhaseCompleted, 0))
			looks := 0
			c.WithWatch = interceptor.NewClient(c.WithWatch, interceptor.Funcs{
				Create: func(ctx context.Context, w client.WithWatch, obj client.Object, opts ...client.CreateOption) error {
					r, ok := obj.(*velerov1.Restore)
					if !ok {
						return w.Create(ctx, obj, opts...)
					}
					r.UID = "uid-r"
					stored := r.DeepCopy()
					judged(stored)
					return w.Create(ctx, stored, opts...)
				},
				Get: func(ctx context.Context, w client.WithWatch, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
					if _, ok := obj.(*velerov1.Restore); ok {
						looks++
					}
					return w.Get(ctx, key, obj, opts...)
				},
			})
			result := c.Run(t.Context(), "", "restore", "create", "r", "--from-backup", "first")
			require.Contains(t, result.Out, `Restore "r" was requested`)
			if name == "valid" {
				require.Zero(t, result.Code, result.Err)
				require.Equal(t, 1, looks, "a valid one is not waited for")
				return
			}
			require.Equal(t, 1, result.Code)
			require.Contains(t, result.Err, "FailedValidation")
			require.Contains(t, result.Err, "spec.backupName: no such backup")
			require.NotContains(t, result.Out, "shows how far it is")
		})
	}
}

func TestInterruptedWaitSaysWhatGoesOn(t *testing.T) {
	c := clitest.New(t, newBackup("first", velerov1.BackupPhaseCompleted, 0))
	ctx := c.InterruptOnce(t, &velerov1.RestoreList{})
	result := c.Run(ctx, "", "restore", "create", "r", "--from-backup", "first", "--wait")
	require.Equal(t, 130, result.Code)
	require.Contains(t, result.Err, `restore "r" keeps running`)
}

func TestDelete(t *testing.T) {
	c := clitest.New(t, newRestore("a", velerov1.RestorePhaseCompleted), newRestore("b", velerov1.RestorePhaseCompleted))
	require.Contains(t, c.Run(t.Context(), "n\n", "restore", "delete", "a").Out, "Nothing was deleted")
	result := c.Run(t.Context(), "", "restore", "delete", "a", "--confirm", "--wait")
	require.Equal(t, 0, result.Code, result.Err)
	require.Equal(t, "b", onlyRestore(t, c).Name)
	require.Equal(t, 0, c.Run(t.Context(), "", "restore", "delete", "--all", "--confirm").Code)
	require.Contains(t, c.Run(t.Context(), "", "restore", "delete", "--all", "--confirm").Out, "No restores")
}
