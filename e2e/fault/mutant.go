package fault

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/holdfast-io/holdfast/e2e/harness/testbed"
	"github.com/holdfast-io/holdfast/e2e/mutants"
)

// Mutant is a mistake of mutants.Processes, with the case that has to notice.
type Mutant struct {
	Name  string
	Case  Case
	Pause bool // the process is paused instead of killed
}

// Mutants are all there are.
var Mutants = []Mutant{
	{Name: "nofence", Case: Case{Point: "backup-runner/file-published", Scenario: "backup"}, Pause: true},
	{Name: "earlycheckpoint", Case: Case{Point: "backup-runner/part-sealed", Scenario: "backup", Always: true}},
	{Name: "earlyack", Case: Case{Point: "restore-runner/before-create", Nth: 20, Scenario: "restore"}},
	{Name: "pauseunrecorded", Case: Case{Point: "restore-runner/before-mark-back", Scenario: "paused"}},
	{Name: "snapshotagain", Case: Case{Point: "backup-runner/snapshot-taken", Scenario: "snapshots", Changes: unclearSnapshot}},
	{Name: "callagain", Case: Case{Point: "restore-runner/call-answered", Scenario: "restore-calls", Changes: unclearRestoreCall}},
}

// Build builds the service that is hit with the mutant's mistake, beside copies of the others, into
// dir. Files of its own go into scratch.
func (m Mutant) Build(ctx context.Context, dir, scratch string) error {
	root, err := testbed.RepositoryRoot()
	if err != nil {
		return err
	}
	edits, known := mutants.Processes[m.Name]
	if !known {
		return fmt.Errorf("no mistake is called %q", m.Name)
	}
	overlay, err := mutants.Plant(root, scratch, edits...)
	if err != nil {
		return err
	}
	if err := os.CopyFS(dir, os.DirFS(filepath.Join(root, "bin", "fault"))); err != nil {
		return err
	}
	target := filepath.Join(dir, m.Case.Service())
	if err := os.Remove(target); err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, "go", "build", "-tags", "failpoint", "-overlay", overlay, "-o", target, "./services/"+m.Case.Service())
	cmd.Dir, cmd.Env = root, mutants.Environment()
	if output, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("build %s: %w: %s", m.Name, err, strings.TrimSpace(string(output)))
	}
	return nil
}

// Try runs the mutant's case, on a bed of the mutant's binaries or of good ones.
func (m Mutant) Try(ctx context.Context, b *Bed) error {
	if m.Pause {
		return b.Pause(ctx, m.Case)
	}
	return b.Kill(ctx, m.Case)
}

// Caught reports whether an error is the verdict that a job went wrong, rather than that the test
// could not be carried out.
func Caught(err error) bool {
	return errors.Is(err, ErrDiffers)
}
