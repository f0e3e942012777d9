package operation_test

import (
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-io/holdfast/pkg/apis/holdfast"
	"github.com/holdfast-io/holdfast/pkg/job/operation"
)

func TestASummaryNamesTheFirstTenThatRun(t *testing.T) {
	var ids []string
	for i := range 14 {
		ids = append(ids, fmt.Sprint(i))
	}
	_, l := sealedLog(t, ids...)
	require.NoError(t, l.Append(t.Context(),
		operation.Event{Operation: 0, Time: now, End: &operation.End{}}, operation.Event{Operation: 2, Time: now, End: &operation.End{Error: "no"}}))
	l.States()[1].Phase, l.States()[1].Progress = operation.InProgress, operation.Progress{Completed: 3, Total: 9, Units: "Bytes", Started: &now}
	obj := &metav1.ObjectMeta{}
	require.NoError(t, l.Summary().WriteSummary(obj))
	require.True(t, strings.HasPrefix(obj.Annotations[holdfast.AnnotationOperations],
		`{"total":14,"completed":1,"failed":1,"running":[{"action":"a/b","id":"1","item":"pods n/1","phase":"InProgress","completed":3,"total":9,"units":"Bytes","created":"2026-01-02T03:04:05Z","started":"2026-01-02T03:04:05Z"},`+
			`{"action":"a/b","id":"3","item":"pods n/3","phase":"New","created":"2026-01-02T03:04:05Z"}`), obj.Annotations)
	s, ok, err := operation.ReadSummary(obj)
	require.NoError(t, err)
	require.True(t, ok)
	require.Equal(t, l.Summary(), s)
	require.Len(t, s.Running, 10)
	require.Equal(t, "11", s.Running[9].ID)
}

// Texts of actions have any length, and an object has at most 256 KiB of annotations in all.
func TestASummaryIsBounded(t *testing.T) {
	var ids []string
	for i := range 10 {
		ids = append(ids, fmt.Sprint(i, strings.Repeat("\x01", 1000)))
	}
	_, l := sealedLog(t, ids...)
	for i := range l.States() {
		l.States()[i].Description = strings.Repeat("ä", 5000)
	}
	obj := &metav1.ObjectMeta{}
	require.NoError(t, l.Summary().WriteSummary(obj))
	require.LessOrEqual(t, len(obj.Annotations[holdfast.AnnotationOperations]), 16<<10)
	s, _, err := operation.ReadSummary(obj)
	require.NoError(t, err)
	require.Equal(t, 10, s.Total)
	require.NotEmpty(t, s.Running)
	require.Less(t, len(s.Running), 10)
	require.True(t, utf8.ValidString(s.Running[0].Description))
}

func TestASummaryThatIsNone(t *testing.T) {
	_, ok, err := operation.ReadSummary(&metav1.ObjectMeta{})
	require.NoError(t, err)
	require.False(t, ok)
	for _, text := range []string{"", "[", strings.Repeat(" ", 16<<10) + "{}"} {
		_, ok, err := operation.ReadSummary(&metav1.ObjectMeta{Annotations: map[string]string{holdfast.AnnotationOperations: text}})
		require.Error(t, err)
		require.False(t, ok)
	}
}
