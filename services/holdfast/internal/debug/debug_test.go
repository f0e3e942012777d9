package debug_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/kube"
	"github.com/holdfast-io/holdfast/services/holdfast/internal/debug"
)

// planted is in everything that must not be in a bundle.
const planted = "Planted-S3cret"

func objectMeta(name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{
		Namespace: "velero", Name: name, Labels: map[string]string{"app.kubernetes.io/part-of": "holdfast"},
		Annotations: map[string]string{"kubectl.kubernetes.io/last-applied-configuration": `{"spec":{"config":{"key":"` + planted + `"}}}`},
	}
}

// sampleInstallation is an installation with secrets wherever users put them.
func sampleInstallation() []client.Object {
	pod := corev1.PodSpec{Containers: []corev1.Container{{
		Name: "backup-runner", Image: "holdfast:v1", Args: []string{"--nats-url=nats://user:" + planted + "@nats", "--log-level=info"},
		Env: []corev1.EnvVar{{Name: "ANYTHING", Value: planted}},
	}}}
	return []client.Object{
		&corev1.Secret{ObjectMeta: objectMeta("cloud-credentials"), Data: map[string][]byte{"cloud": []byte(planted)}},
		&corev1.ConfigMap{ObjectMeta: objectMeta("other"), Data: map[string]string{"plain": planted}},
		&corev1.ConfigMap{ObjectMeta: objectMeta("holdfast-settings"), Data: map[string]string{"concurrent-backups": "2"}},
		&velerov1.BackupStorageLocation{ObjectMeta: objectMeta("default"), Spec: velerov1.BackupStorageLocationSpec{
			Provider: "aws", Config: map[string]string{"region": "eu-1", "s3Url": "https://root:" + planted + "@store", "customToken": planted},
			StorageType: velerov1.StorageType{ObjectStorage: &velerov1.ObjectStorageLocation{Bucket: "backups"}},
		}, Status: velerov1.BackupStorageLocationStatus{Message: "dial https://root:" + planted + "@store: no route to host"}},
		&velerov1.DownloadRequest{ObjectMeta: objectMeta("link"), Status: velerov1.DownloadRequestStatus{DownloadURL: "https://store/x?X-Amz-Signature=" + planted}},
		&velerov1.Backup{ObjectMeta: objectMeta("daily"), Spec: velerov1.BackupSpec{Hooks: velerov1.BackupHooks{Resources: []velerov1.BackupResourceHookSpec{{
			Name: "dump", PreHooks: []velerov1.BackupResourceHook{{Exec: &velerov1.ExecHook{Command: []string{"mysqldump", "-p" + planted}}}},
		}}}}},
		&appsv1.Deployment{ObjectMeta: objectMeta("backup-runner"), Spec: appsv1.DeploymentSpec{Template: corev1.PodTemplateSpec{Spec: pod}}},
		&corev1.Pod{ObjectMeta: objectMeta("backup-runner-1"), Spec: pod, Status: corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{{Name: "backup-runner", RestartCount: 1}}}},
		&corev1.Event{ObjectMeta: objectMeta("event"), Message: "password=" + planted + " refused"},
		&coordinationv1.Lease{ObjectMeta: objectMeta("instance")},
	}
}

func testConfig(t *testing.T, reader client.Reader) debug.Config {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = fmt.Fprintln(w, "holdfast_build_info 1") }))
	t.Cleanup(server.Close)
	return debug.Config{
		Namespace: "velero", Clock: clock.RealClock{}, Reader: reader, Timeout: 20 * time.Second,
		Logs: func(_ context.Context, pod, container string, previous bool) (io.ReadCloser, error) {
			return io.NopCloser(strings.NewReader(fmt.Sprintf("%s %s %v\npassword=%s\nlast line\n", pod, container, previous, planted))), nil
		},
		Values: map[string]func(context.Context) (any, error){
			"doctor.json": func(context.Context) (any, error) {
				return map[string]any{"message": "https://u:" + planted + "@host away", "namespace": "velero"}, nil
			},
		},
		Metrics: map[string]string{"deletion": strings.TrimPrefix(server.URL, "http://")},
	}
}

func newCluster(objects ...client.Object) client.WithWatch {
	return fake.NewClientBuilder().WithScheme(kube.Scheme()).WithObjects(objects...).Build()
}

// writeBundle writes a bundle and returns its files.
func writeBundle(t *testing.T, cfg debug.Config) (map[string]string, debug.Summary) {
	t.Helper()
	var out bytes.Buffer
	summary, err := debug.WriteArchive(t.Context(), &out, cfg)
	require.NoError(t, err)
	zip, err := gzip.NewReader(&out)
	require.NoError(t, err)
	files := map[string]string{}
	for archive := tar.NewReader(zip); ; {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			require.Len(t, files, summary.Files)
			return files, summary
		}
		require.NoError(t, err)
		data, err := io.ReadAll(archive)
		require.NoError(t, err)
		files[strings.TrimPrefix(header.Name, "holdfast-debug/")] = string(data)
	}
}

func TestNoSecretIsInABundle(t *testing.T) {
	files, summary := writeBundle(t, testConfig(t, newCluster(sampleInstallation()...)))
	require.Empty(t, summary.Problems)
	for name, text := range files {
		require.NotContains(t, text, planted, name)
		require.NotContains(t, name, "secret")
	}
	for name, word := range map[string]string{
		"objects/backupstoragelocations.velero.io.v1.yaml": "no route to host", "objects/backups.velero.io.v1.yaml": "name: daily",
		"objects/downloadrequests.velero.io.v1.yaml": "name: link", "objects/deployments.yaml": "--log-level=info", "objects/pods.yaml": "holdfast:v1",
		"objects/events.yaml": "refused", "objects/leases.yaml": "name: instance", "objects/configmaps.yaml": "concurrent-backups",
		"logs/backup-runner-1/backup-runner.log": "last line", "logs/backup-runner-1/backup-runner.previous.log": "true",
		"metrics/deletion.txt": "holdfast_build_info 1", "doctor.json": "velero",
	} {
		require.Contains(t, files[name], word, name)
	}
	require.Contains(t, files["objects/backupstoragelocations.velero.io.v1.yaml"], "region: eu-1")
	require.NotContains(t, files["objects/configmaps.yaml"], "name: other")
}

// Applications may have Deployments in the namespace of the server.
func TestDeploymentsOfOthersAreNotInABundle(t *testing.T) {
	deployment := func(name string, labels map[string]string) client.Object {
		return &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "velero", Name: name, Labels: labels}}
	}
	files, summary := writeBundle(t, testConfig(t, newCluster(append(sampleInstallation(),
		deployment("shop", map[string]string{"app.kubernetes.io/part-of": "shop", "app.kubernetes.io/name": "holdfast"}), deployment("plain", nil),
		deployment("installed", map[string]string{"component": "velero"}), deployment("charted", map[string]string{"app.kubernetes.io/name": "velero"}),
	)...)))
	require.Empty(t, summary.Problems)
	text := files["objects/deployments.yaml"]
	for name, there := range map[string]bool{"backup-runner": true, "installed": true, "charted": true, "shop": false, "plain": false} {
		require.Equal(t, there, strings.Contains(text, "\n  name: "+name+"\n"), name)
	}
}

// The tail of a log may begin within a key.
func TestTheRestOfAPrivateKeyIsNotInABundle(t *testing.T) {
	cfg := testConfig(t, newCluster(sampleInstallation()...))
	cfg.Logs = func(context.Context, string, string, bool) (io.ReadCloser, error) {
		return io.NopCloser(strings.NewReader(planted + "\n" + planted + "\n-----END PRIVATE KEY-----\nlast line\n")), nil
	}
	files, _ := writeBundle(t, cfg)
	require.Equal(t, "xxxxx\nlast line\n", files["logs/backup-runner-1/backup-runner.log"])
}

// Secrets are never asked for, whatever else fails.
func TestSecretsAreNeverRead(t *testing.T) {
	reader := interceptor.NewClient(newCluster(sampleInstallation()...), interceptor.Funcs{
		List: func(ctx context.Context, w client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
			gvk := list.GetObjectKind().GroupVersionKind()
			require.NotContains(t, gvk.Kind, "Secret")
			return w.List(ctx, list, opts...)
		},
		Get: func(context.Context, client.WithWatch, client.ObjectKey, client.Object, ...client.GetOption) error {
			t.Error("nothing is read by name")
			return nil
		},
	})
	writeBundle(t, testConfig(t, reader))
}

func TestABundleOfWhatAnswers(t *testing.T) {
	errAway := errors.New("away: https://u:" + planted + "@host")
	reader := interceptor.NewClient(newCluster(sampleInstallation()...), interceptor.Funcs{
		List: func(ctx context.Context, w client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
			if list.GetObjectKind().GroupVersionKind().Kind == "BackupList" {
				return errAway
			}
			return w.List(ctx, list, opts...)
		},
	})
	cfg := testConfig(t, reader)
	cfg.Timeout = 5 * time.Second // what answers does so by then
	cfg.Metrics["queue-scheduler"] = "127.0.0.1:1"
	cfg.Values["queue.json"] = func(ctx context.Context) (any, error) {
		<-ctx.Done() // an address that swallows everything
		return nil, ctx.Err()
	}
	cfg.Logs = func(context.Context, string, string, bool) (io.ReadCloser, error) { return nil, errAway }
	files, summary := writeBundle(t, cfg)
	require.Contains(t, files["objects/restores.velero.io.v1.yaml"]+files["objects/deployments.yaml"], "backup-runner", "what follows is there")
	require.NotContains(t, files, "objects/backups.velero.io.v1.yaml")
	for _, what := range []string{
		"objects/backups.velero.io.v1.yaml: away", "queue.json: context deadline exceeded", "metrics/queue-scheduler.txt: ",
		"logs/backup-runner-1/backup-runner.log: away", "logs/backup-runner-1/backup-runner.previous.log: away",
	} {
		require.Contains(t, files["problems.txt"], what)
	}
	require.Len(t, summary.Problems, strings.Count(files["problems.txt"], "\n"))
	require.NotContains(t, files["problems.txt"], planted)
}

func TestABundleIsBounded(t *testing.T) {
	var objects []client.Object
	for i := range 510 {
		b := &velerov1.Backup{ObjectMeta: objectMeta(fmt.Sprintf("b-%03d", i))}
		b.CreationTimestamp = metav1.NewTime(time.Unix(int64(1000+i), 0))
		objects = append(objects, b)
	}
	cfg := testConfig(t, newCluster(append(objects, sampleInstallation()...)...))
	cfg.Logs = func(_ context.Context, _, _ string, previous bool) (io.ReadCloser, error) {
		if previous {
			return io.NopCloser(strings.NewReader("short\n")), nil
		}
		return io.NopCloser(io.MultiReader(io.LimitReader(endless{}, 13<<20), strings.NewReader("\nlast line\n"))), nil
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.CopyN(w, endless{}, 5<<20) }))
	t.Cleanup(server.Close)
	cfg.Metrics["deletion"] = strings.TrimPrefix(server.URL, "http://")
	files, _ := writeBundle(t, cfg)
	require.LessOrEqual(t, len(files["logs/backup-runner-1/backup-runner.log"]), 4<<20)
	require.Greater(t, len(files["logs/backup-runner-1/backup-runner.log"]), 4<<20-100)
	require.True(t, strings.HasSuffix(files["logs/backup-runner-1/backup-runner.log"], "\nlast line\n"), "the end is kept")
	require.Regexp(t, `metrics/deletion.txt: only the first 41943\d\d bytes`, files["problems.txt"])
	require.True(t, strings.HasSuffix(files["metrics/deletion.txt"], "\n"), "its last line is whole")
	backups := files["objects/backups.velero.io.v1.yaml"]
	require.Equal(t, 500, strings.Count(backups, "---\n"))
	require.Contains(t, backups, "name: b-509")
	require.NotContains(t, backups, "name: b-000", "the newest are kept")
	require.Contains(t, files["problems.txt"], "objects/backups.velero.io.v1.yaml: it has 500 of the newest objects, and there are at least 511")
	require.Contains(t, files["problems.txt"], "backup-runner.log: only the last 41")
}

// A name such as password may be in the part of a line that is cut off, its value in what is left.
func TestOnlyWholeLinesOfALogAreKept(t *testing.T) {
	for name, body := range map[string]io.Reader{
		"begin":  strings.NewReader("password=" + planted + strings.Repeat(" ", 4<<20-12) + "\nwhole\n"),
		"middle": strings.NewReader("password=\"" + strings.Repeat("x", 9<<20) + planted + "\"\nwhole\n"),
		"broken": io.MultiReader(strings.NewReader("whole\nS"+planted), iotest.ErrReader(io.ErrUnexpectedEOF)),
	} {
		cfg := testConfig(t, newCluster(sampleInstallation()...))
		cfg.Logs = func(_ context.Context, _, _ string, previous bool) (io.ReadCloser, error) {
			if previous {
				return io.NopCloser(strings.NewReader("short")), nil
			}
			return io.NopCloser(body), nil
		}
		files, _ := writeBundle(t, cfg)
		require.Equal(t, "whole\n", files["logs/backup-runner-1/backup-runner.log"], name)
		require.Equal(t, "short", files["logs/backup-runner-1/backup-runner.previous.log"], "all of it")
		require.Contains(t, files["problems.txt"], "backup-runner.log: ", name)
	}
}

// endless is a log without an end.
type endless struct{}

// Read implements io.Reader.
func (endless) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = "a line\n"[i%7]
	}
	return len(p), nil
}

func TestAnOutputThatFailsIsAnError(t *testing.T) {
	_, err := debug.WriteArchive(t.Context(), broken{}, testConfig(t, newCluster(sampleInstallation()...)))
	require.ErrorIs(t, err, io.ErrClosedPipe)
}

type broken struct{}

// Write implements io.Writer.
func (broken) Write([]byte) (int, error) { return 0, io.ErrClosedPipe }
