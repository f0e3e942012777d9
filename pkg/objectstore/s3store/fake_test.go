package s3store

import (
	"crypto/md5" //nolint:gosec // what S3 makes ETags of
	"encoding/hex"
	"encoding/xml"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/stretchr/testify/require"
)

// server is an S3 server with the faults real ones have. The suite runs against a real server
// elsewhere.
type server struct {
	mu       sync.Mutex
	objects  map[string]stored
	uploads  map[string]*upload
	requests []string // method and what it is, in order

	ignoreConditions bool
	refuseConditions bool // with NotImplemented
	noCopy           bool
	lose             func(r *http.Request) bool // do the work, then drop the connection instead of answering
	refuse           func(r *http.Request) (status int, code string)
}

type stored struct {
	data []byte
	mark string
}

type upload struct {
	key, mark string
	parts     map[int][]byte
}

func newServer(t *testing.T) (*server, *Store) {
	t.Helper()
	f := &server{objects: map[string]stored{}, uploads: map[string]*upload{}}
	listener := httptest.NewServer(f)
	t.Cleanup(listener.Close)
	s, err := Open(t.Context(), Config{
		Bucket: "b", Region: "r", Endpoint: listener.URL, PathStyle: true, Condition: NewCondition("probe/"),
		Credentials: credentials.NewStaticCredentialsProvider("id", "secret", ""),
	})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	return f, s
}

func (f *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.requests = append(f.requests, r.Method+" "+requestKind(r))
	if f.refuse != nil {
		if status, code := f.refuse(r); status != 0 {
			writeError(w, status, code)
			return
		}
	}
	answer := httptest.NewRecorder()
	f.handleRequest(answer, r, body)
	if f.lose != nil && f.lose(r) {
		if conn, _, err := http.NewResponseController(w).Hijack(); err == nil {
			_ = conn.Close()
		}
		return
	}
	for name, values := range answer.Header() {
		w.Header()[name] = values
	}
	w.WriteHeader(answer.Code)
	_, _ = w.Write(answer.Body.Bytes())
}

func requestKind(r *http.Request) string {
	q := r.URL.Query()
	switch {
	case q.Has("uploads"):
		return "begin"
	case r.Header.Get("X-Amz-Copy-Source") != "":
		return "copy"
	case q.Has("partNumber"):
		return "part"
	case q.Has("uploadId"):
		return "upload"
	}
	return "object"
}

func (f *server) handleRequest(w http.ResponseWriter, r *http.Request, body []byte) {
	key, q := strings.TrimPrefix(r.URL.Path, "/b/"), r.URL.Query()
	up := f.uploads[q.Get("uploadId")]
	switch r.Method + " " + requestKind(r) {
	case "GET object", "HEAD object":
		f.serveObject(w, r, key)
	case "PUT object":
		if f.admitsWrite(w, r, key) {
			f.objects[key] = stored{body, r.Header.Get("X-Amz-Meta-Holdfast-Write")}
			w.Header().Set("ETag", etagOf(body))
		}
	case "DELETE object":
		delete(f.objects, key)
		w.WriteHeader(http.StatusNoContent)
	case "POST begin":
		id := "upload-" + strconv.Itoa(len(f.uploads))
		f.uploads[id] = &upload{key: key, mark: r.Header.Get("X-Amz-Meta-Holdfast-Write"), parts: map[int][]byte{}}
		_, _ = fmt.Fprintf(w, "<InitiateMultipartUploadResult><UploadId>%s</UploadId></InitiateMultipartUploadResult>", id)
	case "PUT part", "PUT copy":
		f.servePart(w, r, up, body)
	case "POST upload":
		f.completeUpload(w, r, up, body)
	case "GET begin":
		f.listUploads(w, q.Get("prefix"))
	case "DELETE upload":
		delete(f.uploads, q.Get("uploadId"))
		w.WriteHeader(http.StatusNoContent)
	}
}

func (f *server) listUploads(w http.ResponseWriter, prefix string) {
	_, _ = io.WriteString(w, "<ListMultipartUploadsResult><IsTruncated>false</IsTruncated>")
	for id, up := range f.uploads {
		if strings.HasPrefix(up.key, prefix) {
			_, _ = fmt.Fprintf(w, "<Upload><Key>%s</Key><UploadId>%s</UploadId><Initiated>2026-01-01T00:00:00Z</Initiated></Upload>", up.key, id)
		}
	}
	_, _ = io.WriteString(w, "</ListMultipartUploadsResult>")
}

func (f *server) serveObject(w http.ResponseWriter, r *http.Request, key string) {
	o, ok := f.objects[key]
	if !ok {
		writeError(w, http.StatusNotFound, "NoSuchKey")
		return
	}
	data, code := o.data, http.StatusOK
	if from, to, ok := parseRange(r.Header.Get("Range"), len(data)); ok {
		data, code = data[from:to], http.StatusPartialContent
	}
	w.Header().Set("ETag", etagOf(o.data))
	w.Header().Set("Content-Length", strconv.Itoa(len(data)))
	w.Header().Set("X-Amz-Meta-Holdfast-Write", o.mark)
	w.WriteHeader(code)
	if r.Method == http.MethodGet {
		_, _ = w.Write(data)
	}
}

func (f *server) admitsWrite(w http.ResponseWriter, r *http.Request, key string) bool {
	if r.Header.Get("If-None-Match") == "" || f.ignoreConditions {
		return true
	}
	if f.refuseConditions {
		writeError(w, http.StatusNotImplemented, "NotImplemented")
		return false
	}
	if _, ok := f.objects[key]; ok {
		writeError(w, http.StatusPreconditionFailed, "PreconditionFailed")
		return false
	}
	return true
}

func (f *server) servePart(w http.ResponseWriter, r *http.Request, up *upload, body []byte) {
	n, err := strconv.Atoi(r.URL.Query().Get("partNumber"))
	if err != nil || up == nil {
		writeError(w, http.StatusNotFound, "NoSuchUpload")
		return
	}
	if source := r.Header.Get("X-Amz-Copy-Source"); source != "" {
		if f.noCopy {
			writeError(w, http.StatusNotImplemented, "NotImplemented")
			return
		}
		o, ok := f.objects[strings.TrimPrefix(source, "b/")]
		from, to, inside := parseRange(r.Header.Get("X-Amz-Copy-Source-Range"), len(o.data))
		if !ok || !inside {
			writeError(w, http.StatusNotFound, "NoSuchKey")
			return
		}
		body = o.data[from:to]
		_, _ = fmt.Fprintf(w, "<CopyPartResult><ETag>%s</ETag></CopyPartResult>", etagOf(body))
	}
	up.parts[n] = body
	w.Header().Set("ETag", etagOf(body))
}

func (f *server) completeUpload(w http.ResponseWriter, r *http.Request, up *upload, body []byte) {
	var list struct {
		Part []struct{ PartNumber int }
	}
	if err := xml.Unmarshal(body, &list); err != nil || up == nil {
		writeError(w, http.StatusNotFound, "NoSuchUpload")
		return
	}
	if !f.admitsWrite(w, r, up.key) {
		return
	}
	var data []byte
	for i, p := range list.Part {
		if i < len(list.Part)-1 && len(up.parts[p.PartNumber]) < minPart {
			writeError(w, http.StatusBadRequest, "EntityTooSmall")
			return
		}
		data = append(data, up.parts[p.PartNumber]...)
	}
	f.objects[up.key] = stored{data, up.mark}
	delete(f.uploads, r.URL.Query().Get("uploadId"))
	_, _ = fmt.Fprintf(w, "<CompleteMultipartUploadResult><ETag>%s</ETag></CompleteMultipartUploadResult>", etagOf(data))
}

// parseRange reads "bytes=from-to" of n bytes; false without one or outside.
func parseRange(header string, n int) (from, to int, ok bool) {
	if _, err := fmt.Sscanf(header, "bytes=%d-%d", &from, &to); err != nil || from >= n {
		return 0, 0, false
	}
	return from, min(to+1, n), true
}

func etagOf(data []byte) string {
	sum := md5.Sum(data) //nolint:gosec // what S3 makes ETags of
	return `"` + hex.EncodeToString(sum[:]) + `"`
}

func writeError(w http.ResponseWriter, status int, code string) {
	w.WriteHeader(status)
	_, _ = fmt.Fprintf(w, "<Error><Code>%s</Code><Message>on purpose</Message></Error>", code)
}

// countRequests returns how many requests of a kind came.
func (f *server) countRequests(what string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	n := 0
	for _, r := range f.requests {
		if r == what {
			n++
		}
	}
	return n
}

func (f *server) objectContent(key string) (string, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	o, ok := f.objects[key]
	return string(o.data), ok
}
