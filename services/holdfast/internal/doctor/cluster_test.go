package doctor_test

import (
	"context"
	"errors"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-io/holdfast/services/holdfast/internal/doctor"
)

var errForbidden = apierrors.NewForbidden(schema.GroupResource{Resource: "things"}, "any", nil)

func servedSnapshotAPI() []*metav1.APIResourceList {
	return []*metav1.APIResourceList{{GroupVersion: "snapshot.storage.k8s.io/v1", APIResources: []metav1.APIResource{{Name: "volumesnapshots"}}}}
}

func TestKubernetes(t *testing.T) {
	b := newBed(t)
	requireFine(t, b.runCheck("kubernetes"))
	b.server = "v0.0.0-master+$Format:%H$"
	requireFine(t, b.runCheck("kubernetes"))
	b.server = "v1.29.9"
	requireFinding(t, doctor.Failed, b.runCheck("kubernetes"), "version", "v1.29.9")
	b.server = "v1.30.0"
	requireFine(t, b.runCheck("kubernetes"))
	b.server = "unknown"
	requireFinding(t, doctor.Warning, b.runCheck("kubernetes"), "unknown")
}

func TestAGroupThatDoesNotAnswer(t *testing.T) {
	b := newBed(t)
	b.broken = &discovery.ErrGroupDiscoveryFailed{Groups: map[schema.GroupVersion]error{{Group: "metrics.k8s.io", Version: "v1beta1"}: errors.New("away")}}
	requireFinding(t, doctor.Warning, b.runCheck("kubernetes"), "metrics.k8s.io/v1beta1")
	b.broken = errors.New("away")
	requireFinding(t, doctor.Failed, b.runCheck("kubernetes"), "discovery")
}

func TestTheSnapshotAPIIsNeededWhereCSIIsOn(t *testing.T) {
	b := newBed(t)
	b.objects = asObjects(chartDeployments("--features=Other,EnableCSI"))
	requireFinding(t, doctor.Failed, b.runCheck("kubernetes"), "snapshot.storage.k8s.io/v1", "EnableCSI")
	b.apis = servedSnapshotAPI()
	requireFine(t, b.runCheck("kubernetes"))
	b = newBed(t)
	b.adapt = func(c *doctor.Config) { c.Features = []string{"EnableCSI"} }
	requireFinding(t, doctor.Failed, b.runCheck("kubernetes"), "snapshot.storage.k8s.io/v1")
}

func TestDefinitions(t *testing.T) {
	list := servedDefinitions(t)
	b := newBed(t)
	b.objects = asObjects(list)
	requireFine(t, b.runCheck("definitions"))

	b.objects = asObjects(list[1:])
	requireFinding(t, doctor.Failed, b.runCheck("definitions"), list[0].Name, "missing")

	older := list[1].DeepCopy()
	delete(older.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties["spec"].Properties, "uploaderConfig")
	b.objects = append(asObjects(list[2:]), list[0], older)
	require.Equal(t, "backups.velero.io", older.Name)
	requireFinding(t, doctor.Failed, b.runCheck("definitions"), "backups.velero.io", "v1.spec.uploaderConfig")

	for word, change := range map[string]func(*apiextensionsv1.CustomResourceDefinition){
		"Established": func(c *apiextensionsv1.CustomResourceDefinition) { c.Status.Conditions = nil },
		"names are taken": func(c *apiextensionsv1.CustomResourceDefinition) {
			c.Status.Conditions = append(c.Status.Conditions, apiextensionsv1.CustomResourceDefinitionCondition{Type: apiextensionsv1.NamesAccepted, Status: apiextensionsv1.ConditionFalse, Message: "backup"})
		},
		"scope": func(c *apiextensionsv1.CustomResourceDefinition) { c.Spec.Scope = apiextensionsv1.ClusterScoped },
	} {
		changed := list[1].DeepCopy()
		change(changed)
		b.objects = append(asObjects(list[2:]), list[0], changed)
		requireFinding(t, doctor.Failed, b.runCheck("definitions"), "backups.velero.io", word)
	}
}

// Who may not read definitions gets what discovery shows.
func TestDefinitionsByDiscovery(t *testing.T) {
	b := newBed(t)
	b.err = func(verb string, obj any) error {
		if _, ok := obj.(*apiextensionsv1.CustomResourceDefinition); ok && verb == "get" {
			return errForbidden
		}
		return nil
	}
	requireFinding(t, doctor.Warning, b.runCheck("definitions"), "every kind is served")
	b.adapt = func(c *doctor.Config) {
		c.Missing = func(context.Context) ([]string, error) { return []string{"backups.velero.io/v1"}, nil }
	}
	requireFinding(t, doctor.Failed, b.runCheck("definitions"), "backups.velero.io/v1")
}

func veleroDeployment(namespace string, ready int32, container corev1.Container) *appsv1.Deployment {
	return &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "server"},
		Spec:       appsv1.DeploymentSpec{Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{Containers: []corev1.Container{container}}}},
		Status:     appsv1.DeploymentStatus{ReadyReplicas: ready},
	}
}

func TestVeleroBesideIt(t *testing.T) {
	b := newBed(t)
	b.objects = append(asObjects(chartDeployments()), veleroDeployment("velero", 1, corev1.Container{Image: "example.com/app:v1", Args: []string{"server"}}))
	requireFine(t, b.runCheck("velero"))

	here := corev1.Container{Image: "docker.io/velero/velero:v1.18.0", Args: []string{"server"}, Env: []corev1.EnvVar{
		{Name: "VELERO_NAMESPACE", ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.namespace"}}},
	}}
	b.objects = asObjects([]*appsv1.Deployment{veleroDeployment("velero", 1, here)})
	requireFinding(t, doctor.Failed, b.runCheck("velero"), "velero/server", "same objects")
	b.objects = asObjects([]*appsv1.Deployment{veleroDeployment("velero", 0, here)})
	requireFinding(t, doctor.Warning, b.runCheck("velero"), "not ready")
	down := veleroDeployment("velero", 0, here)
	down.Spec.Replicas = ptr.To[int32](0)
	b.objects = asObjects([]*appsv1.Deployment{down})
	requireFine(t, b.runCheck("velero"))

	elsewhere := corev1.Container{Image: "velero/velero@sha256:00", Command: []string{"/velero"}, Args: []string{"server", "--namespace", "velero"}}
	b.objects = asObjects([]*appsv1.Deployment{veleroDeployment("other", 1, elsewhere)})
	requireFinding(t, doctor.Failed, b.runCheck("velero"), "other/server", "same objects")
	elsewhere.Args = []string{"server"}
	elsewhere.Env = []corev1.EnvVar{{Name: "VELERO_NAMESPACE", Value: "velero"}}
	b.objects = asObjects([]*appsv1.Deployment{veleroDeployment("other", 1, elsewhere)})
	requireFinding(t, doctor.Failed, b.runCheck("velero"), "other/server", "same objects")
	labelled := veleroDeployment("velero", 1, corev1.Container{Image: "registry/vendored:1"})
	labelled.Labels = map[string]string{"component": "velero"}
	b.objects = asObjects([]*appsv1.Deployment{labelled})
	requireFinding(t, doctor.Failed, b.runCheck("velero"), "velero/server")
}

// paged lists Deployments one by one.
type paged struct{ client.Client }

// List implements client.Reader.
func (p *paged) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	page, ok := list.(*appsv1.DeploymentList)
	options := (&client.ListOptions{}).ApplyOptions(opts)
	if err := p.Client.List(ctx, list, opts...); err != nil || !ok || options.Limit == 0 {
		return err
	}
	at, _ := strconv.Atoi(options.Continue)
	if at+1 < len(page.Items) {
		page.Continue = strconv.Itoa(at + 1)
	}
	page.Items = page.Items[at : at+1]
	return nil
}

func TestVeleroOnTheLastPage(t *testing.T) {
	b := newBed(t)
	last := veleroDeployment("velero", 1, corev1.Container{Image: "velero/velero:v1.18.0", Args: []string{"server"}, Env: []corev1.EnvVar{{Name: "VELERO_NAMESPACE", Value: "velero"}}})
	b.objects = append(asObjects(chartDeployments()), last)
	b.adapt = func(c *doctor.Config) { c.Client = &paged{c.Client} }
	requireFinding(t, doctor.Failed, b.runCheck("velero"), "velero/server", "same objects")
}

func TestVeleroOfAnotherNamespaceWithTheSameBucket(t *testing.T) {
	server := veleroDeployment("other", 1, corev1.Container{Image: "velero/velero:v1.18.0", Args: []string{"server"}, Env: []corev1.EnvVar{{Name: "VELERO_NAMESPACE", Value: "other"}}})
	theirs := newLocation("theirs", "/backups/")
	theirs.Namespace = "other"
	b := newBed(t)
	b.objects = append(asObjects([]*appsv1.Deployment{server}), theirs, newLocation("ours", "backups"))
	requireFinding(t, doctor.Warning, b.runCheck("velero"), "ours", "namespace other")
	b.objects = append(asObjects([]*appsv1.Deployment{server}), theirs, newLocation("ours", "mine"))
	requireFine(t, b.runCheck("velero"))
}

func TestWhoMayNotListDeploymentsElsewhere(t *testing.T) {
	b := newBed(t)
	b.objects = asObjects([]*appsv1.Deployment{veleroDeployment("velero", 1, corev1.Container{Image: "velero/velero:v1.18.0", Args: []string{"server"}})})
	b.err = func(verb string, _ any) error {
		if verb == "list all" {
			return errForbidden
		}
		return nil
	}
	found := b.runCheck("velero")
	requireFinding(t, doctor.Skipped, found, "only velero")
	requireFinding(t, doctor.Failed, found, "same objects")
	b.err = func(string, any) error { return errForbidden }
	requireFinding(t, doctor.Failed, b.runCheck("velero"), "cannot be listed")
}
