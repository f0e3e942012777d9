package apply

import (
	"k8s.io/apimachinery/pkg/runtime/schema"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
)

// ResetOptions are the facts of one restore. The functions must be safe for concurrent use.
type ResetOptions struct {
	// Backup and Restore are the names written into the labels of every object but namespaces.
	Backup, Restore string
	// MapNamespace returns the target of a namespace of the backup.
	MapNamespace func(string) string
	// PreserveNodePorts keeps every node port of Services, not only those that were asked for.
	PreserveNodePorts bool
	// PreserveAddresses keeps cluster IPs of Services and every node port.
	PreserveAddresses bool
	// Reprovision reports that the volume of that name is not brought back, so that its claim gets
	// a new one.
	Reprovision func(volume string) bool
}

// Skip is the reason why an object must not be restored.
type Skip struct {
	// Reason is for people, without the object's name.
	Reason string
	// Report makes it a warning; otherwise skipping is expected and only logged.
	Report bool
	// Ended reports that the object is a Job that ended: it is restored where that is asked for.
	Ended bool
}

// kindReset changes what one kind needs.
type kindReset func(obj object, o *ResetOptions)

// byResource holds the kinds whose own fields have to change. Keys are group resources as in
// tarball paths.
var byResource = map[string]kindReset{
	"namespaces":                      resetNamespace,
	"pods":                            resetPod,
	"jobs.batch":                      resetJob,
	"services":                        resetService,
	"serviceaccounts":                 resetServiceAccount,
	"secrets":                         resetSecret,
	"persistentvolumes":               resetVolume,
	"persistentvolumeclaims":          resetClaim,
	"endpointslices.discovery.k8s.io": resetSlice,
	"mutatingwebhookconfigurations.admissionregistration.k8s.io":   resetWebhooks,
	"validatingwebhookconfigurations.admissionregistration.k8s.io": resetWebhooks,
	"customresourcedefinitions.apiextensions.k8s.io":               resetDefinition,
	"schedules.velero.io":              resetSchedule,
	"backupstoragelocations.velero.io": resetLocation,
}

// PlaceObject gives a normalized object its target namespace and the labels of the restore. Only obj
// itself, its metadata and its labels are changed.
func PlaceObject(obj map[string]any, namespace string, o *ResetOptions) {
	meta := childObject(obj, "metadata")
	if meta == nil {
		meta = object{}
		obj["metadata"] = meta
	}
	if namespace != "" {
		meta["namespace"] = namespace
	}
	labels := childObject(meta, "labels")
	if labels == nil {
		labels = object{}
		meta["labels"] = labels
	}
	labels[velerov1.LabelBackupName] = velerov1.LabelValue(o.Backup)
	labels[velerov1.LabelRestoreName] = velerov1.LabelValue(o.Restore)
}

// NormalizeObject removes what does not survive a restore and leaves the object otherwise as it is. A
// live object and the stored one describe the same thing when they are equal after NormalizeObject,
// managed fields and restore labels aside.
func NormalizeObject(obj map[string]any, gr schema.GroupResource, o *ResetOptions) {
	resource := gr.String()
	if fn := byResource[resource]; fn != nil {
		fn(obj, o) // before the metadata: node ports are judged by managedFields
	}
	mapReferences(obj, resource, o)
	clearHolder(obj, resource)
	dropIdentities(obj, resource)
	Anonymize(obj)
	meta := childObject(obj, "metadata")
	dropKeys(meta, "ownerReferences")
	dropEmpty(meta, "labels", "annotations")
}

// NormalizeConverted makes an object ready to be created that was made of a normalized one of the resource was.
// What was mapped there is not mapped again. The owner references stay.
func NormalizeConverted(obj map[string]any, gr, was schema.GroupResource, o *ResetOptions) {
	again := *o
	if len(accountLists[was.String()]) > 0 {
		again.MapNamespace = nil
	}
	meta := childObject(obj, "metadata")
	owners, has := meta["ownerReferences"]
	NormalizeObject(obj, gr, &again)
	if has {
		meta["ownerReferences"] = owners
	}
}

// Anonymize removes what the API server writes itself. Only obj itself and its metadata are
// changed.
func Anonymize(obj map[string]any) {
	dropKeys(obj, "status")
	dropKeys(childObject(obj, "metadata"), "generateName", "selfLink", "uid", "resourceVersion", "generation", "creationTimestamp",
		"deletionTimestamp", "deletionGracePeriodSeconds", "managedFields")
}

// dropEmpty removes keys that hold null or an object without members: the API server stores
// neither.
func dropEmpty(o object, keys ...string) {
	for _, key := range keys {
		if m, isObject := o[key].(object); o[key] == nil || isObject && len(m) == 0 {
			delete(o, key)
		}
	}
}

// ResetNamespace makes a stored Namespace ready to be created under the name target. Namespaces carry no
// restore labels.
func ResetNamespace(obj map[string]any, target string) {
	NormalizeObject(obj, schema.GroupResource{Resource: "namespaces"}, &ResetOptions{})
	meta := childObject(obj, "metadata")
	if meta == nil {
		meta = object{}
		obj["metadata"] = meta
	}
	meta["name"] = target
}

// NamespaceLabel is the label by which the API server itself names a namespace.
const NamespaceLabel = "kubernetes.io/metadata.name"

func resetNamespace(obj object, _ *ResetOptions) {
	dropKeys(childObject(obj, "metadata", "labels"), NamespaceLabel)
}

// MakeComparable removes from a normalized object what differs without meaning anything: the labels of
// any restore, and owners in templates.
func MakeComparable(obj map[string]any) {
	dropTemplateOwners(obj)
	meta := childObject(obj, "metadata")
	dropKeys(childObject(meta, "labels"), velerov1.LabelBackupName, velerov1.LabelRestoreName)
	dropEmpty(meta, "labels")
}

// RestoreLabels returns the labels of a restore among those of an object.
func RestoreLabels(labels map[string]any) map[string]any {
	out := object{}
	for _, key := range []string{velerov1.LabelBackupName, velerov1.LabelRestoreName} {
		if v, ok := labels[key]; ok {
			out[key] = v
		}
	}
	return out
}
