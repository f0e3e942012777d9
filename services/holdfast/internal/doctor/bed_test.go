package doctor_test

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	appsv1 "k8s.io/api/apps/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/version"
	"k8s.io/client-go/discovery"
	fakediscovery "k8s.io/client-go/discovery/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/holdfast-io/holdfast/pkg/apis/crds"
	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/kube"
	"github.com/holdfast-io/holdfast/pkg/service/rights"
	"github.com/holdfast-io/holdfast/services/holdfast/internal/doctor"
)

// bed is a cluster in which nothing is wrong, until a test changes it.
type bed struct {
	t       *testing.T
	objects []client.Object
	server  string
	// apis are what discovery shows beside nothing; broken is the error of its groups.
	apis   []*metav1.APIResourceList
	broken error
	// denied refuses a review of a user, "" for the caller; err fails requests by verb and kind.
	denied func(user, request string) bool
	err    func(verb string, obj any) error
	adapt  func(*doctor.Config)
}

func newBed(t *testing.T) *bed {
	return &bed{t: t, server: "v1.34.1", denied: func(string, string) bool { return false }, err: func(string, any) error { return nil }, adapt: func(*doctor.Config) {}}
}

// runCheck runs one check.
func (b *bed) runCheck(check string) []doctor.Finding {
	b.t.Helper()
	base := fake.NewClientBuilder().WithScheme(kube.Scheme()).WithObjects(b.objects...).Build()
	c := interceptor.NewClient(base, interceptor.Funcs{
		Create: func(_ context.Context, _ client.WithWatch, obj client.Object, _ ...client.CreateOption) error {
			return b.reviewAccess(obj)
		},
		Get: func(ctx context.Context, w client.WithWatch, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
			if err := b.err("get", obj); err != nil {
				return err
			}
			return w.Get(ctx, key, obj, opts...)
		},
		List: func(ctx context.Context, w client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
			o := (&client.ListOptions{}).ApplyOptions(opts)
			verb := "list"
			if o.Namespace == "" {
				verb = "list all"
			}
			if err := b.err(verb, list); err != nil {
				return err
			}
			return w.List(ctx, list, opts...)
		},
	})
	cfg := doctor.Config{
		Namespace: "velero", Clock: clock.RealClock{}, Client: c, Timeout: time.Minute,
		Discovery: &discovering{
			FakeDiscovery: &fakediscovery.FakeDiscovery{Fake: &clienttesting.Fake{Resources: b.apis}, FakedServerVersion: &version.Info{GitVersion: b.server}},
			broken:        b.broken,
		},
		Missing: func(context.Context) ([]string, error) { return nil, nil },
		Named:   func(string) bool { return false },
		Dial:    func(string, string) (*grpc.ClientConn, error) { return nil, context.DeadlineExceeded },
	}
	b.adapt(&cfg)
	report := doctor.Run(b.t.Context(), cfg, []string{check})
	for _, f := range report.Findings {
		require.Equal(b.t, check, f.Check)
		require.NotEmpty(b.t, f.Message)
		if f.Status == doctor.Failed || f.Status == doctor.Warning {
			require.NotEmpty(b.t, f.Remedy, "%+v", f)
		}
	}
	return report.Findings
}

func (b *bed) reviewAccess(obj client.Object) error {
	if err := b.err("create", obj); err != nil {
		return err
	}
	switch r := obj.(type) {
	case *authorizationv1.SelfSubjectAccessReview:
		r.Status.Allowed = !b.denied("", rights.Request{Resource: r.Spec.ResourceAttributes, Path: r.Spec.NonResourceAttributes}.String())
	case *authorizationv1.SubjectAccessReview:
		require.Equal(b.t, []string{"system:serviceaccounts", "system:serviceaccounts:velero", "system:authenticated"}, r.Spec.Groups)
		r.Status.Allowed = !b.denied(r.Spec.User, rights.Request{Resource: r.Spec.ResourceAttributes, Path: r.Spec.NonResourceAttributes}.String())
	default:
		b.t.Errorf("created: %T", obj)
	}
	return nil
}

// discovering has discovery fail for some groups.
type discovering struct {
	*fakediscovery.FakeDiscovery
	broken error
}

// ServerGroupsAndResources implements discovery.DiscoveryInterface.
func (d *discovering) ServerGroupsAndResources() ([]*metav1.APIGroup, []*metav1.APIResourceList, error) {
	return nil, nil, d.broken
}

var _ discovery.DiscoveryInterface = (*discovering)(nil)

// findingsWith returns the findings with a status, as "subject: message".
func findingsWith(status doctor.Status, findings []doctor.Finding) []string {
	var out []string
	for _, f := range findings {
		if f.Status == status {
			out = append(out, f.Subject+": "+f.Message)
		}
	}
	return out
}

// requireFinding requires that exactly one finding has the status and that its text has the words.
func requireFinding(t *testing.T, status doctor.Status, findings []doctor.Finding, words ...string) {
	t.Helper()
	texts := findingsWith(status, findings)
	require.Len(t, texts, 1, "%+v", findings)
	for _, word := range words {
		require.Contains(t, texts[0], word)
	}
}

// requireFine requires that nothing failed, nothing is worth a warning and something was checked.
func requireFine(t *testing.T, findings []doctor.Finding) {
	t.Helper()
	require.NotEmpty(t, findingsWith(doctor.OK, findings))
	for _, f := range findings {
		require.Equal(t, doctor.OK, f.Status, "%+v", f)
	}
}

// servedDefinitions are those of the cluster, served.
func servedDefinitions(t *testing.T) []*apiextensionsv1.CustomResourceDefinition {
	t.Helper()
	list, err := crds.All()
	require.NoError(t, err)
	for _, crd := range list {
		crd.Status.Conditions = []apiextensionsv1.CustomResourceDefinitionCondition{{Type: apiextensionsv1.Established, Status: apiextensionsv1.ConditionTrue}}
	}
	return list
}

func asObjects[T client.Object](list []T) []client.Object {
	out := make([]client.Object, len(list))
	for i, o := range list {
		out[i] = o
	}
	return out
}

// chartDeployments are those of the chart, with further arguments.
func chartDeployments(args ...string) []*appsv1.Deployment {
	var out []*appsv1.Deployment
	for _, name := range rights.Services() {
		out = append(out, &appsv1.Deployment{
			ObjectMeta: metav1.ObjectMeta{Namespace: "velero", Name: "release-" + name, Labels: map[string]string{
				"app.kubernetes.io/part-of": "holdfast", "app.kubernetes.io/component": name, "app.kubernetes.io/version": "v1",
			}},
			Spec: appsv1.DeploymentSpec{Replicas: ptr.To[int32](2), Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{
				ServiceAccountName: "account-" + name, Containers: []corev1.Container{{Name: name, Args: args}},
			}}},
			Status: appsv1.DeploymentStatus{ReadyReplicas: 2},
		})
	}
	return out
}

func newLocation(name, bucket string) *velerov1.BackupStorageLocation {
	return &velerov1.BackupStorageLocation{
		ObjectMeta: metav1.ObjectMeta{Namespace: "velero", Name: name},
		Spec: velerov1.BackupStorageLocationSpec{
			Provider: "aws", StorageType: velerov1.StorageType{ObjectStorage: &velerov1.ObjectStorageLocation{Bucket: bucket}}, Default: true,
		},
	}
}

const (
	patience = time.Minute
	tick     = 10 * time.Millisecond
)

func containsWord(texts []string, word string) bool {
	return slices.ContainsFunc(texts, func(text string) bool { return strings.Contains(text, word) })
}
