package rawlist

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/holdfast-io/holdfast/pkg/json/jsonlist"
)

func TestListPagesAtOneRevision(t *testing.T) {
	for _, lastFirst := range []bool{false, true} {
		s := &apiServer{objects: podNames(1000), revision: 70, lastFirst: lastFirst}
		c := startClient(t, s, Options{FirstLimit: 10})
		var got collector
		require.NoError(t, c.List(t.Context(), Request{Resource: configMaps, Namespace: "n", Revision: "42", Selector: "a=b"}, &got))
		require.Equal(t, s.objects, got.committed)
		for _, p := range got.pages {
			require.Equal(t, "42", p.Revision)
			require.Equal(t, "ConfigMapList", p.Kind)
		}
		require.Empty(t, got.pages[len(got.pages)-1].Continue)
		for i, r := range s.requests {
			require.Equal(t, "/api/v1/namespaces/n/configmaps", r.URL.Path)
			require.Equal(t, "application/json", r.Header.Get("Accept"))
			require.NotContains(t, r.Header.Get("Accept-Encoding"), "gzip")
			require.Equal(t, "a=b", r.URL.Query().Get("labelSelector"))
			require.Equal(t, i == 0, r.URL.Query().Has("resourceVersion"), "only the first page names the revision")
		}
	}
}

func TestPageSizeFollowsItemSize(t *testing.T) {
	small := &apiServer{objects: podNames(5000), revision: 1}
	c := startClient(t, small, Options{FirstLimit: 10})
	require.NoError(t, c.List(t.Context(), Request{Resource: configMaps, Revision: "1"}, &collector{}))
	require.LessOrEqual(t, len(small.requests), 8, "pages of small items grow")

	big := &apiServer{objects: podNames(60), revision: 1, size: 100_000}
	c = startClient(t, big, Options{FirstLimit: 20, PageBytes: 500_000})
	var got collector
	require.NoError(t, c.List(t.Context(), Request{Resource: configMaps, Revision: "1"}, &got))
	require.Equal(t, 20, got.pages[0].Items)
	require.Less(t, got.pages[1].Items, 6, "pages of big items shrink")
}

func TestNewestRevisionIsKept(t *testing.T) {
	s := &apiServer{objects: podNames(30), revision: 5}
	s.fault = func(n int, _ http.ResponseWriter, _ *http.Request) bool {
		s.revision++ // the cluster moves on between pages
		return false
	}
	c := startClient(t, s, Options{FirstLimit: 4})
	var got collector
	require.NoError(t, c.List(t.Context(), Request{Resource: configMaps}, &got))
	require.Equal(t, s.objects, got.committed)
	require.LessOrEqual(t, got.pages[0].Items, firstLimit)
	require.Equal(t, "6", got.pages[0].Revision)
	require.Equal(t, "6", got.pages[len(got.pages)-1].Revision)
	rev, err := c.Revision(t.Context())
	require.NoError(t, err)
	require.NotEqual(t, "6", rev)
}

func TestExpired(t *testing.T) {
	s := &apiServer{objects: podNames(100), revision: 50}
	c := startClient(t, s, Options{FirstLimit: 10})
	s.fault = func(n int, _ http.ResponseWriter, _ *http.Request) bool {
		if n == 2 {
			s.compacted = 50
		}
		return false
	}
	var got collector
	err := c.List(t.Context(), Request{Resource: configMaps, Revision: "42"}, &got)
	require.ErrorIs(t, err, ErrExpired)
	var expired *ExpiredError
	require.ErrorAs(t, err, &expired)
	require.Len(t, got.committed, 10, "what was committed stands")

	require.NoError(t, c.List(t.Context(), Request{Resource: configMaps, Continue: expired.Continue}, &got))
	require.Equal(t, s.objects, got.committed, "the rest follows without a gap and without a repetition")
	require.Equal(t, "50", got.pages[len(got.pages)-1].Revision)

	err = c.List(t.Context(), Request{Resource: configMaps, Revision: "42"}, &got)
	require.ErrorAs(t, err, &expired)
	require.Empty(t, expired.Continue, "nothing to continue on the first page")
}

func TestRetries(t *testing.T) {
	tooLarge := metav1.Status{TypeMeta: metav1.TypeMeta{Kind: "Status"}, Code: 504, Reason: metav1.StatusReasonTimeout,
		Details: &metav1.StatusDetails{Causes: []metav1.StatusCause{{Type: metav1.CauseTypeResourceVersionTooLarge}}}}
	faults := map[string]func(w http.ResponseWriter){
		"too large resource version": func(w http.ResponseWriter) { writeReply(w, 504, tooLarge) },
		"timeout":                    func(w http.ResponseWriter) { writeReply(w, 504, metav1.Status{}) },
		"too many requests": func(w http.ResponseWriter) {
			w.Header().Set("Retry-After", "1")
			writeReply(w, 429, metav1.Status{})
		},
		"unavailable":    func(w http.ResponseWriter) { w.WriteHeader(503) },
		"unauthorized":   func(w http.ResponseWriter) { writeReply(w, 401, metav1.Status{}) },
		"internal error": func(w http.ResponseWriter) { writeReply(w, 500, metav1.Status{}) },
		"truncated body": func(w http.ResponseWriter) {
			_, _ = w.Write([]byte(`{"kind":"ConfigMapList","apiVersion":"v1","metadata":{"resourceVersion":"42"},"items":[{"metadata":{"name":"ghost"}},`))
		},
		"connection cut": func(w http.ResponseWriter) {
			w.Header().Set("Content-Length", "1000")
			_, _ = w.Write([]byte(`{"kind":"ConfigMapList","items":[{"metadata":{"name":"ghost"}}`))
			w.(http.Flusher).Flush() // or the client's transport asks again by itself
			panic(http.ErrAbortHandler)
		},
		"not json": func(w http.ResponseWriter) { _, _ = w.Write([]byte("<html>")) },
	}
	for name, fault := range faults {
		t.Run(name, func(t *testing.T) {
			s := &apiServer{objects: podNames(50), revision: 42}
			s.fault = func(n int, w http.ResponseWriter, _ *http.Request) bool {
				if n == 1 || n == 3 || n == 4 {
					fault(w)
					return true
				}
				return false
			}
			c := startClient(t, s, Options{FirstLimit: 20})
			var got collector
			require.NoError(t, c.List(t.Context(), Request{Resource: configMaps, Revision: "42"}, &got))
			require.Equal(t, s.objects, got.committed)
			require.Equal(t, 3, got.rollbacks)
		})
	}
}

func TestGivesUp(t *testing.T) {
	always := func(code int) func(int, http.ResponseWriter, *http.Request) bool {
		return func(_ int, w http.ResponseWriter, _ *http.Request) bool {
			writeReply(w, code, metav1.Status{TypeMeta: metav1.TypeMeta{Kind: "Status"}, Message: "conversion webhook failed"})
			return true
		}
	}
	tests := map[string]struct {
		code, requests int
		aggregated     bool
	}{
		"forbidden":             {code: 403, requests: 1},
		"not found":             {code: 404, requests: 1},
		"broken for good":       {code: 500, requests: 4},
		"aggregated, not there": {code: 503, requests: 4, aggregated: true},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			s := &apiServer{fault: always(tt.code)}
			c := startClient(t, s, Options{})
			err := c.List(t.Context(), Request{Resource: configMaps, Aggregated: tt.aggregated}, &collector{})
			var status *StatusError
			require.ErrorAs(t, err, &status)
			require.Equal(t, tt.code, status.Code)
			require.ErrorContains(t, err, "conversion webhook failed")
			require.Len(t, s.requests, tt.requests)
		})
	}
}

func TestRetriesEndAtTheTimeout(t *testing.T) {
	clk := steppedClock{time: clocktesting.NewFakePassiveClock(time.Unix(0, 0))}
	s := &apiServer{fault: func(_ int, w http.ResponseWriter, _ *http.Request) bool {
		clk.time.SetTime(clk.time.Now().Add(3 * time.Second))
		w.WriteHeader(503)
		return true
	}}
	c := startClient(t, s, Options{RetryTimeout: 20 * time.Second, Clock: clk})
	var status *StatusError
	require.ErrorAs(t, c.List(t.Context(), Request{Resource: configMaps}, &collector{}), &status)
	require.Len(t, s.requests, 7, "the seventh fails after 21 s")
}

func TestUnreachableServerComesBack(t *testing.T) {
	s := &apiServer{objects: podNames(3), revision: 1}
	s.fault = func(n int, w http.ResponseWriter, _ *http.Request) bool {
		if n <= 5 {
			panic(http.ErrAbortHandler)
		}
		return false
	}
	c := startClient(t, s, Options{})
	var got collector
	require.NoError(t, c.List(t.Context(), Request{Resource: configMaps}, &got))
	require.Equal(t, s.objects, got.committed)
}

func TestOtherRevisionIsRefused(t *testing.T) {
	s := &apiServer{objects: podNames(3), revision: 9}
	s.fault = func(_ int, w http.ResponseWriter, r *http.Request) bool {
		s.replyPage(w, r, token{Revision: 9})
		return true
	}
	c := startClient(t, s, Options{})
	require.ErrorIs(t, c.List(t.Context(), Request{Resource: configMaps, Revision: "8"}, &collector{}), ErrRevision)
}

func TestSinkErrorEndsTheList(t *testing.T) {
	full := errors.New("disk full")
	s := &apiServer{objects: podNames(3), revision: 9}
	c := startClient(t, s, Options{})
	err := c.List(t.Context(), Request{Resource: configMaps}, &collector{fail: full})
	var sink *SinkError
	require.ErrorAs(t, err, &sink)
	require.ErrorIs(t, err, full)
	require.Len(t, s.requests, 1)
}

func TestItemTooLargeIsNotRetried(t *testing.T) {
	s := &apiServer{objects: podNames(3), revision: 9, size: 5000}
	c := startClient(t, s, Options{MaxItemBytes: 1000})
	require.ErrorIs(t, c.List(t.Context(), Request{Resource: configMaps}, &collector{}), jsonlist.ErrItemTooLarge)
	require.Len(t, s.requests, 1)
}

func TestStalledAnswerIsAskedForAgain(t *testing.T) {
	s := &apiServer{objects: podNames(3), revision: 9}
	s.fault = func(n int, w http.ResponseWriter, r *http.Request) bool {
		if n > 1 {
			return false
		}
		_, _ = w.Write([]byte(`{"items":[`))
		w.(http.Flusher).Flush()
		<-r.Context().Done() // the client ends the request, not the server
		return true
	}
	c := startClient(t, s, Options{Stall: 40 * time.Millisecond})
	var got collector
	require.NoError(t, c.List(t.Context(), Request{Resource: configMaps}, &got))
	require.Equal(t, s.objects, got.committed)
}

func TestCancel(t *testing.T) {
	reason := errors.New("claim lost")
	ctx, cancel := context.WithCancelCause(t.Context())
	s := &apiServer{fault: func(_ int, w http.ResponseWriter, _ *http.Request) bool {
		cancel(reason)
		w.WriteHeader(503)
		return true
	}}
	c := startClient(t, s, Options{Clock: clock.RealClock{}})
	require.ErrorIs(t, c.List(ctx, Request{Resource: configMaps}, &collector{}), reason)
}

func TestNewRefusesNonsense(t *testing.T) {
	_, err := New(&rest.Config{Host: "http://x"}, Options{})
	require.ErrorContains(t, err, "Clock")
	_, err = New(&rest.Config{Host: "://"}, Options{Clock: clock.RealClock{}})
	require.Error(t, err)
}

func TestURL(t *testing.T) {
	c, err := New(&rest.Config{Host: "https://h:1/prefix"}, Options{Clock: clock.RealClock{}})
	require.NoError(t, err)
	req := Request{Resource: configMaps}
	req.Resource.Group = "apps"
	got := c.pageURL(&req, "7", "", 5)
	require.True(t, strings.HasPrefix(got, "https://h:1/prefix/apis/apps/v1/configmaps?"), got)
	require.Contains(t, got, "resourceVersion=7&resourceVersionMatch=Exact")
}

func TestNextPageIsAskedForAhead(t *testing.T) {
	for _, lastFirst := range []bool{false, true} {
		s := &apiServer{objects: podNames(100), revision: 9, lastFirst: lastFirst}
		asked := make(chan string, 100)
		s.fault = func(_ int, _ http.ResponseWriter, r *http.Request) bool {
			asked <- r.URL.Query().Get("continue")
			return false
		}
		c := startClient(t, s, Options{FirstLimit: 10, PageBytes: 800})
		got := &early{asked: asked, wait: !lastFirst}
		require.NoError(t, c.List(t.Context(), Request{Resource: configMaps, Revision: "9"}, got))
		require.Equal(t, s.objects, got.committed, "metadata last: %v", lastFirst)
	}
}

// early waits, in the middle of its second page, for the request of the third.
type early struct {
	collector
	asked chan string
	wait  bool
}

func (e *early) Item(item jsonlist.Item) error {
	if e.wait && len(e.pages) == 1 && len(e.open) == 0 {
		for range 3 {
			select {
			case <-e.asked:
			case <-time.After(time.Minute):
				return errors.New("the next page was not asked for")
			}
		}
	}
	return e.collector.Item(item)
}

// A kind that fails at any revision is not waited for as if the server were late.
func TestBrokenKindBehindALateCache(t *testing.T) {
	late := metav1.Status{TypeMeta: metav1.TypeMeta{Kind: "Status"}, Code: 504, Reason: metav1.StatusReasonTimeout,
		Details: &metav1.StatusDetails{Causes: []metav1.StatusCause{{Type: metav1.CauseTypeResourceVersionTooLarge}}}}
	s := &apiServer{objects: podNames(5), revision: 42}
	broken := true
	s.fault = func(n int, w http.ResponseWriter, r *http.Request) bool {
		switch {
		case r.URL.Query().Get("resourceVersion") != "" && (broken || n < 5):
			writeReply(w, 504, late)
		case broken:
			writeReply(w, 500, metav1.Status{TypeMeta: metav1.TypeMeta{Kind: "Status"}, Message: "conversion webhook failed"})
		default:
			return false
		}
		return true
	}
	c := startClient(t, s, Options{})
	var got collector
	err := c.List(t.Context(), Request{Resource: configMaps, Revision: "42"}, &got)
	require.ErrorContains(t, err, "conversion webhook failed")
	require.Len(t, s.requests, doubtAfter-1+2*c.opts.Tries, "as patient as with a server that only fails")

	s.requests, broken = nil, false
	require.NoError(t, c.List(t.Context(), Request{Resource: configMaps, Revision: "42"}, &got), "a server that is only late is waited for")
	require.Equal(t, s.objects, got.committed)
}

func TestListsGoOverHTTP1(t *testing.T) {
	protocol := make(chan string, 1)
	srv := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		protocol <- r.Proto
		w.WriteHeader(http.StatusForbidden)
	}))
	srv.EnableHTTP2 = true
	srv.StartTLS()
	t.Cleanup(srv.Close)
	c, err := New(&rest.Config{Host: srv.URL, TLSClientConfig: rest.TLSClientConfig{Insecure: true}}, Options{Clock: fastClock{}})
	require.NoError(t, err)
	t.Cleanup(c.http.CloseIdleConnections)
	require.Error(t, c.List(t.Context(), Request{Resource: configMaps}, &collector{}))
	require.Equal(t, "HTTP/1.1", <-protocol)
}

// Objects without their bodies are many to a page; that says nothing about whole ones.
func TestMetadataAloneHasPagesOfItsOwn(t *testing.T) {
	s := &apiServer{objects: podNames(60), revision: 1, size: 100_000}
	c := startClient(t, s, Options{FirstLimit: 20, PageBytes: 500_000})
	require.NoError(t, c.List(t.Context(), Request{Resource: configMaps, Revision: "1"}, &collector{}))
	whole := len(s.requests)
	require.NoError(t, c.List(t.Context(), Request{Resource: configMaps, Revision: "1", Metadata: true}, &collector{}))
	require.Equal(t, "20", s.requests[whole].URL.Query().Get("limit"))
	require.Equal(t, "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json", s.requests[whole].Header.Get("Accept"))
}
