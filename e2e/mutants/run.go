package mutants

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
)

// testTimeout ends a test that a mistake blocks; that is a kill.
const testTimeout = "5m"

// Runner plants mutants, one after the other or several at once.
type Runner struct {
	Root     string // of the repository
	Parallel int
	Env      []string
	Out      io.Writer // one line for each mutant
}

// Run runs the test of every mutant without and with it, and returns what is wrong with the table
// or with the tests: nothing if every test passes without its mutant and fails with it.
func (r *Runner) Run(ctx context.Context, table []Mutant) error {
	sound, err := r.runBaseline(ctx, table)
	if err != nil {
		return err
	}
	var mu sync.Mutex
	var problems []error
	err = r.eachParallel(ctx, len(table), func(ctx context.Context, i int) error {
		m := table[i]
		began := time.Now()
		err := r.tryMutant(ctx, m, sound[m.Package])
		if ctx.Err() != nil {
			return ctx.Err()
		}
		mu.Lock()
		defer mu.Unlock()
		r.reportMutant(m, err, time.Since(began))
		if err != nil {
			problems = append(problems, fmt.Errorf("%s: %w", m.Name, err))
		}
		return nil
	})
	return errors.Join(append(problems, err)...)
}

// runBaseline runs the tests of all mutants without any, package by package.
func (r *Runner) runBaseline(ctx context.Context, table []Mutant) (map[string]*testResults, error) {
	tests := map[string][]string{}
	for _, m := range table {
		tests[m.Package] = append(tests[m.Package], m.Test)
	}
	packages := slices.Sorted(maps.Keys(tests))
	sound := make(map[string]*testResults, len(packages))
	var mu sync.Mutex
	return sound, r.eachParallel(ctx, len(packages), func(ctx context.Context, i int) error {
		results, err := r.runTests(ctx, packages[i], "", tests[packages[i]]...)
		mu.Lock()
		defer mu.Unlock()
		sound[packages[i]] = results
		return err
	})
}

func (r *Runner) eachParallel(ctx context.Context, n int, do func(context.Context, int) error) error {
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(max(1, r.Parallel))
	for i := range n {
		g.Go(func() error { return do(ctx, i) })
	}
	return g.Wait()
}

func (r *Runner) reportMutant(m Mutant, err error, took time.Duration) {
	verdict := "killed"
	if err != nil {
		verdict = "ALIVE "
	}
	_, _ = fmt.Fprintf(r.Out, "mutants: %s %5.1f s  %s (%s %s)\n", verdict, took.Seconds(), m.Name, m.Package, m.Test)
}

// tryMutant is nil if the mutant's test passes without it and fails with it.
func (r *Runner) tryMutant(ctx context.Context, m Mutant, sound *testResults) error {
	if err := sound.requirePassed(m.Test); err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "mutant")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	overlay, err := Plant(r.Root, dir, m.Edits()...)
	if err != nil {
		return err
	}
	results, err := r.runTests(ctx, m.Package, overlay, m.Test)
	if err != nil {
		return err
	}
	return results.requireKilled(m.Test)
}

// runTests runs tests of a package. That they fail is no error. Results of go's test cache count.
func (r *Runner) runTests(ctx context.Context, pkg, overlay string, tests ...string) (*testResults, error) {
	args := []string{"test", "-json", "-vet=off", "-timeout", testTimeout, "-run", testPattern(tests)}
	if overlay != "" {
		args = append(args, "-overlay", overlay)
	}
	cmd := exec.CommandContext(ctx, "go", append(args, pkg)...)
	cmd.Dir, cmd.Env = r.Root, r.Env
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) } // go ends the tests that it started
	cmd.WaitDelay = time.Minute
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && (!errors.As(err, &exit) || stdout.Len() == 0) {
		return nil, fmt.Errorf("go test %s: %w: %s", pkg, err, stderr.String())
	}
	return parseResults(stdout.Bytes())
}

// testPattern is the -run argument for top-level tests, or for one subtest.
func testPattern(tests []string) string {
	if len(tests) == 1 {
		return "^" + strings.ReplaceAll(regexp.QuoteMeta(tests[0]), "/", "$/^") + "$"
	}
	var top []string
	for _, test := range tests {
		name, _, _ := strings.Cut(test, "/")
		top = append(top, name)
	}
	slices.Sort(top)
	return "^(" + strings.Join(slices.Compact(top), "|") + ")$"
}
