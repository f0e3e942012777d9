package chart_test

import (
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/e2e/harness/chart"
)

// writeEvent makes the log one event of backup-runner about a Secret, received now.
func writeEvent(t *testing.T, a *chart.Audit, decision, code string) {
	t.Helper()
	event := `{"verb":"get","requestReceivedTimestamp":"` + time.Now().UTC().Format(time.RFC3339Nano) + `","user":{"username":"` + chart.User("server", "backup-runner") +
		`"},"objectRef":{"resource":"secrets","namespace":"server","name":"s"},"responseStatus":{"code":` + code + `,"message":"why"},"annotations":{"authorization.k8s.io/decision":"` + decision + `"}}`
	require.NoError(t, os.WriteFile(a.Path(), []byte(event+"\n"), 0o600))
}

var secret = chart.Request{Service: "backup-runner", Verb: "get", Resource: "secrets", Namespace: "server", Name: "s"}

func TestWhatIsAnsweredWith403IsRefused(t *testing.T) {
	for _, c := range []struct {
		decision, code string
		refused        bool
	}{{"allow", "200", false}, {"allow", "404", false}, {"forbid", "403", true}, {"allow", "403", true}} {
		a := chart.NewAudit(t, "server")
		writeEvent(t, a, c.decision, c.code)
		allowed, refused := a.Requests(t)
		if c.refused {
			require.Empty(t, allowed)
			require.Equal(t, map[chart.Request]string{secret: "why"}, refused)
		} else {
			require.Equal(t, map[chart.Request]bool{secret: true}, allowed)
			require.Empty(t, refused)
		}
	}
}

func TestWritesAreCountedFromAMark(t *testing.T) {
	a := chart.NewAudit(t, "server")
	var text string
	add := func(verb, resource, query string) {
		text += fmt.Sprintf(`{"verb":%q,"requestURI":"/x?%s","user":{"username":%q},"objectRef":{"resource":%q,"namespace":"ns","name":"n"}}`+"\n", verb, query, chart.User("server", "backup-runner"), resource)
		require.NoError(t, os.WriteFile(a.Path(), []byte(text), 0o600))
	}
	add("create", "pods", "")
	mark := a.Mark(t)
	for _, verb := range []string{"get", "list", "watch"} {
		add(verb, "configmaps", "")
	}
	add("create", "configmaps", "fieldManager=x&dryRun=All")
	add("update", "leases", "")
	add("create", "events", "")
	add("create", "tokenreviews", "")
	require.Empty(t, a.Writes(t, mark))
	for range 2 {
		add("patch", "configmaps", "fieldManager=x")
	}
	add("delete", "secrets", "")
	require.Equal(t, []string{"backup-runner: patch configmaps./ ns/n", "backup-runner: delete secrets./ ns/n"}, a.Writes(t, mark))
	require.Len(t, a.Writes(t, 0), 3)
}

func TestRefusalsOfAStartingServerDoNotCount(t *testing.T) {
	a := chart.NewAudit(t, "server")
	require.NoError(t, a.Start(func() error {
		writeEvent(t, a, "forbid", "403")
		return nil
	}))
	allowed, refused := a.Requests(t)
	require.Empty(t, allowed)
	require.Empty(t, refused)

	writeEvent(t, a, "forbid", "403")
	_, refused = a.Requests(t)
	require.Len(t, refused, 1, "it is ready")
}

// A review of one service for another counts as a request of the other.
func TestReviewedCallsAreRequestsOfTheCaller(t *testing.T) {
	for _, allow := range []string{"true", "false"} {
		a := chart.NewAudit(t, "server")
		event := `{"verb":"create","user":{"username":"` + chart.User("server", "backup-runner") + `"},"objectRef":{"apiGroup":"authorization.k8s.io","resource":"subjectaccessreviews"},"responseStatus":{"code":201},` +
			`"requestObject":{"spec":{"user":"` + chart.User("server", "async-operation-monitor") + `","nonResourceAttributes":{"path":"/service/Method","verb":"post"}}},"responseObject":{"status":{"allowed":` + allow + `}}}`
		require.NoError(t, os.WriteFile(a.Path(), []byte(event+"\n"), 0o600))
		allowed, refused := a.Requests(t)
		call := chart.Request{Service: "async-operation-monitor", Verb: "post", Path: "/service/Method"}
		require.Equal(t, allow == "true", allowed[call])
		require.Equal(t, allow == "false", refused[call] != "")
	}
}
