package holdfast

import (
	"os"
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"
)

// A copy of an object has what services wrote onto it.
func TestEveryAnnotationIsKnown(t *testing.T) {
	source, err := os.ReadFile("doc.go")
	require.NoError(t, err)
	all := map[string]string{"holdfast.io/dryrun": "true", "example.org/x": ""}
	for _, m := range regexp.MustCompile(`Annotation\w+ += "(holdfast.io/[a-z-]+)"`).FindAllStringSubmatch(string(source), -1) {
		all[m[1]] = ""
	}
	require.Greater(t, len(all), 30)
	require.Equal(t, []string{"holdfast.io/dryrun"}, UnknownAnnotations(all))
}
