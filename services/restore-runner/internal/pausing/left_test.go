package pausing

import (
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestTheReasonNamesAsManyAsFit(t *testing.T) {
	failed := errors.New("no")
	require.Equal(t, "no", (&Left{}).FailureReason(failed))
	require.Equal(t, "no", (&Left{Location: "default", Read: true}).FailureReason(failed))
	require.Equal(t, "no; objects that it created may still be paused", (&Left{Location: "default"}).FailureReason(failed))
	require.Equal(t, "no; still paused: a b/c", (&Left{Location: "default", Read: true, Names: []string{"a b/c"}}).FailureReason(failed))
	require.Equal(t, "no; still paused, perhaps among others: a b/c", (&Left{Location: "default", Names: []string{"a b/c"}}).FailureReason(failed))

	long := strings.Repeat("x", namesInReason/2)
	require.Equal(t, "still paused: "+long+" and 2 more", (&Left{Read: true, Names: []string{long, long, "y"}}).textWithin(namesInReason-1))
	require.Equal(t, "still paused: "+long+", "+long+" and 1 more", (&Left{Read: true, Names: []string{long, long, "y"}}).textWithin(2*namesInReason/2+2))
	longer := strings.Repeat("x", 300)
	require.Equal(t, "still paused: "+longer, (&Left{Read: true, Names: []string{longer}}).textWithin(namesInReason))
}
