package chart_test

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-io/holdfast/e2e/harness/chart"
	"github.com/holdfast-io/holdfast/e2e/harness/fleet"
	"github.com/holdfast-io/holdfast/pkg/service"
)

// certifiedComponents are the components with a certificate of their own.
func certifiedComponents() []string { return append([]string{"nats"}, fleet.Services...) }

// componentCertificate returns the files of a component's certificate.
func componentCertificate(t *testing.T, objects []*unstructured.Unstructured, component string) map[string][]byte {
	t.Helper()
	secret := objectNamed(objects, "Secret", chart.Release+"-"+component+"-tls")
	require.NotNil(t, secret, component)
	data, _, err := unstructured.NestedStringMap(secret.Object, "data")
	require.NoError(t, err)
	files := map[string][]byte{}
	for name, text := range data {
		files[name], err = base64.StdEncoding.DecodeString(text)
		require.NoError(t, err)
	}
	return files
}

// serverName is the name that a component is checked for.
func serverName(component string) string {
	return chart.Release + "-" + component + "." + namespace + ".svc"
}

// Each component has a certificate for its own names and for those of no other one, and the monitor
// checks runners for them.
func TestTheCertificatesOfTheChart(t *testing.T) {
	objects := renderChart(t)
	for _, component := range certifiedComponents() {
		files := componentCertificate(t, objects, component)
		pair, err := tls.X509KeyPair(files["tls.crt"], files["tls.key"])
		require.NoError(t, err)
		pool := x509.NewCertPool()
		require.True(t, pool.AppendCertsFromPEM(files["ca.crt"]))
		for _, other := range certifiedComponents() {
			for _, usage := range []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth} {
				_, err := pair.Leaf.Verify(x509.VerifyOptions{DNSName: serverName(other), Roots: pool, KeyUsages: []x509.ExtKeyUsage{usage}})
				require.Equal(t, other == component, err == nil, "%s as %s: %v", component, other, err)
			}
		}
		require.NoError(t, pair.Leaf.VerifyHostname("127.0.0.1"), "a forwarded port")
	}
	require.NoError(t, leafCertificate(t, objects, "nats").VerifyHostname("holdfast-nats-2.holdfast-nats-peers"), "the routes of a cluster")

	for caller, port := range map[string]string{"async-operation-monitor": "7444", "backup-runner": "7442", "restore-runner": "7443"} {
		require.Subset(t, serviceDeployments(t, objects)[caller].Spec.Template.Spec.Containers[0].Args, []string{
			"--tls-ca-file=/tls/ca.crt", "--grpc-advertise-address=[$(POD_IP)]:" + port,
			"--tls-server-names=backup-runner=" + serverName("backup-runner") + ",restore-runner=" + serverName("restore-runner"),
		}, "%s calls OperationService of runners", caller)
	}
	require.Contains(t, serviceDeployments(t, objects)["manifest-indexer"].Spec.Template.Spec.Containers[0].Args, "--artifact-url=https://"+serverName("manifest-indexer")+":8445")
}

func leafCertificate(t *testing.T, objects []*unstructured.Unstructured, component string) *x509.Certificate {
	t.Helper()
	files := componentCertificate(t, objects, component)
	pair, err := tls.X509KeyPair(files["tls.crt"], files["tls.key"])
	require.NoError(t, err)
	return pair.Leaf
}

// cert-manager is asked for the same certificates, in the same Secrets.
func TestCertificatesOfCertManager(t *testing.T) {
	objects := renderChart(t, "--set", "tls.mode=certManager,tls.certManager.issuerRef.name=ca,tls.certManager.issuerRef.kind=ClusterIssuer,tls.extraNames={backups.example.com}")
	for _, component := range certifiedComponents() {
		certificate := objectNamed(objects, "Certificate", chart.Release+"-"+component)
		require.NotNil(t, certificate, component)
		names, _, err := unstructured.NestedStringSlice(certificate.Object, "spec", "dnsNames")
		require.NoError(t, err)
		require.Subset(t, names, []string{serverName(component), "localhost", "backups.example.com"})
		issuer, _, err := unstructured.NestedString(certificate.Object, "spec", "issuerRef", "kind")
		require.NoError(t, err)
		require.Equal(t, "ClusterIssuer", issuer)
		secret, _, err := unstructured.NestedString(certificate.Object, "spec", "secretName")
		require.NoError(t, err)
		require.Equal(t, chart.Release+"-"+component+"-tls", secret)
	}
	for service, d := range serviceDeployments(t, objects) {
		at := slices.IndexFunc(d.Spec.Template.Spec.Volumes, func(v corev1.Volume) bool { return v.Name == "tls" })
		require.Equal(t, chart.Release+"-"+service+"-tls", d.Spec.Template.Spec.Volumes[at].Secret.SecretName)
	}
	require.False(t, slices.ContainsFunc(objects, func(o *unstructured.Unstructured) bool {
		return o.GetKind() == "Secret" && strings.HasSuffix(o.GetName(), "-tls")
	}))
}

// What viewers may call is not logged, and everything that reveals what is in a backup is.
func TestWhatViewersMayCallIsNotAudited(t *testing.T) {
	viewer := func(o *unstructured.Unstructured) bool { return o.GetName() == chart.Release+"-viewer" }
	for _, rule := range roleRules(t, renderChart(t), viewer) {
		for _, path := range rule.NonResourceURLs {
			if prefix, all := strings.CutSuffix(path, "*"); all { // the services with methods about progress
				require.False(t, service.Audited(prefix+"GetProgress") || service.Audited(prefix+"WatchProgress"), path)
			} else {
				require.False(t, service.Audited(path), path)
			}
		}
	}
	for _, revealing := range []string{
		"/holdfast.manifest.v1.ManifestService/GetItem", "/holdfast.manifest.v1.ManifestService/GetUnmaskedItem", "/holdfast.operation.v1.OperationMonitorService/StreamOperationLogs",
		"/holdfast.queue.v1.QueueService/SubmitBackup", "/holdfast.deletion.v1.DeletionService/DeleteBackup", "/holdfast.new.v1.NewService/New",
	} {
		require.True(t, service.Audited(revealing), revealing)
	}
}

// keepsCertificates: an upgrade keeps all certificates, or makes all anew: those of one authority,
// whose key is nowhere.
func (p *chartPlace) keepsCertificates(t *testing.T) {
	read := func() map[string]string {
		found := map[string]string{}
		for _, component := range certifiedComponents() {
			secret := &corev1.Secret{}
			require.NoError(t, p.client.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: chart.Release + "-" + component + "-tls"}, secret))
			found[component] = string(secret.Data["ca.crt"]) + string(secret.Data["tls.crt"]) + string(secret.Data["tls.key"])
		}
		return found
	}
	upgrade := func(args ...string) {
		p.runHelm(t, namespace, append([]string{"upgrade", "--values", "testdata/velero-aws.yaml"}, args...)...)
	}
	anew := func(why string, before map[string]string) map[string]string {
		t.Helper()
		after := read()
		for component := range maps.Keys(before) {
			require.NotEqual(t, before[component], after[component], "%s: %s", why, component)
		}
		return after
	}
	first := read()
	upgrade()
	require.Equal(t, first, read())
	upgrade("--set", "tls.extraNames={backups.example.com}")
	second := anew("another name", first)

	secret := &corev1.Secret{}
	key := client.ObjectKey{Namespace: namespace, Name: chart.Release + "-deletion-tls"}
	require.NoError(t, p.client.Get(t.Context(), key, secret))
	require.NoError(t, p.client.Delete(t.Context(), secret))
	upgrade("--set", "tls.extraNames={backups.example.com}")
	third := anew("a missing one", second)

	for _, component := range certifiedComponents() {
		key.Name = chart.Release + "-" + component + "-tls"
		require.NoError(t, p.client.Get(t.Context(), key, secret))
		secret.Annotations["holdfast.io/certificates-made"] = "1600000000"
		require.NoError(t, p.client.Update(t.Context(), secret))
	}
	upgrade("--set", "tls.extraNames={backups.example.com}", "--force-conflicts") // with the writes above
	anew("half of the time is over", third)
}
