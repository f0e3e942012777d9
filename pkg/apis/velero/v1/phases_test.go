package v1_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
)

func TestARestoreIsSettledHalfAMinuteAfterItsEnd(t *testing.T) {
	end := metav1.Now()
	s := velerov1.RestoreStatus{Phase: velerov1.RestorePhaseCompleted, CompletionTimestamp: &end}
	require.False(t, s.Settled(end.Add(30*time.Second-1)))
	require.True(t, s.Settled(end.Add(30*time.Second)))
	s.CompletionTimestamp = nil
	require.True(t, s.Settled(end.Time), "an end without a time")
	s.Phase = velerov1.RestorePhaseInProgress
	require.False(t, s.Settled(end.Time))
}
