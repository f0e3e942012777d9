package restore_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/types/known/structpb"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-io/holdfast/e2e/harness/seed"
	"github.com/holdfast-io/holdfast/e2e/harness/testbed"
	"github.com/holdfast-io/holdfast/pkg/apis/holdfast"
	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	planv1 "github.com/holdfast-io/holdfast/proto/gen/holdfast/plan/v1"
	restorev1 "github.com/holdfast-io/holdfast/proto/gen/holdfast/restore/v1"
)

// collision is an object of the backup, what the cluster has in its place, and what is planned for it.
type collision struct {
	stored *unstructured.Unstructured
	live   *unstructured.Unstructured // nil for none
	action string
	fields []string
	reason string
}

func newConfigMap(namespace, name, value string, labels fields) *unstructured.Unstructured {
	return newObject("v1", "ConfigMap", namespace, name, fields{"metadata": fields{"labels": labels}, "data": fields{"k": value}})
}

func newNodePortService(name string) *unstructured.Unstructured {
	return newObject("v1", "Service", "met", name, fields{"spec": fields{"type": "NodePort", "ports": []any{fields{"port": int64(80), "protocol": "TCP", "nodePort": int64(31234)}}}})
}

func newVolume(name, size, claimUID string) *unstructured.Unstructured {
	return newObject("v1", "PersistentVolume", "", name, fields{"spec": fields{
		"capacity": fields{"storage": size}, "accessModes": []any{"ReadWriteOnce"}, "persistentVolumeReclaimPolicy": "Retain", "storageClassName": "",
		"hostPath": fields{"path": "/x"}, "claimRef": fields{"namespace": "met", "name": "gone", "uid": claimUID},
	}})
}

func newSelectingDeployment(name, app string) *unstructured.Unstructured {
	labels := fields{"app": app}
	return newObject("apps/v1", "Deployment", "met", name, fields{"spec": fields{"replicas": int64(0), "selector": fields{"matchLabels": labels}, "template": fields{
		"metadata": fields{"labels": labels}, "spec": fields{"containers": []any{fields{"name": "a", "image": "a"}}}}}})
}

// collisions are one of each kind. The policy is update, and creations are tried by the API server.
func collisions() map[string]collision {
	ended := newObject("batch/v1", "Job", "met", "ended", fields{"spec": fields{"template": fields{"spec": fields{"restartPolicy": "Never", "containers": []any{fields{"name": "a", "image": "a"}}}}},
		"status": fields{"completionTime": "2026-01-01T00:00:00Z", "conditions": []any{fields{"type": "Complete", "status": "True"}}}})
	definition := newObject("apiextensions.k8s.io/v1", "CustomResourceDefinition", "", "gizmos.plan.example.org", fields{"spec": fields{
		"group": "plan.example.org", "scope": "Namespaced", "names": fields{"plural": "gizmos", "singular": "gizmo", "kind": "Gizmo", "listKind": "GizmoList"},
		"versions": []any{fields{"name": "v1", "served": true, "storage": true, "schema": fields{"openAPIV3Schema": fields{"type": "object", "x-kubernetes-preserve-unknown-fields": true}}}}}})
	return map[string]collision{
		"equal":                 {stored: newConfigMap("met", "equal", "a", nil), live: newConfigMap("met", "equal", "a", nil), action: "unchanged"},
		"different":             {stored: newConfigMap("met", "different", "a", nil), live: newConfigMap("met", "different", "b", nil), action: "update", fields: []string{"data.k"}},
		"immutable field":       {stored: newSelectingDeployment("immutable", "a"), live: newSelectingDeployment("immutable", "b"), action: "conflict", reason: "field is immutable"},
		"missing":               {stored: newConfigMap("met", "missing", "a", nil), action: "create"},
		"kind not served":       {stored: newObject("absent.example.org/v1", "Gadget", "met", "gadget", nil), action: "error", reason: "does not serve"},
		"kind that is restored": {stored: newObject("plan.example.org/v1", "Gizmo", "met", "gizmo", nil), action: "create", reason: "after CustomResourceDefinition"},
		"definition":            {stored: definition, action: "create"},
		"terminating namespace": {stored: newConfigMap("leaving", "leaves", "a", nil), live: newConfigMap("leaving", "leaves", "b", nil), action: "create"},
		"mapped namespace":      {stored: newConfigMap("from", "mapped", "a", nil), live: newConfigMap("to", "mapped", "b", nil), action: "update", fields: []string{"data.k"}},
		"quota":                 {stored: newConfigMap("full", "refused", "a", nil), action: "error", reason: "exceeded quota"},
		"taken node port":       {stored: newNodePortService("web"), live: nil, action: "create", reason: "could not be kept"},
		"Released volume":       {stored: newVolume("released", "1Gi", "stored-uid"), live: newVolume("released", "2Gi", "live-uid"), action: "update"},
		"admission":             {stored: newConfigMap("met", "denied", "a", fields{"denied": "yes"}), action: "error", reason: "no such labels"},
		"ended Job":             {stored: ended, action: "skip", reason: "not restored"},
	}
}

// storeEstate stores a sample estate of more than a thousand objects and the collisions as a backup of Velero's, and
// brings the cluster into the state of the collisions.
func storeEstate(t *testing.T, b *bench, all map[string]collision) {
	estate := seed.Options{}
	_, err := seed.Apply(t.Context(), b.config, estate)
	require.NoError(t, err)
	backup := b.createBackup(t, "b")
	backup.addCluster(t, b.config, estate.Namespaces(), seed.Selector())
	_, err = seed.Remove(t.Context(), b.config)
	require.NoError(t, err)
	for _, namespace := range []string{"met", "full", "to", "leaving"} {
		require.NoError(t, b.client.Create(t.Context(), newObject("v1", "Namespace", "", namespace, nil)))
	}
	plurals := map[string]string{"ConfigMap": "configmaps", "Deployment": "deployments", "Gadget": "gadgets", "Gizmo": "gizmos", "CustomResourceDefinition": "customresourcedefinitions",
		"Service": "services", "PersistentVolume": "persistentvolumes", "Job": "jobs"}
	for name, c := range all {
		gvk := c.stored.GroupVersionKind()
		backup.addObject(t, schema.GroupVersionResource{Group: gvk.Group, Version: gvk.Version, Resource: plurals[gvk.Kind]}, c.stored)
		if c.live == nil {
			continue
		}
		if c.stored.GetNamespace() == "leaving" {
			c.live.SetFinalizers([]string{"example.org/stay"})
		}
		require.NoError(t, b.client.Create(t.Context(), c.live.DeepCopy()), name)
	}
	backup.closeTarball(t)
	taken := newNodePortService("holder")
	taken.SetNamespace("to")
	require.NoError(t, b.client.Create(t.Context(), taken))
	require.NoError(t, b.client.Create(t.Context(), newObject("v1", "ResourceQuota", "full", "none", fields{"spec": fields{"hard": fields{"count/configmaps": "1"}}})))
	denyLabels(t, b)
	require.NoError(t, b.client.Delete(t.Context(), newObject("v1", "Namespace", "", "leaving", nil)))
	require.Eventually(t, func() bool {
		quota, leaving := &corev1.ResourceQuota{}, &corev1.Namespace{}
		require.NoError(t, b.client.Get(t.Context(), client.ObjectKey{Namespace: "full", Name: "none"}, quota))
		require.NoError(t, b.client.Get(t.Context(), client.ObjectKey{Name: "leaving"}, leaving))
		emptied := slices.ContainsFunc(leaving.Status.Conditions, func(c corev1.NamespaceCondition) bool {
			return c.Type == corev1.NamespaceFinalizersRemaining && c.Status == corev1.ConditionTrue
		})
		err := b.client.Create(t.Context(), newConfigMap("met", "probe", "a", fields{"denied": "yes"}), client.DryRunAll)
		return emptied && len(quota.Status.Used) > 0 && apierrors.IsInvalid(err)
	}, testbed.Patience, 100*time.Millisecond)
}

// denyLabels has admission refuse ConfigMaps with a label.
func denyLabels(t *testing.T, b *bench) {
	rules := fields{"resourceRules": []any{fields{"apiGroups": []any{""}, "apiVersions": []any{"v1"}, "operations": []any{"CREATE"}, "resources": []any{"configmaps"}}}}
	policy := newObject("admissionregistration.k8s.io/v1", "ValidatingAdmissionPolicy", "", "labels", fields{"spec": fields{"failurePolicy": "Fail", "matchConstraints": rules,
		"validations": []any{fields{"expression": "!has(object.metadata.labels) || !('denied' in object.metadata.labels)", "message": "no such labels"}}}})
	binding := newObject("admissionregistration.k8s.io/v1", "ValidatingAdmissionPolicyBinding", "", "labels", fields{"spec": fields{"policyName": "labels", "validationActions": []any{"Deny"}}})
	require.NoError(t, b.client.Create(t.Context(), policy))
	require.NoError(t, b.client.Create(t.Context(), binding))
}

// planRestore asks the runner for a plan.
func (b *bench) planRestore(t *testing.T, spec *velerov1.RestoreSpec) (*planv1.Plan, []*planv1.PlannedObject) {
	t.Helper()
	conn, err := grpc.NewClient(b.runner, grpc.WithTransportCredentials(insecure.NewCredentials()))
	require.NoError(t, err)
	defer conn.Close()
	text, err := json.Marshal(spec)
	require.NoError(t, err)
	in := &structpb.Struct{}
	require.NoError(t, protojson.Unmarshal(text, in))
	stream, err := restorev1.NewRestoreServiceClient(conn).PlanRestore(t.Context(), &restorev1.PlanRestoreRequest{Spec: in, ServerDryRun: true, Objects: true})
	require.NoError(t, err)
	var plan *planv1.Plan
	var objects []*planv1.PlannedObject
	for {
		m, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return plan, objects
		}
		require.NoError(t, err)
		if m.GetPlan() != nil {
			plan = m.GetPlan()
		} else if m.GetObject() != nil {
			objects = append(objects, m.GetObject())
		}
	}
}

// versions returns the version of every object in the cluster, but of what its controllers write all the time.
func (b *bench) versions(t *testing.T) map[string]string {
	t.Helper()
	config := rest.CopyConfig(b.config)
	config.QPS, config.WarningHandler = -1, rest.NoWarnings{}
	discoverer, err := discovery.NewDiscoveryClientForConfig(config)
	require.NoError(t, err)
	all, err := dynamic.NewForConfig(config)
	require.NoError(t, err)
	lists, err := discoverer.ServerPreferredResources()
	require.NoError(t, err)
	out := map[string]string{}
	for _, list := range lists {
		gv, err := schema.ParseGroupVersion(list.GroupVersion)
		require.NoError(t, err)
		for _, r := range list.APIResources {
			if !slices.Contains(r.Verbs, "list") || slices.Contains([]string{"leases", "events", "componentstatuses"}, r.Name) {
				continue
			}
			found, err := all.Resource(gv.WithResource(r.Name)).List(t.Context(), metav1.ListOptions{})
			require.NoError(t, err, r.Name)
			for _, o := range found.Items {
				if o.GetName() != "leaving" {
					out[gv.WithResource(r.Name).String()+" "+o.GetNamespace()+"/"+o.GetName()] = o.GetResourceVersion()
				}
			}
		}
	}
	return out
}

func (b *bench) files(t *testing.T) (files []string) {
	t.Helper()
	require.NoError(t, filepath.WalkDir(b.bucket, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		info, err := d.Info()
		files = append(files, fmt.Sprintf("%s, %d bytes of %s", path, info.Size(), info.ModTime()))
		return err
	}))
	return files
}

// TestAPlanSaysWhatARestoreDoes plans the restore of a thousand objects with a conflict of each kind, executes the plan
// and compares each outcome.
func TestAPlanSaysWhatARestoreDoes(t *testing.T) {
	b := startBench(t)
	location := &velerov1.BackupStorageLocation{}
	require.NoError(t, b.client.Get(t.Context(), client.ObjectKey{Namespace: "velero", Name: "default"}, location))
	location.Status.Phase = velerov1.LocationPhaseAvailable
	require.NoError(t, b.client.Update(t.Context(), location))
	met := collisions()
	storeEstate(t, b, met)
	preserve := true
	spec := velerov1.RestoreSpec{BackupName: "b", ExistingResourcePolicy: velerov1.PolicyTypeUpdate, NamespaceMapping: map[string]string{"from": "to"}, PreserveNodePorts: &preserve}

	versions, files, mark := b.versions(t), b.files(t), b.audit.Mark(t)
	plan, objects := b.planRestore(t, &spec)
	require.Equal(t, versions, b.versions(t), "a dry run changes no object")
	require.Empty(t, b.audit.Writes(t, mark), "nor does it ask for that")
	after := b.files(t)
	require.Subset(t, after, files)
	require.Len(t, after, len(files)+2, "it stores the plan alone")
	require.Greater(t, len(objects), 1000)
	rows := map[string]*planv1.PlannedObject{}
	for _, o := range objects {
		rows[o.GetKind()+" "+o.GetNamespace()+"/"+o.GetName()] = o
	}
	for name, c := range met {
		row := rows[c.stored.GetKind()+" "+c.stored.GetNamespace()+"/"+c.stored.GetName()]
		require.Equal(t, c.action, row.GetAction(), "%s: %v", name, row)
		if c.fields != nil {
			require.Equal(t, c.fields, row.GetFields(), name)
		}
		if c.reason != "" {
			require.Contains(t, row.String(), c.reason, name)
		}
	}

	leaves := met["terminating namespace"].live
	require.NoError(t, b.client.Get(t.Context(), client.ObjectKeyFromObject(leaves), leaves))
	leaves.SetFinalizers(nil)
	require.NoError(t, b.client.Update(t.Context(), leaves))
	executed := spec
	executed.ExcludedResources = []string{"nodes", "events", "events.events.k8s.io", "backups.velero.io", "restores.velero.io", "resticrepositories.velero.io", "csinodes.storage.k8s.io", "volumeattachments.storage.k8s.io", "backuprepositories.velero.io"}
	restore := b.runRestore(t, "r", executed, func(r *velerov1.Restore) { r.Annotations = map[string]string{holdfast.AnnotationPlan: plan.GetId()} })
	require.Equal(t, velerov1.RestorePhasePartiallyFailed, restore.Status.Phase, "%s %v", restore.Status.FailureReason, restore.Status.ValidationErrors)
	require.NotContains(t, b.readMessages(t, "r"), "differs from plan")
	outcomes := b.readActions(t, "r")
	become := map[string]string{"create": "created", "update": "updated", "unchanged": "skipped", "skip": "skipped", "conflict": "failed", "error": "failed"}
	for _, o := range objects {
		version, name := o.GetVersion(), o.GetName()
		if o.GetGroup() != "" {
			version = o.GetGroup() + "/" + version
		}
		namespace := o.GetTargetNamespace()
		if namespace == "" {
			namespace = o.GetNamespace()
		}
		if namespace != "" && o.GetNamespace() != "" {
			name = namespace + "/" + name
		}
		key := version + "/" + o.GetKind() + " " + name
		if len(o.GetUnknown()) == 0 {
			require.Equal(t, become[o.GetAction()], outcomes[key], "%s: %v", key, o)
		}
	}
}
