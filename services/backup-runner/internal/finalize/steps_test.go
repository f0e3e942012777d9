package finalize_test

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/job/step"
	"github.com/holdfast-io/holdfast/pkg/objectstore"
	"github.com/holdfast-io/holdfast/pkg/objectstore/memstore"
	"github.com/holdfast-io/holdfast/services/backup-runner/internal/finalize"
)

// What each step needs is there when its turn comes, whatever happened before.
func TestEveryStepFindsWhatItNeeds(t *testing.T) {
	for name, steps := range map[string][]finalize.Step{
		"backup": finalize.Backup(), "failure": finalize.Failure(), "foreign": finalize.Foreign(), "end": finalize.End(),
	} {
		t.Run(name, func(t *testing.T) {
			has := map[step.Value]bool{finalize.Final: name == "end"}
			marked := false
			for _, s := range steps {
				require.NotEmpty(t, s.Name)
				require.NotEmpty(t, s.Successor, s.Name)
				require.NotNil(t, s.Run, s.Name)
				for _, need := range s.Needs {
					require.True(t, has[need], "%s needs %s", s.Name, need)
				}
				for _, value := range s.Gives {
					has[value] = true
				}
				marked = marked || has[finalize.Mark]
				require.False(t, marked && s.Cancellable, "%s: a request comes too late", s.Name)
			}
			require.True(t, has[finalize.Final] || has[finalize.Phase], "the list decides the end")
		})
	}
}

// Steps that run side by side end one another, and nothing of the one that was ended is left.
func TestAStepThatFailsEndsTheOneBesideIt(t *testing.T) {
	for name, broken := range map[string]func(op memstore.Op, key string) bool{
		"the tarball cannot be composed": func(op memstore.Op, _ string) bool { return op == memstore.OpCompose },
		"a sidecar cannot be read": func(op memstore.Op, key string) bool {
			return op == memstore.OpRead && strings.HasSuffix(key, ".sidecar")
		},
	} {
		t.Run(name, func(t *testing.T) {
			store := memstore.New()
			s := newCollectibleState(t, store)
			store.Inject(func(op memstore.Op, key string) error {
				if broken(op, key) {
					return objectstore.ErrAccess
				}
				return nil
			})
			require.ErrorIs(t, s.Run(t.Context(), finalize.Backup()), objectstore.ErrAccess)
			left, err := os.ReadDir(s.Dir)
			require.NoError(t, err)
			for _, file := range left {
				require.NotContains(t, file.Name(), "merge-", "of the merge nothing is left")
			}
			store.Inject(nil)
			successor := newCollectibleState(t, store)
			require.NoError(t, successor.Run(t.Context(), finalize.Backup()), "another holder comes to the end")
			require.Equal(t, velerov1.BackupPhaseCompleted, successor.Final.Status.Phase)
		})
	}
}

// A panic of a step that runs beside another one is one of the job's goroutine, which survives it.
func TestAPanicBesideAnotherStepIsTheCallers(t *testing.T) {
	store := memstore.New()
	s := newCollectibleState(t, store)
	store.Inject(func(op memstore.Op, _ string) error {
		if op == memstore.OpCompose {
			panic("no compose")
		}
		return nil
	})
	require.Panics(t, func() { _ = s.Run(t.Context(), finalize.Backup()) })
}
