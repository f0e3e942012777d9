package outcome_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/services/volume-mover/internal/outcome"
)

func TestAResultIsCutToItsLimit(t *testing.T) {
	r := outcome.Result{Phase: outcome.PartiallyFailed, SnapshotID: "s", Message: strings.Repeat("ü", 5000), Unlisted: 1}
	for range 1000 {
		r.Entries = append(r.Entries, outcome.Entry{Path: strings.Repeat("p", 50), Rule: outcome.Socket})
	}
	r.Entries = append(r.Entries, outcome.Entry{Path: "lost", Rule: outcome.Unreadable})
	data, err := r.EncodeWithin(30_000)
	require.NoError(t, err)
	require.LessOrEqual(t, len(data), 30_000)
	var cut outcome.Result
	require.NoError(t, json.Unmarshal(data, &cut))
	require.Equal(t, r.Message, cut.Message, "entries go first")
	require.Equal(t, "lost", cut.Entries[0].Path, "and of them those that lack nothing")
	require.Equal(t, 1002, int(cut.Unlisted)+len(cut.Entries))

	data, err = r.EncodeWithin(4096)
	require.NoError(t, err)
	require.LessOrEqual(t, len(data), 4096)
	cut = outcome.Result{}
	require.NoError(t, json.Unmarshal(data, &cut))
	require.Empty(t, cut.Entries)
	require.True(t, strings.HasPrefix(r.Message, cut.Message) && cut.Message != "")
	require.Equal(t, "s", cut.SnapshotID)

	whole, err := outcome.Result{Phase: outcome.Completed, Entries: r.Entries[1000:]}.EncodeWithin(4096)
	require.NoError(t, err)
	require.Contains(t, string(whole), "lost")
	_, err = r.EncodeWithin(10)
	require.ErrorContains(t, err, "does not fit")
}

func TestWhichRulesLackContent(t *testing.T) {
	for rule, want := range map[outcome.Rule]bool{outcome.Damaged: true, outcome.Type: true, outcome.Metadata: false, outcome.Socket: false} {
		r := outcome.Result{Rules: map[outcome.Rule]int64{rule: 1}}
		require.Equal(t, want, r.LacksContent(), rule)
	}
}
