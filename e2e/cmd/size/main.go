// Command size prints how large the repository is, and fails when a figure is over its bound.
//
//	go run ./e2e/cmd/size
package main

import (
	"context"
	"fmt"
	"os"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "size:", err)
		os.Exit(1)
	}
}

func run() error {
	paths, err := listSources(context.Background())
	if err != nil {
		return err
	}
	groups, err := readGroups()
	if err != nil {
		return err
	}
	total, err := measureSources(paths, groups)
	if err != nil {
		return err
	}
	return checkBounds(total)
}
