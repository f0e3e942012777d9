package field

import (
	"bytes"
	"cmp"
	"encoding/json"
	"flag"
	"os"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// Cases wait for most of their time: more of them run at once than there are processors.
func TestMain(m *testing.M) {
	if err := flag.Set("test.parallel", "24"); err != nil {
		panic(err)
	}
	os.Exit(m.Run())
}

// TestField runs every case. Those that change what all share come first, one at a time. Those that delete definitions, which others have to wait for,
// are the last of the list: what is paused last goes on first.
func TestField(t *testing.T) {
	t.Parallel()
	cases, err := loadCases("cases")
	require.NoError(t, err)
	require.NotEmpty(t, cases)
	b := newBed(t)
	for _, c := range cases {
		if c.Exclusive && c.isDue() {
			t.Run(c.name, func(t *testing.T) { b.prepareCase(t, c).runCase() })
		}
	}
	slices.SortStableFunc(cases, func(a, b *reportCase) int { return cmp.Compare(a.rankByDefinitions(), b.rankByDefinitions()) })
	for _, c := range cases {
		if !c.Exclusive && c.isDue() {
			t.Run(c.name, func(t *testing.T) {
				r := b.prepareCase(t, c)
				t.Parallel()
				r.runCase()
			})
		}
	}
}

// isDue reports whether a case runs: a pending one does where PENDING is set, a long one where LONG_TESTS is.
func (c *reportCase) isDue() bool {
	return (c.Pending == "" || os.Getenv("PENDING") != "") && (!c.Long || os.Getenv("LONG_TESTS") != "")
}

// rankByDefinitions returns 1 for a case that deletes definitions.
func (c *reportCase) rankByDefinitions() int {
	if slices.ContainsFunc(c.Steps, func(raw json.RawMessage) bool {
		return bytes.HasPrefix(raw, []byte(`{"delete"`)) && bytes.Contains(raw, []byte("customresourcedefinitions"))
	}) {
		return 1
	}
	return 0
}
