//go:build velero

package velero_test

import (
	"context"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-io/holdfast/e2e/harness/product"
	"github.com/holdfast-io/holdfast/e2e/harness/testbed"
	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/kube"
)

const (
	patience  = testbed.Patience
	look      = 200 * time.Millisecond
	namespace = "velero"
	bucket    = "backups"
	location  = "shared"
)

// bed is a cluster, an S3 server, and a location in it that both servers use, one after the other.
type bed struct {
	cluster *testbed.Cluster
	client  client.Client
	s3      *testbed.S3
	cli     *product.CLI
	dir     string
	velero  string // Velero's binary
}

func newBed(t *testing.T) *bed {
	t.Helper()
	b := &bed{cluster: testbed.StartT(t), dir: t.TempDir(), s3: testbed.StartS3T(t)}
	require.NoError(t, b.s3.CreateBucket(t.Context(), bucket))
	binary, err := testbed.Product("holdfast")
	require.NoError(t, err)
	b.cli = &product.CLI{Binary: binary, Kubeconfig: b.cluster.Kubeconfig(), Namespace: namespace, Output: t.Output()}
	b.velero, err = testbed.Binary("velero")
	require.NoError(t, err)
	b.client, err = client.New(b.cluster.RestConfig(), client.Options{Scheme: kube.Scheme()})
	require.NoError(t, err)
	server := b.startHoldfast(t) // installs the definitions
	b.createLocation(t, b.s3)
	testbed.CreateVeleroDeployment(t, b.cluster, namespace)
	server.Shutdown()
	return b
}

func (b *bed) createLocation(t *testing.T, s3 *testbed.S3) {
	t.Helper()
	require.NoError(t, b.client.Create(t.Context(), &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "cloud"}, StringData: map[string]string{"cloud": s3.CredentialsFile()},
	}))
	require.NoError(t, b.client.Create(t.Context(), &velerov1.BackupStorageLocation{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: location},
		Spec: velerov1.BackupStorageLocationSpec{
			Provider: "aws", Config: s3.LocationConfig(),
			StorageType: velerov1.StorageType{ObjectStorage: &velerov1.ObjectStorageLocation{Bucket: bucket}},
			Credential:  &corev1.SecretKeySelector{LocalObjectReference: corev1.LocalObjectReference{Name: "cloud"}, Key: "cloud"},
		},
	}))
}

// startHoldfast starts `holdfast up`, which the test shuts down before it starts Velero's server.
func (b *bed) startHoldfast(t *testing.T, flags ...string) *product.Server {
	t.Helper()
	server, err := b.cli.Up(t.Context(), b.dir, append(flags, "--free-ports")...)
	require.NoError(t, err)
	t.Cleanup(server.Shutdown)
	return server
}

// startVelero starts Velero's own server, without a node agent, and waits until it has found the
// location. The function stops it.
func (b *bed) startVelero(t *testing.T, flags ...string) (stop func()) {
	t.Helper()
	started := metav1.Now()
	process := testbed.StartVeleroT(t, testbed.VeleroServer{Cluster: b.cluster, Namespace: namespace, Location: location, Dir: b.dir, Flags: flags})
	require.Eventually(t, func() bool {
		var l velerov1.BackupStorageLocation
		err := b.client.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: location}, &l)
		at := l.Status.LastValidationTime
		return err == nil && l.Status.Phase == velerov1.LocationPhaseAvailable && at != nil && started.Before(at)
	}, patience, look, "Velero's server validates the location")
	return func() { process.Stop(20 * time.Second) }
}

// runVelero runs Velero's command line.
func (b *bed) runVelero(t *testing.T, args ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, b.velero, append(args, "--kubeconfig", b.cluster.Kubeconfig(), "--namespace", namespace)...)
	cmd.Env = append(os.Environ(), "HOME="+b.dir)
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "velero %s: %s", strings.Join(args, " "), out)
	return string(out)
}
