package mutants

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
)

// What a run with a planted mistake can be besides a kill.
var (
	// ErrSurvived reports that the test passes with the mistake.
	ErrSurvived = errors.New("the mutant survives")
	// ErrNoCompile reports that the mistake does not compile, so that nothing is known of the test.
	ErrNoCompile = errors.New("the mutant does not compile")
	// ErrNotRun reports that the named test did not run, or did not end by itself.
	ErrNotRun = errors.New("the test did not run")
	// ErrFails reports that the test fails without a mistake.
	ErrFails = errors.New("the test fails without the mutant")
)

// testResults are the tests of a run of `go test -json`.
type testResults struct {
	ended  map[string]string // test → "pass", "fail" or "skip"
	broken bool              // a package did not compile
	output strings.Builder
}

func parseResults(stdout []byte) (*testResults, error) {
	r := &testResults{ended: map[string]string{}}
	for line := range bytes.Lines(stdout) {
		var event struct{ Action, Test, Output, FailedBuild string }
		if err := json.Unmarshal(line, &event); err != nil {
			return nil, fmt.Errorf("output of go test -json: %w: %s", err, line)
		}
		r.output.WriteString(event.Output)
		r.broken = r.broken || event.FailedBuild != "" || event.Action == "build-fail"
		if event.Test != "" && (event.Action == "pass" || event.Action == "fail" || event.Action == "skip") {
			r.ended[event.Test] = event.Action
		}
	}
	return r, nil
}

// requirePassed is nil if a test ran and passed.
func (r *testResults) requirePassed(test string) error {
	switch {
	case r.broken:
		return fmt.Errorf("%w: the package does not compile: %s", ErrFails, r.outputTail())
	case r.ended[test] == "fail":
		return fmt.Errorf("%w: %s", ErrFails, r.outputTail())
	case r.ended[test] != "pass":
		return fmt.Errorf("%w: %s", ErrNotRun, r.outputTail())
	}
	return nil
}

// requireKilled is nil if a test ran and failed.
func (r *testResults) requireKilled(test string) error {
	switch {
	case r.broken:
		return fmt.Errorf("%w: %s", ErrNoCompile, r.outputTail())
	case r.ended[test] == "pass":
		return ErrSurvived
	case r.ended[test] != "fail":
		return fmt.Errorf("%w: %s", ErrNotRun, r.outputTail())
	}
	return nil
}

func (r *testResults) outputTail() string {
	text := strings.TrimSpace(r.output.String())
	return text[max(0, len(text)-1500):]
}
