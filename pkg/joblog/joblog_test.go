package joblog_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/pkg/joblog"
)

var failure = joblog.Entry{
	Time: time.Date(2026, 3, 4, 5, 6, 7, 890, time.FixedZone("x", 3600)), Level: joblog.Error, Message: "Error backing up item", Err: `no "kind" given`,
	Scoped: true, Namespace: "shop", Resource: "deployments.apps", Name: "web", Source: "holdfast/backup-runner",
}

func TestText(t *testing.T) {
	t.Parallel()
	require.Equal(t, `time="2026-03-04T04:06:07Z" level=error msg="Error backing up item" backup=velero/nightly error="no \"kind\" given" `+
		`logSource=holdfast/backup-runner name=web namespace=shop resource=deployments.apps`+"\n", string(joblog.AppendText(nil, &failure, "backup", "velero/nightly")))
	plain := joblog.Entry{Level: joblog.Info, Message: "line\ntwo", Scoped: true}
	require.Equal(t, `time="0001-01-01T00:00:00Z" level=info msg="line\ntwo" namespace= restore=velero/r`+"\n", string(joblog.AppendText(nil, &plain, "restore", "velero/r")))
}

func TestResultMessage(t *testing.T) {
	t.Parallel()
	require.Equal(t, ` resource: /deployments.apps name: /web message: /Error backing up item error: /no "kind" given`, joblog.ResultMessage(&failure))
}
