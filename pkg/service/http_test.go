package service_test

import (
	"crypto/tls"
	"crypto/x509"
	"io"
	"net/http"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/pkg/errgrpc"
	"github.com/holdfast-io/holdfast/pkg/service"
	"github.com/holdfast-io/holdfast/pkg/service/certtest"
)

// TestAnEndpointBeyondLoopbackNeedsTLS: links of artifacts are as good as passwords, and what they
// lead to holds Secrets; both went in the clear over the network.
func TestAnEndpointBeyondLoopbackNeedsTLS(t *testing.T) {
	r := newWorld(t).newRuntime(t, "manifest-indexer")
	for _, address := range []string{"0.0.0.0:0", ":0", "example.com:0", "no port"} {
		_, err := r.Listen(t.Context(), "--artifact-address", address, http.NotFoundHandler())
		field := new(errgrpc.FieldError)
		require.ErrorAs(t, err, &field, address)
		require.Equal(t, "--artifact-address", field.Field)
	}
	_, err := r.Listen(t.Context(), "--artifact-address", r.HTTPAddr(), http.NotFoundHandler())
	require.ErrorContains(t, err, "--artifact-address: ", "the port of metrics is taken")
}

// TestAnEndpointServesItsHandlerOnly: a client that may fetch artifacts, or scrape metrics, reached
// both on one port.
func TestAnEndpointServesItsHandlerOnly(t *testing.T) {
	w := newWorld(t)
	authority := certtest.New(t, "servers")
	cert, callers := authority.CAFile, certtest.New(t, "callers")
	secure := w.newSecureRuntime(t, "manifest-indexer", authority.Issue(t, "own", "127.0.0.1"), func(b *service.Base) { b.Options.TLSClientCAFile = callers.CAFile })
	for scheme, r := range map[string]*service.Runtime{"http": w.newRuntime(t, "deletion"), "https": secure} {
		mux := http.NewServeMux()
		mux.HandleFunc("GET /own", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "here") })
		url, err := r.Listen(t.Context(), "--artifact-address", "127.0.0.1:0", mux)
		require.NoError(t, err)
		require.True(t, strings.HasPrefix(url, scheme+"://127.0.0.1:"), url)
		stop := runRuntimeInTest(t, r)
		body, err := fetchURL(t, cert, url+"/own")
		require.NoError(t, err, "no client certificate is asked for: a link is what lets in")
		require.Equal(t, "200 here", body)
		body, err = fetchURL(t, cert, url+"/metrics")
		require.NoError(t, err)
		require.Contains(t, body, "404")
		code, _ := getPath(t, r, "/own")
		require.Equal(t, http.StatusNotFound, code)
		require.NoError(t, stop())
		_, err = fetchURL(t, cert, url+"/own")
		require.Error(t, err, "it ends with the service")
	}
}

// fetchURL gets a URL, trusting the authorities of caFile.
func fetchURL(t *testing.T, caFile, url string) (string, error) {
	t.Helper()
	pem, err := os.ReadFile(caFile)
	require.NoError(t, err)
	pool := x509.NewCertPool()
	require.True(t, pool.AppendCertsFromPEM(pem))
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true, TLSClientConfig: &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}}}
	resp, err := client.Get(url)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	return resp.Status[:4] + string(body), err
}
