package job

import (
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestTheReasonNamesAsManyAsFit(t *testing.T) {
	failed := &fatalError{errors.New("no")}
	require.Equal(t, "no", (&pausedObjects{}).failureReason(failed))
	require.Equal(t, "no", (&pausedObjects{location: "default", read: true}).failureReason(failed))
	require.Equal(t, "no; objects that it created may still be paused", (&pausedObjects{location: "default"}).failureReason(failed))
	require.Equal(t, "no; still paused: a b/c", (&pausedObjects{location: "default", read: true, names: []string{"a b/c"}}).failureReason(failed))
	require.Equal(t, "no; still paused, perhaps among others: a b/c", (&pausedObjects{location: "default", names: []string{"a b/c"}}).failureReason(failed))

	long := strings.Repeat("x", namesInReason/2)
	require.Equal(t, "still paused: "+long+" and 2 more", (&pausedObjects{read: true, names: []string{long, long, "y"}}).textWithin(namesInReason-1))
	require.Equal(t, "still paused: "+long+", "+long+" and 1 more", (&pausedObjects{read: true, names: []string{long, long, "y"}}).textWithin(2*namesInReason/2+2))
	longer := strings.Repeat("x", 300)
	require.Equal(t, "still paused: "+longer, (&pausedObjects{read: true, names: []string{longer}}).textWithin(namesInReason))
}
