package apply

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/pkg/json/jsonlimit/limittest"
)

// The paths of an object cost no more than its body, however deep it is nested.
func TestFieldsOfADeepObjectCostBoundedMemory(t *testing.T) {
	step := `{"` + strings.Repeat("k", 100) + `":`
	patch := []byte(strings.Repeat(step, 9000) + "1" + strings.Repeat("}", 9000))
	var paths []string
	require.Less(t, limittest.Allocated(func() { paths = changedFields(patch) }), uint64(64<<20))
	require.Len(t, paths, 1)
	require.Less(t, len(paths[0]), 2*maxPath)
	require.Equal(t, []string{"metadata.labels.a", "spec.a.b", "spec.c"}, changedFields([]byte(`{"metadata":{"labels":{"a":"1"},"resourceVersion":"2"},"spec":{"c":[1],"a":{"b":null}}}`)))
}
