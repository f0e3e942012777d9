package job

import (
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestTheReasonNamesAsManyAsFit(t *testing.T) {
	failed := &fatalError{errors.New("no")}
	require.Equal(t, "no", (&pausing{}).reason(failed))
	require.Equal(t, "no", (&pausing{location: "default", read: true}).reason(failed))
	require.Equal(t, "no; objects that it created may still be paused", (&pausing{location: "default"}).reason(failed))
	require.Equal(t, "no; still paused: a b/c", (&pausing{location: "default", read: true, names: []string{"a b/c"}}).reason(failed))
	require.Equal(t, "no; still paused, perhaps among others: a b/c", (&pausing{location: "default", names: []string{"a b/c"}}).reason(failed))

	long := strings.Repeat("x", namesInReason/2)
	require.Equal(t, "still paused: "+long+" and 2 more", (&pausing{read: true, names: []string{long, long, "y"}}).text(namesInReason-1))
	require.Equal(t, "still paused: "+long+", "+long+" and 1 more", (&pausing{read: true, names: []string{long, long, "y"}}).text(2*namesInReason/2+2))
	longer := strings.Repeat("x", 300)
	require.Equal(t, "still paused: "+longer, (&pausing{read: true, names: []string{longer}}).text(namesInReason))
}
