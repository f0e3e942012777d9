package operations

import (
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const (
	group = "operations.example.com"
	// works is the resource of the operations.
	works = "works"
	// orderKey is the annotation of the objects that operations are begun for.
	orderKey = group + "/order"
	// restoreOrderKey is that of the objects that operations are begun for when they are restored.
	restoreOrderKey = group + "/restore-order"
	// unit is what operations count.
	unit = "Steps"
)

// operationOrder is what the plugins do for an object, as JSON in its annotation.
type operationOrder struct {
	// Seconds is how long the operation takes once it runs, Fails what it ends with; empty for
	// success.
	Seconds float64 `json:"seconds,omitempty"`
	Fails   string  `json:"fails,omitempty"`
	// Start and Cancel are how these calls go, in another way than the usual one.
	Start  workBehaviour `json:"start,omitempty"`
	Cancel workBehaviour `json:"cancel,omitempty"`
}

// workBehaviour is what becomes of a call.
type workBehaviour string

const (
	blocks  workBehaviour = "blocks"  // Start waits for calls.releaseOperations after it began the operation
	held    workBehaviour = "held"    // the time of the operation begins with calls.releaseOperations
	refuses workBehaviour = "refuses" // Cancel is not accepted
)

// What operations end as.
const (
	done      = "done"
	failed    = "failed"
	cancelled = "cancelled"
)

// workObject is an operation: a custom resource that the plugins make and the controller advances.
type workObject struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	Spec              workSpec   `json:"spec"`
	Status            workStatus `json:"status"`
}

// workSpec holds the result too: what a restore brings back has no status.
type workSpec struct {
	Order operationOrder `json:"order"`
	// Backup is the name of the backup, or restore.
	Backup string `json:"backup"`
	Item   string `json:"item"`
	// Key is the idempotency key it was begun with; empty in Velero's protocol, which has none.
	Key       string `json:"key,omitempty"`
	Cancelled bool   `json:"cancelled,omitempty"`
	Result    string `json:"result,omitempty"`
}

type workStatus struct {
	Phase   string            `json:"phase,omitempty"`
	Started *metav1.MicroTime `json:"started,omitempty"`
	Steps   int64             `json:"steps,omitempty"`
}

// total is how many steps an operation has.
const total = 4

// workID is the operation's identifier.
func (w *workObject) workID() string { return w.Namespace + "/" + w.Name }

// startedAt is nil for a work that does not run yet.
func (w *workObject) startedAt() time.Time {
	if w.Status.Started == nil {
		return time.Time{}
	}
	return w.Status.Started.Time
}

// DeepCopyObject implements runtime.Object.
func (w *workObject) DeepCopyObject() runtime.Object {
	c := *w
	w.ObjectMeta.DeepCopyInto(&c.ObjectMeta)
	c.Status.Started = w.Status.Started.DeepCopy()
	return &c
}

type workList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata"`
	Items           []workObject `json:"items"`
}

// DeepCopyObject implements runtime.Object.
func (l *workList) DeepCopyObject() runtime.Object {
	c := *l
	c.Items = make([]workObject, len(l.Items))
	for i := range l.Items {
		c.Items[i] = *l.Items[i].DeepCopyObject().(*workObject)
	}
	return &c
}

// newWorks makes a client of works.
func newWorks(config *rest.Config) (client.Client, error) {
	version := schema.GroupVersion{Group: group, Version: "v1"}
	scheme := runtime.NewScheme()
	scheme.AddKnownTypeWithName(version.WithKind("Work"), &workObject{})
	scheme.AddKnownTypeWithName(version.WithKind("WorkList"), &workList{})
	metav1.AddToGroupVersion(scheme, version)
	config = rest.CopyConfig(config)
	config.QPS = -1
	return client.New(config, client.Options{Scheme: scheme})
}

// workDefinition defines works.
func workDefinition() *apiextensionsv1.CustomResourceDefinition {
	anything := apiextensionsv1.JSONSchemaProps{Type: "object", XPreserveUnknownFields: new(true)}
	d := &apiextensionsv1.CustomResourceDefinition{ObjectMeta: metav1.ObjectMeta{Name: works + "." + group}}
	d.Spec.Group, d.Spec.Scope = group, apiextensionsv1.NamespaceScoped
	d.Spec.Names = apiextensionsv1.CustomResourceDefinitionNames{Kind: "Work", ListKind: "WorkList", Plural: works, Singular: "work"}
	d.Spec.Versions = []apiextensionsv1.CustomResourceDefinitionVersion{{
		Name: "v1", Served: true, Storage: true,
		Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{
			Type: "object", Properties: map[string]apiextensionsv1.JSONSchemaProps{"spec": anything, "status": anything},
		}},
	}}
	return d
}
