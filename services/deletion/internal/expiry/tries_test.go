package expiry

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
)

func TestPausesDoubleUpToAnHour(t *testing.T) {
	var all []time.Duration
	var n Tries
	for range 12 {
		n = n.Fail(start)
		all = append(all, n.After.Sub(start))
	}
	require.Equal(t, []time.Duration{15 * time.Second, 30 * time.Second, time.Minute, 2 * time.Minute, 4 * time.Minute, 8 * time.Minute, 16 * time.Minute, 32 * time.Minute}, all[:8])
	require.Equal(t, []time.Duration{time.Hour, time.Hour, time.Hour, time.Hour}, all[8:])
	require.Equal(t, 12, n.Failed)
}

func TestTheAnnotationIsReadAsItWasWritten(t *testing.T) {
	d := &velerov1.DeleteBackupRequest{}
	require.Zero(t, ReadTries(d))
	d.Annotations = map[string]string{"other": "x"}
	want := Tries{}.Fail(start).Wait(start.Add(time.Second))
	require.NoError(t, want.Set(d))
	require.Equal(t, want, ReadTries(d))
	require.Equal(t, "x", d.Annotations["other"])
	for _, bad := range []string{"", "{", `"x"`, `{"failed":-1}`, `{"failed":"1"}`} {
		d.Annotations[Annotation] = bad
		require.Zero(t, ReadTries(d), bad)
	}
}
