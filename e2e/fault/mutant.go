package fault

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/holdfast-io/holdfast/e2e/testbed"
)

// Mutant is a mistake that product code makes behind a build tag, with the case that has to notice.
type Mutant struct {
	Tag   string
	Case  Case
	Pause bool // the process is paused instead of killed
}

// Mutants are all there are.
var Mutants = []Mutant{
	// The woken process goes on to the end of a job that is not its own any more.
	{Tag: "mutant_nofence", Case: Case{Point: "backup-runner/file-published", Scenario: "backup"}, Pause: true},
	// The taker trusts the record of a part that is not there.
	{Tag: "mutant_earlycheckpoint", Case: Case{Point: "backup-runner/part-sealed", Scenario: "backup"}},
	// The taker trusts the outcome of an object that is not there.
	{Tag: "mutant_earlyack", Case: Case{Point: "restore-runner/before-create", Nth: 20, Scenario: "restore"}},
}

// Build builds the service that is hit with the mutant's mistake, beside copies of the others, into dir.
func (m Mutant) Build(ctx context.Context, dir string) error {
	root, err := testbed.RepositoryRoot()
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
	cmd := exec.CommandContext(ctx, "go", "build", "-tags", "failpoint,"+m.Tag, "-o", target, "./services/"+m.Case.Service())
	// As in `make build-fault`, so that only the mutant is compiled.
	cmd.Dir, cmd.Env = root, append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=-trimpath -gcflags=all=-dwarf=false")
	if output, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("build %s: %w: %s", m.Tag, err, strings.TrimSpace(string(output)))
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

// Caught tells whether an error is the verdict that a job went wrong, rather than that the test could not be carried out.
func Caught(err error) bool {
	return errors.Is(err, ErrDiffers)
}
