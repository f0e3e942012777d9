package doctor_test

import (
	"encoding/json"
	"errors"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-io/holdfast/e2e/harness/chart"
	"github.com/holdfast-io/holdfast/e2e/harness/product"
	"github.com/holdfast-io/holdfast/e2e/harness/testbed"
	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/kube"
)

const (
	patience = testbed.Patience
	look     = 50 * time.Millisecond
	services = 6
)

// doctorPlace is one control plane, which the parts share; each has a namespace of its own.
type doctorPlace struct {
	cluster *testbed.Cluster
	client  client.Client
	binary  string
}

// doctorFinding is what -o json prints.
type doctorFinding struct{ Check, Subject, Status, Message, Remedy string }

func TestDoctor(t *testing.T) {
	// Without the Deployment controller a test can say how many replicas are ready.
	cluster, err := testbed.Start(t.Context(), testbed.Config{Dir: t.TempDir(), Env: []string{testbed.LessCollecting}, ControllerArgs: []string{"--controllers=*,-deployment-controller"}})
	require.NoError(t, err)
	t.Cleanup(cluster.Stop)
	p := &doctorPlace{cluster: cluster}
	p.client, err = client.New(cluster.RestConfig(), client.Options{Scheme: kube.Scheme()})
	require.NoError(t, err)
	p.binary, err = testbed.Product("holdfast")
	require.NoError(t, err)
	t.Run("an empty cluster", p.testEmpty)
	t.Run("a whole server", p.testWhole)
	t.Run("definitions", p.testDefinitions)
	t.Run("buckets", p.testBuckets)
	t.Run("rights of the chart's accounts", p.testRights)
	t.Run("a Velero server", p.testVelero)
	t.Run("a bundle has no secrets", p.testSecrets)
}

func (p *doctorPlace) newCLI(namespace string) *product.CLI {
	return &product.CLI{Binary: p.binary, Kubeconfig: p.cluster.Kubeconfig(), Namespace: namespace}
}

// runDoctor runs checks and returns what they found; the exit code is 1 exactly if one failed.
func (p *doctorPlace) runDoctor(t *testing.T, namespace, checks string, more ...string) []doctorFinding {
	t.Helper()
	out, err := p.newCLI(namespace).Run(t.Context(), append([]string{"doctor", "-o", "json", "--checks", checks}, more...)...)
	var exit *product.ExitError
	if err != nil {
		require.ErrorAs(t, err, &exit)
		require.Equal(t, 1, exit.Code)
	}
	var report struct{ Findings []doctorFinding }
	require.NoError(t, json.Unmarshal([]byte(out), &report), "%s %v", out, err)
	require.NotEmpty(t, report.Findings)
	require.Equal(t, err != nil, len(findingsWith("failed", report.Findings)) > 0, out)
	require.True(t, err == nil || errors.As(err, &exit))
	return report.Findings
}

func findingsWith(status string, all []doctorFinding) []doctorFinding {
	return slices.DeleteFunc(slices.Clone(all), func(f doctorFinding) bool { return f.Status != status })
}

// requireFinding requires that one finding of the status has the words.
func requireFinding(t *testing.T, all []doctorFinding, status string, words ...string) {
	t.Helper()
	some := findingsWith(status, all)
	require.Len(t, some, 1, "%+v", all)
	for _, word := range words {
		require.Contains(t, some[0].Subject+": "+some[0].Message, word)
	}
	require.NotEmpty(t, some[0].Remedy)
}

func (p *doctorPlace) createNamespace(t *testing.T, name string) {
	t.Helper()
	require.NoError(t, p.client.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}))
}

// testEmpty is what there is before anything is installed.
func (p *doctorPlace) testEmpty(t *testing.T) {
	found := p.runDoctor(t, "velero", "kubernetes,definitions,velero,locations")
	require.NotEmpty(t, findingsWith("ok", found))
	failed := findingsWith("failed", found)
	require.Len(t, failed, 14, "thirteen definitions, and locations without theirs: %+v", failed)
	require.Contains(t, failed[0].Remedy, "holdfast crd install")
}

func (p *doctorPlace) testWhole(t *testing.T) {
	cli := p.newCLI("whole")
	server, err := cli.Up(t.Context(), t.TempDir(), "--free-ports")
	require.NoError(t, err)
	t.Cleanup(server.Shutdown)
	addresses := addressesOf(t, server)
	found := p.runDoctor(t, "whole", "kubernetes,definitions,velero,rights,services,locations,plugins,nats", append(addresses, "--plugin-dir", t.TempDir())...)
	require.Empty(t, findingsWith("failed", found))
	require.Empty(t, findingsWith("warning", found))
	requireFinding(t, found, "skipped", "no address of NATS")
	for _, check := range []string{"kubernetes", "definitions", "velero", "rights", "services", "locations", "plugins"} {
		require.True(t, slices.ContainsFunc(found, func(f doctorFinding) bool { return f.Check == check && f.Status == "ok" }), check)
	}
	files, err := product.Files(server.Bucket())
	require.NoError(t, err)
	require.False(t, slices.ContainsFunc(files, func(f string) bool { return strings.Contains(f, "doctor") }), "what was written is gone: %v", files)
	bundle := p.runDebug(t, "whole", addresses...)
	require.Contains(t, bundle["queue.json"], `"entries": []`)
	require.Contains(t, bundle["metrics/deletion.txt"], "holdfast_build_info{")
	require.Contains(t, bundle["objects/leases.yaml"], "kind: Lease")
	require.Empty(t, bundle["problems.txt"])
	server.Shutdown()
	require.Len(t, findingsWith("failed", p.runDoctor(t, "whole", "services", addresses...)), services)
}

// addressesOf returns flags with the addresses of a server that listens on free ports. Each service
// logs its addresses after it counts as ready.
func addressesOf(t *testing.T, server *product.Server) []string {
	t.Helper()
	serving := regexp.MustCompile(`service=(\S+) .*ready=true grpc=(\S+) http=(\S+)`)
	grpc, http := map[string]string{}, map[string]string{}
	require.Eventually(t, func() bool {
		log, err := os.ReadFile(server.LogPath())
		require.NoError(t, err)
		for _, found := range serving.FindAllStringSubmatch(string(log), -1) {
			grpc[found[1]], http[found[1]] = found[2], found[3]
		}
		return len(grpc) == services
	}, patience, look)
	return append(addressFlags("--services-address", grpc), addressFlags("--metrics-address", http)...)
}

// addressFlags repeats a flag for each service.
func addressFlags(flag string, addresses map[string]string) []string {
	var out []string
	for name, address := range addresses {
		out = append(out, flag, name+"="+address)
	}
	return out
}

// unreachableFlags returns flags with an address that nothing listens on, whatever else runs on this machine.
func unreachableFlags() []string {
	closed := map[string]string{}
	for _, name := range []string{"queue-scheduler", "backup-runner", "restore-runner", "async-operation-monitor", "manifest-indexer", "deletion"} {
		closed[name] = "127.0.0.1:1"
	}
	return append(addressFlags("--services-address", closed), addressFlags("--metrics-address", closed)...)
}

func (p *doctorPlace) testDefinitions(t *testing.T) {
	crd := &apiextensionsv1.CustomResourceDefinition{}
	key := types.NamespacedName{Name: "restores.velero.io"}
	require.NoError(t, p.client.Get(t.Context(), key, crd))
	delete(crd.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties["spec"].Properties, "resourceModifier")
	require.NoError(t, p.client.Update(t.Context(), crd))
	requireFinding(t, p.runDoctor(t, "velero", "definitions"), "failed", "restores.velero.io", "v1.spec.resourceModifier")
	_, err := p.newCLI("velero").Run(t.Context(), "crd", "install")
	require.NoError(t, err)
	require.Empty(t, findingsWith("failed", p.runDoctor(t, "velero", "definitions")), "the remedy helps")
}

func (p *doctorPlace) testBuckets(t *testing.T) {
	const namespace = "buckets"
	p.createNamespace(t, namespace)
	s3 := testbed.StartS3T(t)
	require.NoError(t, s3.CreateBucket(t.Context(), "backups"))
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "keys"}, StringData: map[string]string{"good": s3.CredentialsFile(), "bad": strings.Replace(s3.CredentialsFile(), s3.SecretKey, "planted-secret", 1)}}
	require.NoError(t, p.client.Create(t.Context(), secret))
	loc := &velerov1.BackupStorageLocation{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "default"},
		Spec: velerov1.BackupStorageLocationSpec{
			Provider: "aws", Config: s3.LocationConfig(), Default: true, StorageType: velerov1.StorageType{ObjectStorage: &velerov1.ObjectStorageLocation{Bucket: "backups", Prefix: "here"}},
			Credential: &corev1.SecretKeySelector{LocalObjectReference: corev1.LocalObjectReference{Name: "keys"}, Key: "good"},
		},
	}
	require.NoError(t, p.client.Create(t.Context(), loc))
	found := p.runDoctor(t, namespace, "locations")
	require.Empty(t, findingsWith("failed", found), "%+v", found)
	keys, err := s3.Keys(t.Context(), "backups")
	require.NoError(t, err)
	require.Empty(t, keys, "what was written is gone")

	change := func(f func(*velerov1.BackupStorageLocationSpec)) []doctorFinding {
		t.Helper()
		set := func(spec velerov1.BackupStorageLocationSpec) {
			require.NoError(t, p.client.Get(t.Context(), client.ObjectKeyFromObject(loc), loc))
			loc.Spec = spec
			require.NoError(t, p.client.Update(t.Context(), loc))
		}
		before, changed := *loc.Spec.DeepCopy(), *loc.Spec.DeepCopy()
		f(&changed)
		set(changed)
		found := p.runDoctor(t, namespace, "locations")
		set(before)
		return found
	}
	requireFinding(t, change(func(s *velerov1.BackupStorageLocationSpec) { s.ObjectStorage.Bucket = "absent" }), "failed", "default", "bucket does not exist")
	found = change(func(s *velerov1.BackupStorageLocationSpec) { s.Credential.Key = "bad" })
	requireFinding(t, found, "failed", "default", "access to the object store denied")
	require.NotContains(t, found[0].Message+found[0].Remedy, "planted-secret")
	requireFinding(t, change(func(s *velerov1.BackupStorageLocationSpec) { s.Credential.Name = "none" }), "failed", "spec.credential")
	requireFinding(t, change(func(s *velerov1.BackupStorageLocationSpec) { s.Config = map[string]string{"nonsense": "x"} }), "failed", "spec.config")
}

// testRights installs the chart's accounts and Deployments and takes a right away.
func (p *doctorPlace) testRights(t *testing.T) {
	const namespace = "rights"
	p.createNamespace(t, namespace)
	objects, err := chart.Render(t.Context(), t.TempDir(), namespace)
	require.NoError(t, err)
	for _, object := range objects {
		if group := object.GroupVersionKind().Group; group == rbacv1.GroupName || object.GetKind() == "ServiceAccount" || object.GetKind() == "Deployment" {
			require.NoError(t, p.client.Create(t.Context(), object), "%s %s", object.GetKind(), object.GetName())
		}
	}
	require.Eventually(t, func() bool { return len(findingsWith("failed", p.runDoctor(t, namespace, "rights"))) == 0 }, patience, look, "accounts have the rights of the chart")

	role := &rbacv1.Role{}
	key := types.NamespacedName{Namespace: namespace, Name: chart.Release + "-deletion"}
	require.NoError(t, p.client.Get(t.Context(), key, role))
	role.Rules = slices.DeleteFunc(role.Rules, func(r rbacv1.PolicyRule) bool { return slices.Contains(r.Resources, "restores") })
	require.NoError(t, p.client.Update(t.Context(), role))
	var found []doctorFinding
	require.Eventually(t, func() bool {
		found = p.runDoctor(t, namespace, "rights")
		return len(findingsWith("failed", found)) > 0
	}, patience, look, "the authorizer sees the change")
	requireFinding(t, found, "failed", "deletion", "delete restores.velero.io in "+namespace)

	// Nothing runs the Deployments, and nothing answers where the services are said to be.
	require.Len(t, findingsWith("failed", p.runDoctor(t, namespace, "services", unreachableFlags()...)), 2*services)

	kubeconfig, err := p.cluster.KubeconfigFor("nobody")
	require.NoError(t, err)
	none := p.newCLI(namespace)
	none.Kubeconfig = kubeconfig
	out, err := none.Run(t.Context(), "doctor", "--checks", "rights")
	require.NoError(t, err, "who sees nothing is told so, and nothing failed")
	require.Contains(t, out, "SKIPPED  rights: services: ")
	require.Contains(t, out, "WARNING  rights: you: you may not get backups.velero.io in "+namespace)
}

func (p *doctorPlace) testVelero(t *testing.T) {
	const namespace = "beside"
	p.createNamespace(t, namespace)
	labels := map[string]string{"component": "velero"}
	server := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "velero", Labels: labels}, Spec: appsv1.DeploymentSpec{
		Selector: &metav1.LabelSelector{MatchLabels: labels}, Template: corev1.PodTemplateSpec{
			ObjectMeta: metav1.ObjectMeta{Labels: labels},
			Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "velero", Image: "velero/velero:v1.18.0", Args: []string{"server"}, Env: []corev1.EnvVar{{Name: "VELERO_NAMESPACE", Value: namespace}}}}},
		},
	}}
	require.NoError(t, p.client.Create(t.Context(), server))
	requireFinding(t, p.runDoctor(t, namespace, "velero"), "warning", "not ready")
	server.Status.Replicas, server.Status.ReadyReplicas = 1, 1
	require.NoError(t, p.client.Status().Update(t.Context(), server))
	requireFinding(t, p.runDoctor(t, namespace, "velero"), "failed", "same objects")
	require.Empty(t, findingsWith("failed", p.runDoctor(t, "velero", "velero")), "another namespace has nothing to do with it")
}
