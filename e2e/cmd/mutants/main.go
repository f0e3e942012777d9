// Program mutants plants every mistake of package mutants, or those whose names match its argument,
// and fails unless each makes its test fail.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"regexp"
	"syscall"
	"time"

	"github.com/holdfast-io/holdfast/e2e/harness/testbed"
	"github.com/holdfast-io/holdfast/e2e/mutants"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	parallel := flag.Int("parallel", 2, "how many mutants are planted at once")
	flag.Parse()
	err := runMutants(ctx, *parallel, flag.Arg(0))
	stop()
	if err != nil {
		_, _ = fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func runMutants(ctx context.Context, parallel int, names string) error {
	match, err := regexp.Compile(names)
	if err != nil {
		return err
	}
	root, err := testbed.RepositoryRoot()
	if err != nil {
		return err
	}
	var table []mutants.Mutant
	for _, m := range mutants.Table() {
		if match.MatchString(m.Name) {
			table = append(table, m)
		}
	}
	if len(table) == 0 {
		return errors.New("mutants: none of that name")
	}
	began := time.Now()
	r := mutants.Runner{Root: root, Parallel: parallel, Env: mutants.Environment(), Out: os.Stdout}
	if err := r.Run(ctx, table); err != nil {
		return err
	}
	fmt.Printf("mutants: %d killed in %.0f s\n", len(table), time.Since(began).Seconds())
	return nil
}
