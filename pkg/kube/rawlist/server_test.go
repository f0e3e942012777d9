package rawlist

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/holdfast-io/holdfast/pkg/json/jsonlist"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var configMaps = schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}

// apiServer is an API server with one kind of object, paging as Kubernetes does.
type apiServer struct {
	mu        sync.Mutex
	objects   []string // names, sorted
	revision  int64
	compacted int64 // revisions below are gone
	size      int   // bytes of data in each object
	lastFirst bool  // metadata after the items, as for custom resources
	requests  []http.Request
	// fault, if set, may answer a request itself and return true.
	fault func(n int, w http.ResponseWriter, r *http.Request) bool
}

type token struct {
	Revision int64
	After    string
}

func (s *apiServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.requests = append(s.requests, *r)
	if s.fault != nil && s.fault(len(s.requests), w, r) {
		return
	}
	q := r.URL.Query()
	at := token{Revision: s.revision}
	switch {
	case q.Get("continue") != "":
		if err := json.Unmarshal([]byte(q.Get("continue")), &at); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		if at.Revision < 0 {
			at.Revision = s.revision
		}
	case q.Get("resourceVersion") != "":
		if q.Get("resourceVersionMatch") != "Exact" {
			http.Error(w, "not an exact request", http.StatusBadRequest)
			return
		}
		at.Revision, _ = strconv.ParseInt(q.Get("resourceVersion"), 10, 64)
	}
	if at.Revision < s.compacted {
		s.replyGone(w, at)
		return
	}
	s.replyPage(w, r, at)
}

func (s *apiServer) replyGone(w http.ResponseWriter, at token) {
	status := metav1.Status{TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Code: http.StatusGone,
		Reason: metav1.StatusReasonExpired, Message: "too old"}
	if at.After != "" {
		b, _ := json.Marshal(token{Revision: -1, After: at.After})
		status.Continue = string(b)
	}
	writeReply(w, http.StatusGone, status)
}

func (s *apiServer) replyPage(w http.ResponseWriter, r *http.Request, at token) {
	limit, _ := strconv.Atoi(r.URL.Query().Get("limit"))
	var items []string
	next := ""
	for _, name := range s.objects {
		if at.After != "" && name <= at.After {
			continue
		}
		if len(items) == limit {
			b, _ := json.Marshal(token{Revision: at.Revision, After: lastOf(items)})
			next = string(b)
			break
		}
		items = append(items, name)
	}
	bodies := make([]string, len(items))
	for i, name := range items {
		bodies[i] = fmt.Sprintf(`{"metadata":{"name":%q,"namespace":"n"},"data":{"k":%q}}`, name, strings.Repeat("x", s.size))
	}
	meta := fmt.Sprintf(`"metadata":{"resourceVersion":"%d","continue":%q}`, at.Revision, next)
	list := `"items":[` + strings.Join(bodies, ",") + `]`
	if s.lastFirst {
		meta, list = list, meta
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = fmt.Fprintf(w, `{"kind":"ConfigMapList","apiVersion":"v1",%s,%s}`, meta, list)
}

func lastOf(s []string) string { return s[len(s)-1] }

func writeReply(w http.ResponseWriter, code int, status metav1.Status) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(status)
}

func podNames(n int) []string {
	out := make([]string, n)
	for i := range out {
		out[i] = fmt.Sprintf("o-%05d", i)
	}
	return out
}

// collector keeps the names of committed items and checks the sink's contract.
type collector struct {
	committed, open []string
	pages           []Page
	rollbacks       int
	begun           string
	fail            error
}

func (c *collector) Begin(revision string) error {
	c.begun = revision
	return nil
}

func (c *collector) Item(item jsonlist.Item) error {
	if c.fail != nil {
		return c.fail
	}
	var m struct{ Name string }
	if err := json.Unmarshal(item.Metadata, &m); err != nil {
		return err
	}
	c.open = append(c.open, m.Name)
	return nil
}

func (c *collector) Commit(p Page) error {
	if p.Revision != c.begun {
		return fmt.Errorf("page of revision %s was announced as of %s", p.Revision, c.begun)
	}
	if p.Items != len(c.open) {
		return fmt.Errorf("page says %d items, %d came", p.Items, len(c.open))
	}
	c.committed = append(c.committed, c.open...)
	c.open, c.pages = nil, append(c.pages, p)
	return nil
}

func (c *collector) Rollback() error {
	c.open = nil
	c.rollbacks++
	return nil
}

func startClient(t *testing.T, s *apiServer, opts Options) *Client {
	t.Helper()
	srv := httptest.NewServer(s)
	t.Cleanup(srv.Close)
	if opts.Clock == nil {
		opts.Clock = fastClock{}
	}
	c, err := New(&rest.Config{Host: srv.URL}, opts)
	require.NoError(t, err)
	t.Cleanup(c.http.CloseIdleConnections)
	return c
}

// fastClock is the real clock with pauses a thousand times shorter.
type fastClock struct{ clock.RealClock }

func (fastClock) NewTimer(d time.Duration) clock.Timer {
	return clock.RealClock{}.NewTimer(d / 1000)
}

// steppedClock has the time of a test, and fastClock's pauses.
type steppedClock struct {
	fastClock
	time *clocktesting.FakePassiveClock
}

func (c steppedClock) Now() time.Time                  { return c.time.Now() }
func (c steppedClock) Since(t time.Time) time.Duration { return c.time.Since(t) }
