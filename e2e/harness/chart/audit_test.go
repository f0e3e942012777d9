package chart_test

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/e2e/harness/chart"
	"github.com/holdfast-io/holdfast/e2e/harness/testbed"
)

// logged returns a log with one event of backup-runner for a Secret, received now.
func logged(t *testing.T, decision, code string) *chart.Audit {
	t.Helper()
	a := chart.NewAudit(t, "server")
	config := &testbed.Config{}
	a.Configure(config)
	require.Contains(t, config.APIServerArgs, "--audit-log-path="+a.Path())
	require.Equal(t, "audit.log", filepath.Base(a.Path()))
	event := `{"verb":"get","requestReceivedTimestamp":"` + time.Now().UTC().Format(time.RFC3339Nano) + `","user":{"username":"` + chart.User("server", "backup-runner") +
		`"},"objectRef":{"resource":"secrets","namespace":"server","name":"s"},"responseStatus":{"code":` + code + `,"message":"why"},"annotations":{"authorization.k8s.io/decision":"` + decision + `"}}`
	require.NoError(t, os.WriteFile(a.Path(), []byte(event+"\n"), 0o600))
	return a
}

var secret = chart.Request{Service: "backup-runner", Verb: "get", Resource: "secrets", Namespace: "server", Name: "s"}

func TestWhatIsAnsweredWith403IsRefused(t *testing.T) {
	for _, c := range []struct {
		decision, code string
		refused        bool
	}{{"allow", "200", false}, {"allow", "404", false}, {"forbid", "403", true}, {"allow", "403", true}} {
		allowed, refused := logged(t, c.decision, c.code).Requests(t)
		if c.refused {
			require.Empty(t, allowed)
			require.Equal(t, map[chart.Request]string{secret: "why"}, refused)
		} else {
			require.Equal(t, map[chart.Request]bool{secret: true}, allowed)
			require.Empty(t, refused)
		}
	}
}

func TestRefusalsOfAStartingServerDoNotCount(t *testing.T) {
	var a *chart.Audit
	outer := chart.NewAudit(t, "server")
	require.NoError(t, outer.Start(func() error {
		a = logged(t, "forbid", "403")
		return nil
	}))
	_, refused := a.Requests(t)
	require.Len(t, refused, 1, "another log was started")
	event, err := os.ReadFile(a.Path())
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(outer.Path(), event, 0o600))
	allowed, refused := outer.Requests(t)
	require.Empty(t, allowed)
	require.Empty(t, refused)
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
