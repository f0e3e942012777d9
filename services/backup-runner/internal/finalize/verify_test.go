package finalize_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/pkg/layout"
	"github.com/holdfast-io/holdfast/pkg/objectstore"
	"github.com/holdfast-io/holdfast/pkg/objectstore/memstore"
	"github.com/holdfast-io/holdfast/services/backup-runner/internal/finalize"
)

// A tarball that differs from the manifest is noticed before the commit, and the backup fails.
func TestATarballThatDiffersFromTheManifestIsNotCommitted(t *testing.T) {
	for name, spoil := range map[string]func(data []byte) []byte{
		"a part is missing":       func(data []byte) []byte { return data[:len(data)/2] },
		"something is in between": func(data []byte) []byte { return append([]byte("some"), data[:len(data)-4]...) },
		"a byte is another": func(data []byte) []byte {
			data[len(data)/4] ^= 1
			return data
		},
	} {
		t.Run(name, func(t *testing.T) {
			store := memstore.New()
			s := newCollectibleState(t, store)
			store.Inject(func(op memstore.Op, key string) error {
				if op == memstore.OpCreate && key == layout.BackupManifest("b") {
					data, ok := store.Bytes(layout.BackupTarball("b"))
					require.True(t, ok)
					store.Set(layout.BackupTarball("b"), spoil(data))
				}
				return nil
			})
			s.Cause = s.Run(t.Context(), finalize.Backup())
			require.ErrorContains(t, s.Cause, "verify the tarball: ")
			_, committed := store.Bytes(layout.BackupMetadata("b"))
			require.False(t, committed)
			require.NoError(t, s.Run(t.Context(), finalize.Failure()))
			require.Equal(t, s.Cause.Error(), s.Final.Status.FailureReason)

			successor := newCollectibleState(t, store)
			successor.Epoch++
			require.EqualError(t, successor.Run(t.Context(), finalize.Backup()), s.Cause.Error(), "the failure is recorded")
		})
	}
}

// A bucket that does not answer does not fail the tarball.
func TestATarballThatCannotBeReadIsAnErrorOfTheBucket(t *testing.T) {
	store := memstore.New()
	s := newCollectibleState(t, store)
	store.Inject(func(op memstore.Op, key string) error {
		if op == memstore.OpStat && key == layout.BackupTarball("b") {
			return objectstore.ErrAccess
		}
		return nil
	})
	require.ErrorIs(t, s.Run(t.Context(), finalize.Backup()), objectstore.ErrAccess)
}

// Nothing to read back is nothing to find fault with.
func TestAnEmptyTarballIsVerified(t *testing.T) {
	store := memstore.New()
	s := newCollectibleState(t, store)
	s.Collect = nothingCollected(t, store)
	require.NoError(t, s.Run(t.Context(), finalize.Backup()))
	require.Zero(t, s.Contents.Items)
}

// docs/adding-a-step.md shows this step: its quotations equal the code.
func TestTheGuideQuotesTheCode(t *testing.T) {
	root := filepath.Join("..", "..", "..", "..")
	var code strings.Builder
	for _, file := range []string{"verify.go", "verify_test.go", "steps.go", filepath.Join(root, "e2e", "fault", "matrix.go")} {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		code.Write(text)
	}
	guide, err := os.ReadFile(filepath.Join(root, "docs", "adding-a-step.md"))
	require.NoError(t, err)
	quotes := regexp.MustCompile("(?s)```go\n(.*?)```").FindAllStringSubmatch(string(guide), -1)
	require.Len(t, quotes, 5)
	for _, quote := range quotes {
		require.Contains(t, code.String(), quote[1])
	}
}
