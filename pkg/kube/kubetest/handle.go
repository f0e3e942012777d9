package kubetest

import (
	"cmp"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
)

// Fault decides about a request before it is carried out. A status other than 0 is answered
// instead; else the request is carried out, and with drop its answer is not sent and the connection
// closed.
type Fault func(r *http.Request, body map[string]any) (status int, drop bool)

// Fail installs a fault, which is asked about one request at a time; nil removes it.
func (s *Server) Fail(f Fault) {
	if f == nil {
		s.FailTogether(nil)
		return
	}
	s.FailTogether(func(r *http.Request, body map[string]any) (int, bool) {
		s.asking.Lock()
		defer s.asking.Unlock()
		return f(r, body)
	})
}

// FailTogether installs a fault that is asked about requests at the same time, as one must be that waits
// for another request.
func (s *Server) FailTogether(f Fault) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fault = f
}

// SetFailureText sets the message of the failures with a status.
func (s *Server) SetFailureText(status int, message string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.words == nil {
		s.words = map[int]string{}
	}
	s.words[status] = message
}

// SetFailureCauses sets the causes that failures with a status name.
func (s *Server) SetFailureCauses(status int, causes ...metav1.StatusCause) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.causes == nil {
		s.causes = map[int][]metav1.StatusCause{}
	}
	s.causes[status] = causes
}

func (s *Server) faultText(status int) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return cmp.Or(s.words[status], "asked to fail")
}

func (s *Server) faultCauses(status int) []metav1.StatusCause {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.causes[status]
}

// installedFault is the fault that Fail installed.
func (s *Server) installedFault() Fault {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.fault
}

// OpenFaultyDoor returns another way to the same server with a fault of its own, or with f nil the server's.
// Once closed, nothing that was sent through it takes effect any more, as a request of a client
// that is gone might.
func (s *Server) OpenFaultyDoor(f Fault) (config *rest.Config, closeIt func()) {
	door := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fault := f
		if fault == nil {
			fault = s.installedFault()
		}
		s.answerRequest(w, r, fault)
	}))
	return &rest.Config{Host: door.URL}, door.Close
}

// ServeHTTP implements http.Handler.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.answerRequest(w, r, s.installedFault())
}

// reasons are those of the statuses that faults answer.
var reasons = map[int]metav1.StatusReason{
	http.StatusTooManyRequests: metav1.StatusReasonTooManyRequests, http.StatusServiceUnavailable: metav1.StatusReasonServiceUnavailable,
	http.StatusForbidden: metav1.StatusReasonForbidden, http.StatusUnprocessableEntity: metav1.StatusReasonInvalid,
	http.StatusInternalServerError: metav1.StatusReasonInternalError,
}

func (s *Server) answerRequest(w http.ResponseWriter, r *http.Request, fault Fault) {
	if r.Method == http.MethodGet && s.answerDiscovery(w, r.URL.Path) {
		return
	}
	if s.Exec != nil && strings.HasSuffix(r.URL.Path, "/exec") {
		s.noteRequest(r)
		s.Exec.ServeHTTP(w, r)
		return
	}
	body, err := readBody(r)
	if err != nil {
		writeFailure(w, http.StatusBadRequest, metav1.StatusReasonBadRequest, err.Error())
		return
	}
	drop := false
	if fault != nil {
		var status int
		if status, drop = fault(r, body); status != 0 {
			s.noteRequest(r)
			failure := failureStatus(status, reasons[status], s.faultText(status))
			if causes := s.faultCauses(status); len(causes) > 0 {
				failure.Details = &metav1.StatusDetails{Causes: causes}
			}
			writeReply(w, status, failure)
			return
		}
	}
	if !drop {
		s.handleRequest(w, r, body)
		return
	}
	s.handleRequest(httptest.NewRecorder(), r, body)
	if conn, _, err := http.NewResponseController(w).Hijack(); err == nil {
		_ = conn.Close()
	}
}

// readBody decodes the body of a request; a JSON patch, which is a list, becomes the field "patch".
func readBody(r *http.Request) (body map[string]any, err error) {
	raw, err := io.ReadAll(r.Body)
	if err != nil || len(raw) == 0 {
		return nil, err
	}
	if r.Header.Get("Content-Type") == string(types.JSONPatchType) {
		return map[string]any{"patch": json.RawMessage(raw)}, nil
	}
	err = json.Unmarshal(raw, &body)
	return body, err
}

func (s *Server) noteRequest(r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.seen.requests = append(s.seen.requests, r.Method+" "+r.URL.Path)
}

func (s *Server) handleRequest(w http.ResponseWriter, r *http.Request, body map[string]any) {
	s.noteRequest(r)
	t, ok := parseTarget(r.URL.Path)
	listing := ok && r.Method == http.MethodGet && t.name == "" && s.callBefore(r)
	s.mu.Lock()
	defer s.mu.Unlock()
	c := apiCall{w: w, r: r, storage: &s.storage, kinds: &s.kinds, kind: s.kinds.findKind(t), target: t, body: body, defaults: s.Default}
	switch {
	case !ok || c.kind == nil:
		writeFailure(w, http.StatusNotFound, metav1.StatusReasonNotFound, "the server could not find the requested resource")
	case listing:
		s.seen.lists++
		if expired := c.answerList(); expired {
			s.seen.gone++
		}
	case r.Method == http.MethodPost && t.name == "":
		noteFieldManager(body, r)
		c.createObject()
	case s.storage.recordOf(t).currentObject() == nil:
		writeFailure(w, http.StatusNotFound, metav1.StatusReasonNotFound, r.URL.Path+" not found")
	default:
		c.answerSingle()
	}
}

// callBefore lets Before see a list request.
func (s *Server) callBefore(r *http.Request) bool {
	if s.Before != nil {
		s.before.Lock()
		defer s.before.Unlock()
		s.Before(s, r)
	}
	return true
}

func writeReply(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v) // the client may have closed the connection
}

func writeFailure(w http.ResponseWriter, code int, reason metav1.StatusReason, message string) {
	writeReply(w, code, failureStatus(code, reason, message))
}

func failureStatus(code int, reason metav1.StatusReason, message string) metav1.Status {
	return metav1.Status{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: metav1.StatusFailure,
		Code: int32(code), Reason: reason, Message: message,
	}
}

func encodeToken(v any) string {
	data, err := json.Marshal(v)
	if err != nil {
		return err.Error() // not JSON, so that a test that gets here fails
	}
	return string(data)
}

func stringOf(v any) string {
	s, _ := v.(string)
	return s
}
