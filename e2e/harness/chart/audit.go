package chart

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	rbacv1 "k8s.io/api/rbac/v1"

	"github.com/holdfast-io/holdfast/e2e/harness/testbed"
)

const auditPolicy = `
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
  - {level: Metadata, userGroups: ["system:serviceaccounts"]}
  - {level: None}
`

// Audit notes what accounts ask of the API server, and how it decided.
type Audit struct{ log, policy string }

// Request is what an account asked for.
type Request struct {
	Service, Verb, Group, Resource, Subresource, Namespace, Name, Path string
}

// NewAudit returns a log in a directory of the test.
func NewAudit(t *testing.T) *Audit {
	t.Helper()
	dir := t.TempDir()
	a := &Audit{log: filepath.Join(dir, "audit.log"), policy: filepath.Join(dir, "policy.yaml")}
	require.NoError(t, os.WriteFile(a.policy, []byte(auditPolicy), 0o600))
	return a
}

// Configure makes a cluster write the log.
func (a *Audit) Configure(config *testbed.Config) {
	config.APIServerArgs = append(config.APIServerArgs, "--audit-policy-file="+a.policy, "--audit-log-path="+a.log, "--audit-log-mode=blocking")
}

// event is an entry of the log, as audit.k8s.io/v1 has it.
type event struct {
	Verb       string                                                            `json:"verb"`
	RequestURI string                                                            `json:"requestURI"`
	User       struct{ Username string }                                         `json:"user"`
	ObjectRef  struct{ Namespace, Name, APIGroup, Resource, Subresource string } `json:"objectRef"`
	Decision   map[string]string                                                 `json:"annotations"`
}

// Requests returns what services were allowed and what they were refused, each once.
func (a *Audit) Requests(t *testing.T, namespace string) (allowed, refused map[Request]bool) {
	t.Helper()
	file, err := os.Open(a.log)
	require.NoError(t, err)
	defer func() { _ = file.Close() }()
	allowed, refused = map[Request]bool{}, map[Request]bool{}
	lines := bufio.NewScanner(file)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var e event
		require.NoError(t, json.Unmarshal(lines.Bytes(), &e))
		prefix := User(namespace, "")
		if !strings.HasPrefix(e.User.Username, prefix) {
			continue
		}
		o := e.ObjectRef
		r := Request{
			Service: service(e.User.Username), Verb: e.Verb, Group: o.APIGroup, Resource: o.Resource, Subresource: o.Subresource, Namespace: o.Namespace, Name: o.Name,
		}
		if o.Resource == "" {
			r.Path = strings.SplitN(e.RequestURI, "?", 2)[0]
		}
		if e.Decision["authorization.k8s.io/decision"] == "forbid" {
			refused[r] = true
		} else {
			allowed[r] = true
		}
	}
	require.NoError(t, lines.Err())
	return allowed, refused
}

// RefusedNothing fails the test for each request of a service that was refused.
func (a *Audit) RefusedNothing(t *testing.T, namespace string) {
	t.Helper()
	_, refused := a.Requests(t, namespace)
	for r := range refused {
		t.Errorf("the API server refused %s", r)
	}
}

// Matches reports whether a rule allows a request, wherever the rule holds.
func (r Request) Matches(rule *rbacv1.PolicyRule) bool {
	if !has(rule.Verbs, r.Verb) {
		return false
	}
	if r.Path != "" {
		for _, pattern := range rule.NonResourceURLs {
			if start, wild := strings.CutSuffix(pattern, "*"); pattern == r.Path || wild && strings.HasPrefix(r.Path, start) {
				return true
			}
		}
		return false
	}
	resource := r.Resource
	if r.Subresource != "" {
		resource += "/" + r.Subresource
	}
	return has(rule.APIGroups, r.Group) && (has(rule.Resources, resource) || r.Subresource != "" && has(rule.Resources, "*/"+r.Subresource)) &&
		(len(rule.ResourceNames) == 0 || has(rule.ResourceNames, r.Name))
}

func has(all []string, one string) bool {
	for _, s := range all {
		if s == one || s == "*" {
			return true
		}
	}
	return false
}

// String is the request as a sentence.
func (r Request) String() string {
	if r.Path != "" {
		return fmt.Sprintf("%s: %s %s", r.Service, r.Verb, r.Path)
	}
	return fmt.Sprintf("%s: %s %s.%s/%s %s/%s", r.Service, r.Verb, r.Resource, r.Group, r.Subresource, r.Namespace, r.Name)
}
