// Package mutants holds mistakes that product code could make, each with the test that notices it,
// and runs those tests with the mistakes planted. A mistake is a change of text in a source file;
// it is planted by a build overlay, so that no file of the repository changes and nothing in
// product code exists for it.
package mutants

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// ErrText reports an old text that does not occur exactly once in its file, or an edit that changes
// nothing.
var ErrText = errors.New("the old text must occur once and change")

// Edit replaces a text that occurs exactly once in a source file.
type Edit struct {
	File     string // relative to the root of the repository
	Old, New string
}

// Mutant is a mistake and the test that fails because of it.
type Mutant struct {
	Name string // what is wrong; unique in the table
	Edit
	// Also are further edits, where one is not the whole mistake.
	Also []Edit
	// Package is the directory of the test, as go takes it: "./pkg/job/claim".
	Package string
	// Test is the name of the test, or of a subtest as go test prints it.
	Test string
}

// Edits are all edits of the mutant.
func (m Mutant) Edits() []Edit { return append([]Edit{m.Edit}, m.Also...) }

// Plant writes the edited files of the repository at root, and a build overlay of them, into dir,
// and returns the overlay's path for go's flag -overlay. It fails unless each old text occurs
// exactly once in its file.
func Plant(root, dir string, edits ...Edit) (overlay string, err error) {
	replace := map[string]string{}
	for _, e := range edits {
		path := filepath.Join(root, e.File)
		from := path
		if planted, again := replace[path]; again {
			from = planted
		}
		text, err := os.ReadFile(from)
		if err != nil {
			return "", err
		}
		changed, err := e.applyEdit(string(text))
		if err != nil {
			return "", err
		}
		replace[path] = filepath.Join(dir, fmt.Sprintf("%d-%s", len(replace), filepath.Base(e.File)))
		if from != path {
			replace[path] = from
		}
		if err := os.WriteFile(replace[path], []byte(changed), 0o600); err != nil {
			return "", err
		}
	}
	text, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return "", err
	}
	overlay = filepath.Join(dir, "overlay.json")
	return overlay, os.WriteFile(overlay, text, 0o600)
}

func (e Edit) applyEdit(text string) (string, error) {
	switch n := strings.Count(text, e.Old); {
	case e.Old == "" || e.Old == e.New:
		return "", fmt.Errorf("%w: %s: the edit changes nothing", ErrText, e.File)
	case n != 1:
		return "", fmt.Errorf("%w: %s: it occurs %d times: %q", ErrText, e.File, n, e.Old)
	}
	return strings.Replace(text, e.Old, e.New, 1), nil
}

// Environment is that of `make build` and of tests without the race detector, so that a build of a
// mutant compiles what the mistake changes and no more.
func Environment() []string {
	return append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=-trimpath -gcflags=all=-dwarf=false", "GOGC=400")
}
