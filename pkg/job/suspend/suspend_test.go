package suspend_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/job/suspend"
)

func TestTheMarkIsItsObjects(t *testing.T) {
	b := &velerov1.Backup{}
	b.UID = "one"
	_, marked := suspend.SuspensionOf(b)
	require.False(t, marked)
	at := time.Date(2026, 1, 2, 3, 4, 5, 678, time.UTC)
	require.NoError(t, suspend.SetSuspended(b, suspend.Suspension{Admission: at, Reason: strings.Repeat("x", 1<<20)}))
	require.Less(t, len(b.Annotations["holdfast.io/suspended"]), 2<<10)
	m, marked := suspend.SuspensionOf(b)
	require.True(t, marked)
	require.True(t, m.Admission.Equal(at))

	copied := b.DeepCopy()
	copied.UID = "two"
	_, marked = suspend.SuspensionOf(copied)
	require.False(t, marked, "a copy was never suspended")
	suspend.ClearSuspended(b)
	_, marked = suspend.SuspensionOf(b)
	require.False(t, marked)
	b.Annotations = map[string]string{"holdfast.io/suspended": "{"}
	_, marked = suspend.SuspensionOf(b)
	require.False(t, marked)
}
