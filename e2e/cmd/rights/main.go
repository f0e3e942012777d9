// Program rights compares what the helm chart grants the services with what they were allowed while
// the suites ran, as recorded in the directory that is its argument. It fails when no suite used
// something that is granted, unless that is among the exceptions.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/holdfast-io/holdfast/e2e/harness/chart"
)

// everything are the arguments of helm template with which the chart grants all that it can, without
// rules of an installation's own.
var everything = []string{"--set", "features={EnableCSI},auth=kubernetes,hooks.enabled=true"}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := runRights(ctx, os.Args[1:])
	stop()
	if err != nil {
		_, _ = fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func runRights(ctx context.Context, args []string) (err error) {
	if len(args) != 1 {
		return errors.New("usage: rights DIRECTORY")
	}
	requests, files, err := chart.Recorded(args[0])
	if err != nil {
		return err
	}
	home, err := os.MkdirTemp("", "helm-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(home)) }()
	objects, err := chart.Render(ctx, home, namespace, everything...)
	if err != nil {
		return err
	}
	grants, err := chart.Grants(objects)
	if err != nil {
		return err
	}
	if findings := chart.Unused(grants, requests, exceptions); len(findings) > 0 {
		return fmt.Errorf("rights: with what %d sites recorded in %s:\n%s", files, args[0], strings.Join(findings, "\n"))
	}
	fmt.Printf("rights: each of %d grants is used or explained (%d), by %d sites\n", len(grants), len(exceptions), files)
	return nil
}
