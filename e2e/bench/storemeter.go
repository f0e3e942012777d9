package bench

import (
	"context"
	"io"
	"net/http"
	"net/http/httputil"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-io/holdfast/e2e/harness/proxy"
	"github.com/holdfast-io/holdfast/e2e/harness/testbed"
)

// storeMeter stands before an S3 server and counts the bytes that are sent to it, by key, and those
// that it answers with. What the server copies by itself is not counted: it would be the same with and
// without a takeover and so make a ratio of the two look better.
type storeMeter struct {
	*proxy.Proxy
	read    atomic.Int64 // bytes of all answers
	mu      sync.Mutex
	written map[string]int64
	created map[string]time.Time // when the store had first accepted the key
}

// startMeteredS3 starts an S3 server in a directory that it makes, with the bucket and a meter before it. The
// caller stops the server and closes the meter.
func startMeteredS3(ctx context.Context, dir string) (*testbed.S3, *storeMeter, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, nil, err
	}
	server, err := testbed.StartS3(ctx, dir)
	if err != nil {
		return nil, nil, err
	}
	var meter *storeMeter
	if err = server.CreateBucket(ctx, bucket); err == nil {
		meter, err = startStoreMeter(server)
	}
	if err != nil {
		server.Stop()
		return nil, nil, err
	}
	return server, meter, nil
}

// startStoreMeter starts the proxy. The caller calls close.
func startStoreMeter(server *testbed.S3) (*storeMeter, error) {
	m := &storeMeter{written: map[string]int64{}, created: map[string]time.Time{}}
	var err error
	m.Proxy, err = proxy.Start(server.Endpoint, &http.Transport{MaxIdleConnsPerHost: 64, DisableCompression: true}, proxy.Handlers{
		Answered: m.noteAnswered,
		Rewrite: func(r *httputil.ProxyRequest) {
			r.Out.Host = r.In.Host // it is signed
			if r.Out.Body != nil && (r.In.Method == http.MethodPut || r.In.Method == http.MethodPost) {
				key := objectKey(r.In.URL.Path)
				r.Out.Body = &countingBody{ReadCloser: r.Out.Body, see: func(b []byte) { m.addBytes(key, len(b)) }}
			}
		},
	})
	return m, err
}

// countingBody passes a body on and shows every piece of it to see.
type countingBody struct {
	io.ReadCloser
	see func([]byte)
}

// Read implements io.Reader.
func (c *countingBody) Read(b []byte) (int, error) {
	n, err := c.ReadCloser.Read(b)
	c.see(b[:n])
	return n, err
}

// objectKey returns the key of a path-style request.
func objectKey(path string) string {
	_, key, _ := strings.Cut(strings.TrimPrefix(path, "/"), "/")
	return key
}

func (m *storeMeter) addBytes(key string, n int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.written[key] += int64(n)
}

// noteAnswered counts the bytes of an answer, and notes when an object was there.
func (m *storeMeter) noteAnswered(answer *http.Response) error {
	request := answer.Request
	answer.Body = &countingBody{ReadCloser: answer.Body, see: func(b []byte) { m.read.Add(int64(len(b))) }}
	if request.Method != http.MethodPut || answer.StatusCode != http.StatusOK || request.URL.Query().Has("partNumber") {
		return nil
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if key := objectKey(request.URL.Path); m.created[key].IsZero() {
		m.created[key] = time.Now()
	}
	return nil
}

// sentBytes returns how much was sent to keys that begin with prefix, refused and repeated requests
// included.
func (m *storeMeter) sentBytes(prefix string) int64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	sum := int64(0)
	for key, n := range m.written {
		if strings.HasPrefix(key, prefix) {
			sum += n
		}
	}
	return sum
}

// firstSeen returns when the first of the keys that begin with prefix was there; zero when none was.
func (m *storeMeter) firstSeen(prefix string) time.Time {
	m.mu.Lock()
	defer m.mu.Unlock()
	var first time.Time
	for key, at := range m.created {
		if strings.HasPrefix(key, prefix) && (first.IsZero() || at.Before(first)) {
			first = at
		}
	}
	return first
}
