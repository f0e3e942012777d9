package job_test

import (
	"context"
	"encoding/pem"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/kube"
	"github.com/holdfast-io/holdfast/services/holdfast/internal/cli/job"
)

// newFetcher asks a fake cluster whose server answers the second look at a request with the address;
// an empty address is never answered.
func newFetcher(address string, options job.DownloadOptions, objects ...client.Object) *job.Fetcher {
	base := fake.NewClientBuilder().WithScheme(kube.Scheme()).WithObjects(objects...).Build()
	looks := 0
	c := interceptor.NewClient(base, interceptor.Funcs{
		Get: func(ctx context.Context, w client.WithWatch, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
			err := w.Get(ctx, key, obj, opts...)
			if request, ok := obj.(*velerov1.DownloadRequest); ok {
				if looks++; looks > 1 {
					request.Status.DownloadURL = address
				}
			}
			return err
		},
	})
	return &job.Fetcher{Client: c, Clock: clock.RealClock{}, Namespace: "velero", Options: options}
}

func newLocation(caCert []byte, ref *corev1.SecretKeySelector) *velerov1.BackupStorageLocation {
	return &velerov1.BackupStorageLocation{
		ObjectMeta: metav1.ObjectMeta{Namespace: "velero", Name: "default"},
		Spec: velerov1.BackupStorageLocationSpec{StorageType: velerov1.StorageType{
			ObjectStorage: &velerov1.ObjectStorageLocation{Bucket: "b", CACert: caCert, CACertRef: ref},
		}},
	}
}

const patient = 10 * time.Second

func TestErrorsNeverShowTheAddress(t *testing.T) {
	answers := map[string]http.HandlerFunc{
		"refused":  func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "expired", http.StatusForbidden) },
		"cut off":  func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) },
		"not gzip": func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("plain")) },
	}
	for name, answer := range answers {
		t.Run(name, func(t *testing.T) {
			server := httptest.NewServer(answer)
			defer server.Close()
			_, err := newFetcher(server.URL+"/f?signature=secret", job.DownloadOptions{Timeout: patient}).Open(t.Context(), velerov1.DownloadTargetKindBackupLog, "b", "")
			require.Error(t, err)
			require.NotContains(t, err.Error(), "secret")
			require.ErrorContains(t, err, "BackupLog")
			require.NotErrorIs(t, err, job.ErrNotFound)
		})
	}
	_, err := newFetcher("http://127.0.0.1:1/f?signature=secret", job.DownloadOptions{Timeout: patient}).Open(t.Context(), velerov1.DownloadTargetKindBackupLog, "b", "")
	require.Error(t, err)
	require.NotContains(t, err.Error(), "secret")
}

func TestAnAbsentFileIsNotFound(t *testing.T) {
	server := httptest.NewServer(http.NotFoundHandler())
	defer server.Close()
	_, err := newFetcher(server.URL, job.DownloadOptions{Timeout: patient}).Open(t.Context(), velerov1.DownloadTargetKindBackupLog, "b", "")
	require.ErrorIs(t, err, job.ErrNotFound)
}

func TestASilentServerIsNamed(t *testing.T) {
	_, err := newFetcher("", job.DownloadOptions{Timeout: 100 * time.Millisecond}).Open(t.Context(), velerov1.DownloadTargetKindBackupLog, "b", "")
	require.ErrorContains(t, err, "did not answer")
}

func TestCertificatesAreChecked(t *testing.T) {
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("tarball")) }))
	defer server.Close()
	bundle := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	file := filepath.Join(t.TempDir(), "ca.pem")
	require.NoError(t, os.WriteFile(file, bundle, 0o600))
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "velero", Name: "ca"}, Data: map[string][]byte{"pem": bundle}}
	ref := &corev1.SecretKeySelector{LocalObjectReference: corev1.LocalObjectReference{Name: "ca"}, Key: "pem"}

	cases := map[string]struct {
		options job.DownloadOptions
		objects []client.Object
		fails   bool
	}{
		"unknown":        {fails: true},
		"file":           {options: job.DownloadOptions{CACertFile: file}},
		"missing file":   {options: job.DownloadOptions{CACertFile: file + ".no"}, fails: true},
		"location":       {objects: []client.Object{newLocation(bundle, nil)}},
		"secret":         {objects: []client.Object{newLocation(nil, ref), secret}},
		"missing secret": {objects: []client.Object{newLocation(nil, ref)}, fails: true},
		"bad bundle":     {objects: []client.Object{newLocation([]byte("x"), nil)}, fails: true},
		"insecure":       {options: job.DownloadOptions{InsecureSkipTLSVerify: true}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			tc.options.Timeout = patient
			body, err := newFetcher(server.URL, tc.options, tc.objects...).Open(t.Context(), velerov1.DownloadTargetKindBackupContents, "b", "default")
			if tc.fails {
				require.Error(t, err)
				return
			}
			require.NoError(t, err)
			content, err := io.ReadAll(body)
			require.NoError(t, err)
			require.NoError(t, body.Close())
			require.Equal(t, "tarball", string(content))
		})
	}
}
