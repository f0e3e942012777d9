package artifact_test

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/holdfast-io/holdfast/pkg/objectstore"
	"github.com/holdfast-io/holdfast/pkg/objectstore/artifact"
	"github.com/holdfast-io/holdfast/pkg/objectstore/memstore"
)

type bed struct {
	t      *testing.T
	store  *memstore.Store
	clock  *clocktesting.FakeClock
	signer *artifact.Signer
	log    record
}

// record is a log that is written and read by different goroutines.
type record struct {
	mu   sync.Mutex
	text strings.Builder
}

func (r *record) Write(p []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.text.Write(p)
}

func (r *record) hasText(text string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return strings.Contains(r.text.String(), text)
}

func newBed(t *testing.T) *bed {
	b := &bed{t: t, store: memstore.New(), clock: clocktesting.NewFakeClock(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))}
	b.signer = &artifact.Signer{Key: []byte(strings.Repeat("k", artifact.KeyBytes)), Clock: b.clock}
	open := func(_ context.Context, name string) (objectstore.Store, error) {
		if name != "default" {
			return nil, apierrors.NewNotFound(schema.GroupResource{}, name)
		}
		return b.store, nil
	}
	mux := http.NewServeMux()
	mux.Handle(artifact.PathPrefix, artifact.Handler(b.signer, open, slog.New(slog.NewTextHandler(&b.log, nil))))
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	b.signer.Base = server.URL
	return b
}

func (b *bed) signedURL(location, key string) string {
	b.t.Helper()
	u, err := b.signer.URL(location, key, 10*time.Minute)
	require.NoError(b.t, err)
	return u
}

func (b *bed) fetchURL(method, url string) (int, string, http.Header) {
	b.t.Helper()
	req, err := http.NewRequestWithContext(b.t.Context(), method, url, nil)
	require.NoError(b.t, err)
	resp, err := http.DefaultClient.Do(req)
	require.NoError(b.t, err)
	defer func() { require.NoError(b.t, resp.Body.Close()) }()
	body, err := io.ReadAll(resp.Body)
	require.NoError(b.t, err)
	return resp.StatusCode, string(body), resp.Header
}

func TestServesSignedLinks(t *testing.T) {
	b := newBed(t)
	const key = "backups/b 1/b+1%2F-logs.gz"
	b.store.Set(key, []byte("\x1f\x8bgzip bytes"))
	code, body, header := b.fetchURL(http.MethodGet, b.signedURL("default", key))
	require.Equal(t, http.StatusOK, code)
	require.Equal(t, "\x1f\x8bgzip bytes", body)
	require.Empty(t, header.Get("Content-Encoding"))
	require.Equal(t, "12", header.Get("Content-Length"))
	code, body, header = b.fetchURL(http.MethodHead, b.signedURL("default", key))
	require.Equal(t, http.StatusOK, code)
	require.Empty(t, body)
	require.Equal(t, "12", header.Get("Content-Length"))
}

func TestRefusals(t *testing.T) {
	b := newBed(t)
	b.store.Set("a", []byte("x"))
	b.store.Set("b", []byte("secret"))
	good := b.signedURL("default", "a")
	for name, url := range map[string]string{
		"other key":      strings.Replace(good, "/a?", "/b?", 1),
		"other location": strings.Replace(good, "/default/", "/other/", 1),
		"longer":         strings.Replace(good, "expires=1", "expires=2", 1),
		"no signature":   strings.Split(good, "?")[0],
		"bad signature":  good + "00",
		"walking up":     strings.Replace(good, "/a?", "/x/..%2fb?", 1),
	} {
		code, body, _ := b.fetchURL(http.MethodGet, url)
		require.Equal(t, http.StatusForbidden, code, name)
		require.NotContains(t, body, "secret", name)
	}
	code, _, _ := b.fetchURL(http.MethodPost, good)
	require.Equal(t, http.StatusMethodNotAllowed, code)
	code, _, _ = b.fetchURL(http.MethodGet, b.signedURL("default", "absent"))
	require.Equal(t, http.StatusNotFound, code)
	code, _, _ = b.fetchURL(http.MethodGet, b.signedURL("elsewhere", "a"))
	require.Equal(t, http.StatusNotFound, code)
	b.store.Inject(func(memstore.Op, string) error { return errors.New("internal details") })
	code, body, _ := b.fetchURL(http.MethodGet, good)
	require.Equal(t, http.StatusBadGateway, code)
	require.NotContains(t, body, "internal details")
	b.store.Inject(nil)
	b.clock.Step(10*time.Minute - time.Second)
	code, _, _ = b.fetchURL(http.MethodGet, good)
	require.Equal(t, http.StatusOK, code)
	b.clock.Step(time.Second)
	code, body, _ = b.fetchURL(http.MethodGet, good)
	require.Equal(t, http.StatusForbidden, code)
	require.Contains(t, body, "expired")
}

// A link needs no token, so the log is where it is seen who reads backups.
func TestWhatIsServedIsLogged(t *testing.T) {
	b := newBed(t)
	b.store.Set("backups/b/b-logs.gz", []byte("x"))
	url := b.signedURL("default", "backups/b/b-logs.gz")
	_, _, _ = b.fetchURL(http.MethodGet, url+"0")
	require.False(t, b.log.hasText("Served artifact"))
	_, _, _ = b.fetchURL(http.MethodGet, url)
	const line = `msg="Served artifact" location=default key=backups/b/b-logs.gz peer=127.0.0.1:`
	require.Eventually(t, func() bool { return b.log.hasText(line) }, time.Minute, time.Millisecond)
	require.False(t, b.log.hasText("signature"))
}

// TestALinkIsNotValidForever: a signature was taken whatever end it had.
func TestALinkIsNotValidForever(t *testing.T) {
	b := newBed(t)
	b.store.Set("a", []byte("x"))
	_, err := b.signer.URL("default", "a", artifact.MaxAge+time.Second)
	require.ErrorContains(t, err, "at most 1h")
	url, err := b.signer.URL("default", "a", artifact.MaxAge)
	require.NoError(t, err)
	code, _, _ := b.fetchURL(http.MethodGet, url)
	require.Equal(t, http.StatusOK, code)
	b.clock.SetTime(b.clock.Now().Add(-time.Hour)) // signed by a replica whose clock is ahead
	code, _, _ = b.fetchURL(http.MethodGet, url)
	require.Equal(t, http.StatusForbidden, code)
}

func TestAShortBodyIsSeen(t *testing.T) {
	b := newBed(t)
	b.store.Set("a", []byte(strings.Repeat("x", 1<<20)))
	b.store.Inject(func(op memstore.Op, _ string) error {
		if op == memstore.OpRead {
			return errors.New("connection lost")
		}
		return nil
	})
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, b.signedURL("default", "a"), nil)
	require.NoError(t, err)
	resp, err := http.DefaultClient.Do(req)
	if err == nil {
		_, err = io.ReadAll(resp.Body)
		require.NoError(t, resp.Body.Close())
	}
	require.Error(t, err)
}

func TestBadConfigurationIsNotSigned(t *testing.T) {
	b := newBed(t)
	b.signer.Base = "no url"
	_, err := b.signer.URL("l", "k", time.Minute)
	require.ErrorContains(t, err, "no url")
	b.signer.Key = []byte("short")
	_, err = b.signer.URL("l", "k", time.Minute)
	require.ErrorContains(t, err, "5 bytes")
}

func TestLoadKey(t *testing.T) {
	c := fake.NewFakeClient()
	first, err := artifact.LoadKey(t.Context(), c, c, "velero")
	require.NoError(t, err)
	require.Len(t, first, artifact.KeyBytes)
	second, err := artifact.LoadKey(t.Context(), c, c, "velero")
	require.NoError(t, err)
	require.Equal(t, first, second)

	damaged := fake.NewFakeClient(&corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: "velero", Name: artifact.SecretName}, Data: map[string][]byte{"key": []byte("x")},
	})
	_, err = artifact.LoadKey(t.Context(), damaged, damaged, "velero")
	require.ErrorContains(t, err, artifact.SecretName)
}
