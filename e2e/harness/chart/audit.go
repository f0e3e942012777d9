package chart

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/e2e/harness/fleet"
	"github.com/holdfast-io/holdfast/e2e/harness/testbed"
)

// auditPolicy notes the requests of the accounts that are put in, and what they asked in reviews.
const auditPolicy = `
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
  - {level: RequestResponse, users: %[1]s, resources: [{group: authorization.k8s.io, resources: [subjectaccessreviews]}]}
  - {level: Metadata, users: %[1]s}
  - {level: None}
`

// Audit notes what the accounts of a namespace ask of the API server, and how it decided.
type Audit struct {
	log, policy, namespace string
	starts                 []timeSpan
	// AdmissionRefuses says that admission and quotas refuse requests on purpose: what is refused for want of a right alone counts.
	AdmissionRefuses bool
}

// timeSpan is a time in which an API server starts.
type timeSpan struct{ from, to time.Time }

// NewAudit returns a log in a directory of the test.
func NewAudit(t *testing.T, namespace string) *Audit {
	t.Helper()
	dir := t.TempDir()
	a := &Audit{log: filepath.Join(dir, "audit.log"), policy: filepath.Join(dir, "policy.yaml"), namespace: namespace}
	var users []string
	for _, service := range fleet.Services {
		users = append(users, User(namespace, service))
	}
	text, err := json.Marshal(users)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(a.policy, fmt.Appendf(nil, auditPolicy, text), 0o600))
	return a
}

// Configure makes a cluster write the log, to one file of up to 10 GB.
func (a *Audit) Configure(config *testbed.Config) {
	config.APIServerArgs = append(config.APIServerArgs,
		"--audit-policy-file="+a.policy, "--audit-log-path="+a.log, "--audit-log-mode=blocking", "--audit-log-maxsize=10000")
}

// Start calls start, which starts an API server that was away and returns when it is ready. What is
// refused meanwhile does not count: a server that has not read the roles yet refuses everything. Not
// safe for concurrent use.
func (a *Audit) Start(start func() error) error {
	from := time.Now()
	err := start()
	a.starts = append(a.starts, timeSpan{from, time.Now()})
	return err
}

func (a *Audit) isStarting(at time.Time) bool {
	return slices.ContainsFunc(a.starts, func(s timeSpan) bool { return !at.Before(s.from) && !at.After(s.to) })
}

// Path returns the path of the log, in which each line is an event of audit.k8s.io/v1.
func (a *Audit) Path() string { return a.log }

// auditEvent is an entry of the log, as audit.k8s.io/v1 has it.
type auditEvent struct {
	Verb           string                                                            `json:"verb"`
	Received       time.Time                                                         `json:"requestReceivedTimestamp"`
	RequestURI     string                                                            `json:"requestURI"`
	User           struct{ Username string }                                         `json:"user"`
	ObjectRef      struct{ Namespace, Name, APIGroup, Resource, Subresource string } `json:"objectRef"`
	Decision       map[string]string                                                 `json:"annotations"`
	ResponseStatus struct {
		Code    int
		Message string
	} `json:"responseStatus"`
	RequestObject struct {
		Spec struct {
			User                  string
			NonResourceAttributes *struct{ Path, Verb string }
		}
	} `json:"requestObject"`
	ResponseObject struct{ Status struct{ Allowed bool } } `json:"responseObject"`
}

// Requests returns what services were allowed and, with the server's message, what they were refused,
// each once. A call that one service was reviewed for by another is among them.
func (a *Audit) Requests(t *testing.T) (allowed map[Request]bool, refused map[Request]string) {
	t.Helper()
	allowed, refused = map[Request]bool{}, map[Request]string{}
	a.readEvents(t, 0, func(e *auditEvent) {
		r := e.requestOf()
		refusal := e.Decision["authorization.k8s.io/decision"] == "forbid" || !a.AdmissionRefuses && e.ResponseStatus.Code == http.StatusForbidden
		switch {
		case !refusal:
			allowed[r] = true
		case !a.isStarting(e.Received):
			refused[r] = e.ResponseStatus.Message
		}
		if call, ok := e.reviewedRequest(a.namespace); ok && e.ResponseObject.Status.Allowed {
			allowed[call] = true
		} else if ok {
			refused[call] = "reviewed by " + r.Service
		}
	})
	return allowed, refused
}

// readEvents reads the log from a place on.
func (a *Audit) readEvents(t *testing.T, from int64, do func(*auditEvent)) {
	t.Helper()
	file, err := os.Open(a.log)
	require.NoError(t, err)
	defer func() { _ = file.Close() }()
	_, err = file.Seek(from, io.SeekStart)
	require.NoError(t, err)
	lines := bufio.NewScanner(file)
	lines.Buffer(nil, 1<<24)
	for lines.Scan() {
		var e auditEvent
		require.NoError(t, json.Unmarshal(lines.Bytes(), &e))
		do(&e)
	}
	require.NoError(t, lines.Err())
}

// Mark returns the end of the log. An API server writes its line before it answers a request.
func (a *Audit) Mark(t *testing.T) int64 {
	t.Helper()
	info, err := os.Stat(a.log)
	require.NoError(t, err)
	return info.Size()
}

// Writes returns what the services wrote since a mark, each once: every request that is carried out and is no read, no
// dry run of the API server and no review. Leases and Events, which services write all the time, are left out.
func (a *Audit) Writes(t *testing.T, mark int64) (writes []string) {
	t.Helper()
	a.readEvents(t, mark, func(e *auditEvent) {
		r := e.requestOf()
		reads := slices.Contains([]string{"get", "list", "watch"}, r.Verb) || strings.Contains(e.RequestURI, "dryRun=All")
		if reads || strings.HasSuffix(r.Resource, "reviews") || r.Resource == "leases" || r.Resource == "events" {
			return
		}
		if text := r.String(); !slices.Contains(writes, text) {
			writes = append(writes, text)
		}
	})
	return writes
}

func (e *auditEvent) requestOf() Request {
	o := e.ObjectRef
	r := Request{
		Service: serviceOf(e.User.Username), Verb: e.Verb, Group: o.APIGroup, Resource: o.Resource, Subresource: o.Subresource, Namespace: o.Namespace, Name: o.Name,
	}
	if o.Resource == "" {
		r.Path = strings.SplitN(e.RequestURI, "?", 2)[0]
	}
	return r
}

// reviewedRequest returns the call of another service that this event is a review of.
func (e *auditEvent) reviewedRequest(namespace string) (Request, bool) {
	spec := e.RequestObject.Spec
	if spec.NonResourceAttributes == nil || !strings.HasPrefix(spec.User, User(namespace, "")) {
		return Request{}, false
	}
	return Request{Service: serviceOf(spec.User), Verb: spec.NonResourceAttributes.Verb, Path: spec.NonResourceAttributes.Path}, true
}

// RefusedNothing fails the test for each request of a service that was refused, and records what was
// allowed, where that is asked for (see Records).
func (a *Audit) RefusedNothing(t *testing.T) {
	t.Helper()
	allowed, refused := a.Requests(t)
	for r, message := range refused {
		t.Errorf("the API server refused %s: %s", r, message)
	}
	require.NoError(t, recordRequests(t.Name(), allowed))
}
