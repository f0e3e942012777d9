package badinput

import (
	"encoding/json"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/discovery"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-io/holdfast/e2e/harness/site"
	"github.com/holdfast-io/holdfast/e2e/harness/testbed"
	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
)

// newObject makes an object of a kind the scheme does not know.
func newObject(apiVersion, kind, namespace, name string, fields map[string]any) *unstructured.Unstructured {
	u := &unstructured.Unstructured{Object: map[string]any{"apiVersion": apiVersion, "kind": kind}}
	for key, value := range fields {
		u.Object[key] = value
	}
	u.SetNamespace(namespace)
	u.SetName(name)
	return u
}

// registerAggregated registers an API group that a server on a port of this machine answers. ExternalName is
// the one type of Service the API server follows off the cluster.
func (b *bed) registerAggregated(t *testing.T, group string, port int) *unstructured.Unstructured {
	t.Helper()
	name, _, _ := strings.Cut(group, ".")
	b.createObject(t, &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name},
		Spec:       corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName, ExternalName: "localhost"},
	})
	service := newObject("apiregistration.k8s.io/v1", "APIService", "", "v1."+group, map[string]any{"spec": map[string]any{
		"group": group, "version": "v1", "insecureSkipTLSVerify": true, "groupPriorityMinimum": int64(1000), "versionPriority": int64(10),
		"service": map[string]any{"namespace": "default", "name": name, "port": int64(port)},
	}})
	b.createObject(t, service)
	return service
}

// awaitDiscovery waits until discovery answers for the group, or fails for it.
func (b *bed) awaitDiscovery(t *testing.T, group string, fails bool) {
	t.Helper()
	d, err := discovery.NewDiscoveryClientForConfig(b.Cluster.RestConfig())
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		_, lists, err := d.ServerGroupsAndResources()
		if failed, ok := discovery.GroupDiscoveryFailedErrorGroups(err); ok && fails {
			for gv := range failed {
				if gv.Group == group {
					return true
				}
			}
		}
		for _, list := range lists {
			if list.GroupVersion == group+"/v1" && len(list.APIResources) > 0 {
				return !fails
			}
		}
		return false
	}, site.Patience, 10*site.Look, "group %s is discovered", group)
}

// conversionFails stores an object at one version while the server prefers another and no webhook
// converts.
func (b *bed) conversionFails(t *testing.T) {
	t.Parallel()
	b.createEstate(t, "unconverted")
	ports, err := testbed.FreePorts(1)
	require.NoError(t, err)
	anything := &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{
		Type: "object", XPreserveUnknownFields: ptr.To(true)}}
	definition := &apiextensionsv1.CustomResourceDefinition{ObjectMeta: metav1.ObjectMeta{Name: "relics.old.example.com"}}
	definition.Spec = apiextensionsv1.CustomResourceDefinitionSpec{
		Group: "old.example.com", Scope: apiextensionsv1.NamespaceScoped,
		Names: apiextensionsv1.CustomResourceDefinitionNames{Plural: "relics", Kind: "Relic"},
		Versions: []apiextensionsv1.CustomResourceDefinitionVersion{
			{Name: "v1", Served: true, Storage: true, Schema: anything}, {Name: "v2", Served: true, Schema: anything},
		},
		Conversion: &apiextensionsv1.CustomResourceConversion{
			Strategy: apiextensionsv1.WebhookConverter,
			Webhook: &apiextensionsv1.WebhookConversion{
				ConversionReviewVersions: []string{"v1"},
				ClientConfig:             &apiextensionsv1.WebhookClientConfig{URL: ptr.To("https://127.0.0.1:" + strconv.Itoa(ports[0]) + "/convert")},
			},
		},
	}
	b.createObject(t, definition)
	require.Eventually(t, func() bool {
		return b.Client.Create(t.Context(), newObject("old.example.com/v1", "Relic", "unconverted", "urn", nil)) == nil
	}, site.Patience, 10*site.Look, "the definition is served")
	backup := b.runBackup(t, "unconverted", velerov1.BackupSpec{IncludedNamespaces: []string{"unconverted"}})
	b.oneError(t, backup, "unconverted", "unconverted", "relics.old.example.com", "conversion webhook")
}

// deadAPI is seen by every backup, so it runs alone.
func (b *bed) deadAPI(t *testing.T) {
	b.createEstate(t, "dead")
	ports, err := testbed.FreePorts(1)
	require.NoError(t, err)
	service := b.registerAggregated(t, "metrics.example.com", ports[0])
	b.awaitDiscovery(t, "metrics.example.com", true)
	backup := b.runBackup(t, "dead", velerov1.BackupSpec{IncludedNamespaces: []string{"dead"}})
	b.oneError(t, backup, "dead", "metrics.example.com/v1")

	restore := b.runRestore(t, "dead", velerov1.RestoreSpec{BackupName: "dead", NamespaceMapping: map[string]string{"dead": "dead-again"}})
	require.Equal(t, velerov1.RestorePhaseCompleted, restore.Status.Phase, restore.Status.FailureReason)
	b.requireRestored(t, "dead-again")
	require.NoError(t, b.Client.Delete(t.Context(), service))
}

// volumeNotTaken is a warning, and is said in the volume information.
func (b *bed) volumeNotTaken(t *testing.T) {
	t.Parallel()
	b.createEstate(t, "volumes")
	size := corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}
	modes := []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}
	volume := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "disk"}, Spec: corev1.PersistentVolumeSpec{
		Capacity: size, AccessModes: modes, StorageClassName: "manual",
		PersistentVolumeSource: corev1.PersistentVolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/nowhere"}}}}
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "volumes", Name: "data"}, Spec: corev1.PersistentVolumeClaimSpec{
		AccessModes: modes, StorageClassName: ptr.To("manual"), VolumeName: "disk", Resources: corev1.VolumeResourceRequirements{Requests: size}}}
	b.createObject(t, volume)
	b.createObject(t, claim)
	require.Eventually(t, func() bool {
		return b.Client.Get(t.Context(), client.ObjectKeyFromObject(claim), claim) == nil && claim.Status.Phase == corev1.ClaimBound
	}, site.Patience, site.Look, "the claim is bound")
	backup := b.runBackup(t, "volumes", velerov1.BackupSpec{IncludedNamespaces: []string{"volumes"}})
	r := b.readResults(t, "backups/volumes/volumes-results.gz")
	require.Equal(t, velerov1.BackupPhaseCompleted, backup.Status.Phase, "%v", r)
	require.Equal(t, 1, backup.Status.Warnings)
	warnings := r.messagesOf("warnings")
	require.Len(t, warnings, 1)
	require.Contains(t, warnings[0], "volumes: ")
	require.Contains(t, warnings[0], "data")
	var infos []map[string]any
	require.NoError(t, json.Unmarshal(b.bucket.ReadZipped(t, "backups/volumes/volumes-volumeinfo.json.gz"), &infos))
	require.Len(t, infos, 1)
	require.Equal(t, "data", infos[0]["pvcName"])
	require.Equal(t, "volumes", infos[0]["pvcNamespace"])
	require.Equal(t, "disk", infos[0]["pvName"])
	require.Equal(t, true, infos[0]["skipped"])
	require.NotEmpty(t, infos[0]["skippedReason"])
	b.hasEstate(t, "volumes", "volumes")
	require.Contains(t, b.savedObjects(t, "volumes"), "v1/PersistentVolumeClaim volumes/data")
}

// requireRestored requires the estate of a restored namespace.
func (b *bed) requireRestored(t *testing.T, namespace string) {
	t.Helper()
	config, secret := &corev1.ConfigMap{}, &corev1.Secret{}
	require.NoError(t, b.Client.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: "kept"}, config))
	require.Equal(t, newKeptConfigMap(namespace).Data, config.Data)
	require.NoError(t, b.Client.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: "hidden"}, secret))
	require.Equal(t, newHiddenSecret(namespace).Data, secret.Data)
}
