package job_test

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/layout"
)

// storeShop stores a Pod of Velero's backup b with the Secret that it reads, and a ConfigMap of the same name.
func (b *bench) storeShop(t *testing.T) {
	t.Helper()
	reads := []any{object{"name": "c", "envFrom": []any{object{"secretRef": object{"name": "db"}}}}}
	b.storeBackup(t, []entry{
		{"namespaces", "v1", "Namespace", "", "there", nil, nil},
		{"configmaps", "v1", "ConfigMap", "there", "web", object{"data": object{"k": "backup"}}, nil},
		{"secrets", "v1", "Secret", "there", "db", object{"data": object{"k": "YmFja3Vw"}}, nil},
		{"pods", "v1", "Pod", "there", "web", object{"spec": object{"containers": reads}}, nil},
		{"configmaps", "v1", "ConfigMap", "elsewhere", "page", nil, nil},
	})
}

func ofItems(items, with string, policy velerov1.PolicyType) func(*velerov1.Restore) {
	return func(r *velerov1.Restore) {
		r.Annotations = map[string]string{"holdfast.io/items": items}
		if with != "" {
			r.Annotations["holdfast.io/items-with"] = with
		}
		r.Spec.ExistingResourcePolicy = policy
	}
}

// What is named is put back as it was, what comes along follows the policy; nothing else is touched. Velero's
// backups have no manifest that names references.
func TestItemsOfAVeleroBackup(t *testing.T) {
	for name, tt := range map[string]struct {
		policy       velerov1.PolicyType
		named, along string
		warnings     int
	}{
		"default": {policy: "", named: "backup", along: "bGl2ZQ==", warnings: 1},
		"update":  {policy: velerov1.PolicyTypeUpdate, named: "backup", along: "YmFja3Vw"},
		"none":    {policy: velerov1.PolicyTypeNone, named: "live", along: "bGl2ZQ==", warnings: 2},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			b.storeShop(t)
			b.createRestore(t, true, ofItems("cm/there/web,po/there/web", "dependencies", tt.policy))
			b.cluster.Put("/api/v1/namespaces/there", object{"apiVersion": "v1", "kind": "Namespace", "metadata": object{"name": "there"}})
			const config, secret = "/api/v1/namespaces/there/configmaps/web", "/api/v1/namespaces/there/secrets/db"
			b.cluster.Put(config, object{"apiVersion": "v1", "kind": "ConfigMap", "metadata": object{"name": "web", "namespace": "there"}, "data": object{"k": "live"}})
			b.cluster.Put(secret, object{"apiVersion": "v1", "kind": "Secret", "metadata": object{"name": "db", "namespace": "there"}, "data": object{"k": "bGl2ZQ=="}})
			require.NoError(t, b.runner.Run(t.Context(), "r", "uid-r"))
			r := b.getRestore(t)
			require.Equal(t, velerov1.RestorePhaseCompleted, r.Status.Phase, r.Status.FailureReason)
			require.Equal(t, tt.warnings, r.Status.Warnings)
			require.Equal(t, &velerov1.RestoreProgress{TotalItems: 4, ItemsRestored: 4}, r.Status.Progress)
			require.Equal(t, object{"k": tt.named}, b.cluster.Object(config)["data"])
			require.Equal(t, object{"k": tt.along}, b.cluster.Object(secret)["data"])
			require.NotNil(t, b.cluster.Object("/api/v1/namespaces/there/pods/web"))
			require.Nil(t, b.cluster.Object("/api/v1/namespaces/elsewhere"))
			log := b.readGzip(t, layout.RestoreLog("r"))
			require.Contains(t, log, "comes along: Pod there/web reads it")
			require.Contains(t, log, "objects named: 2, brought along: 2")
		})
	}
}

func TestItemsThatAreNotThereFailValidation(t *testing.T) {
	const field = "metadata.annotations[holdfast.io/items]: "
	for name, tt := range map[string]struct {
		change func(*velerov1.Restore)
		want   []string
	}{
		"unknown": {ofItems("cm/there/web,cm/there/page,gizmo/x", "", ""), []string{
			field + `item cm/there/page: the backup holds no ConfigMap "page" in namespace "there", but one in elsewhere`, field + `item gizmo/x: the backup holds no object of kind "gizmo"`}},
		"left out": {func(r *velerov1.Restore) {
			ofItems("cm/there/web,secret/there/db", "", "")(r)
			r.Spec.ExcludedResources = []string{"secrets"}
		}, []string{field + "the filters of the restore leave out Secret there/db"}},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			b.storeShop(t)
			b.createRestore(t, true, tt.change)
			require.NoError(t, b.runner.Run(t.Context(), "r", "uid-r"))
			r := b.getRestore(t)
			require.Equal(t, velerov1.RestorePhaseFailedValidation, r.Status.Phase, r.Status.FailureReason)
			require.Equal(t, tt.want, r.Status.ValidationErrors)
			require.Empty(t, b.cluster.Requests(http.MethodPost+" "))
		})
	}
}

// A plan of parts lists these alone, says why each is there, and updates what is named as the restore does.
func TestADryRunOfItemsSaysWhyTheyComeAlong(t *testing.T) {
	b := newPlanBench(t)
	b.storeShop(t)
	b.cluster.Put("/api/v1/namespaces/there", object{"apiVersion": "v1", "kind": "Namespace", "metadata": object{"name": "there"}})
	b.cluster.Put("/api/v1/namespaces/there/configmaps/web", object{"apiVersion": "v1", "kind": "ConfigMap", "metadata": object{"name": "web", "namespace": "there"}, "data": object{"k": "live"}})
	r := newPlannedRestore("")
	ofItems("po/there/web", "dependencies", "")(r)
	_, rows := b.planRestore(t, r)
	require.Len(t, rows, 3)
	require.Contains(t, rows["db"].Reasons, "comes along: Pod there/web reads it")
	require.Contains(t, rows["there"].Reasons, "comes along: objects of the restore live in it")

	ofItems("cm/there/web", "", "")(r)
	_, rows = b.planRestore(t, r)
	require.Len(t, rows, 2)
	require.Equal(t, "update", rows["web"].Action)
	require.Equal(t, []string{"data.k"}, rows["web"].Fields)
}
