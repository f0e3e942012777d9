package finalize

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/pkg/archive/manifest"
	"github.com/holdfast-io/holdfast/services/backup-runner/internal/checkpoint"
)

// A range that begins with its namespace has it: without From the manifest would give all objects
// of the kind before it that revision too.
func TestTheCutOfANamespaceBeginsWithIt(t *testing.T) {
	cuts := appendCuts(nil, []checkpoint.Range{
		{Kind: "v1/Pod", Namespace: "b", Revision: "7", Last: "b/z"},
		{Kind: "v1/Pod", Namespace: "b", Revision: "8", After: "b/z", Last: "b/zz"},
		{Kind: "v1/Node", Revision: "7", Last: "n9"},
	}, "5")
	require.Equal(t, []manifest.Cut{
		{Kind: "v1/Pod", Revision: "7", From: "b/", To: "b/z"},
		{Kind: "v1/Pod", Revision: "8", From: "b/z", To: "b/zz"},
		{Kind: "v1/Node", Revision: "7", To: "n9"},
	}, cuts)
}

// Ranges of the backup's own revision and those without an object are not in the manifest.
func TestOnlyRangesOfOtherRevisionsAreCuts(t *testing.T) {
	cuts := appendCuts(nil, []checkpoint.Range{
		{Kind: "v1/Pod", Revision: "5", Last: "a/p"},
		{Kind: "v1/Pod", Revision: "7", After: "a/p", Last: "a/p"},
		{Kind: "v1/Pod", Revision: "7", After: "a/p", Last: "b/p"},
		{Kind: "v1/Pod", Revision: "7", After: "b/p", Last: "c/p"},
	}, "5")
	require.Equal(t, []manifest.Cut{{Kind: "v1/Pod", Revision: "7", From: "a/p", To: "c/p"}}, cuts)
}
