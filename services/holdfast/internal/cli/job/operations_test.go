package job_test

import (
	"bytes"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/job/operation"
	"github.com/holdfast-io/holdfast/services/holdfast/internal/cli/job"
)

func TestOperationsThatGoOnHaveProgressAndAge(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	begun := now.Add(-90 * time.Minute)
	b := &velerov1.Backup{}
	sum := operation.Summary{Total: 5, Completed: 1, Failed: 1, Running: []operation.Running{
		{Action: "x.io/a", ID: "op-1", Item: "pods n/p", Phase: operation.InProgress, Completed: 1, Total: 4, Units: "GiB", Description: "uploading", Created: &begun},
		{Action: "x.io/a", ID: "op-2", Item: "pods n/q", Phase: operation.New},
	}}
	require.NoError(t, sum.WriteSummary(b))
	var p job.Page
	p.Operations(b, now)
	var out bytes.Buffer
	_, err := p.WriteTo(&out)
	require.NoError(t, err)
	require.Regexp(t, `Running operations:\n  x.io/a pods n/p: +InProgress, \[#####\.{15}\] 25%, 1 of 4 GiB, uploading, started 1h ago\n    ID: +op-1\n`, out.String())
	require.Regexp(t, `x.io/a pods n/q: +New\n`, out.String())
	require.Regexp(t, `More: +1\n`, out.String())

	var none job.Page
	none.Operations(&velerov1.Backup{}, now)
	out.Reset()
	_, err = none.WriteTo(&out)
	require.NoError(t, err)
	require.Empty(t, out.String())
}
