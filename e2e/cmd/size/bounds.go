package main

import (
	"errors"
	"fmt"
)

// errTooLarge reports a figure over its bound.
var errTooLarge = errors.New("a figure is over its bound: make the code smaller, or raise the bound in e2e/cmd/size/bounds.go with the reason")

// bound is the most that a figure may be. A bound is raised for a new capability only, with a line that says which; it follows a figure that falls.
type bound struct {
	name  string
	limit float64
	value func(figures) float64
}

var bounds = []bound{
	// 97,200 and what ordinary clusters ask of a restore: refusals that have an answer, mapped namespaces, claims, guards, waits;
	// 7,000 for what manifests are used for: items, trees, verification, differences, references of custom resources;
	// 6,800 for the search index, dry runs of backups and restores with their stored plans, and restores of single items;
	// 2,800 for repositories of volume data and the mover;
	// 5,800 for file-system backup: requests, volume-mover's controller, restores that wait for data, forgetting; and diff --cluster;
	// 4,500 for moved CSI snapshots, maintenance of repositories, files of volumes, and movers behind proxies;
	// 500 for restores of single files, parents that long uploads keep, and small files in windows of packs.
	{"product lines (pkg, services)", 129000, func(f figures) float64 { return float64(f.productLines) }},
	// 108,600, the runner of public reports, and the tests of what they ask for; 7,000 for the tests of the uses of manifests;
	// 4,700 for the tests of search, dry runs, published definitions and movers; 6,000 for file-system backup, its node and its suite;
	// 6,000 for moved snapshots and their suite, maintenance, files, 35 reports about volume data, and the bench of movers;
	// 3,000 for a CSI driver with mounts and block devices on a node, faults of volume data there, and Velero's data movers.
	{"test lines (_test.go, e2e, test support)", 140000, func(f figures) float64 { return float64(f.testLines) }},
	{"packages (pkg, services)", 174, func(f figures) float64 { return float64(len(f.packages)) }},
	{"functions over 80 lines", 0, func(f figures) float64 { return float64(f.longFunctions) }},
	{"one-word unexported functions, percent", 35, func(f figures) float64 { return percent(f.oneWord, f.unexported) }},
	{"imports from a group of pkg to one further up", 0, func(f figures) float64 { return float64(len(f.upward)) }},
}

func percent(part, whole int) float64 {
	if whole == 0 {
		return 0
	}
	return 100 * float64(part) / float64(whole)
}

// checkBounds prints each figure beside its bound.
func checkBounds(f figures) error {
	var err error
	for _, b := range bounds {
		value := b.value(f)
		mark := ""
		if value > b.limit {
			mark, err = "  over", errTooLarge
		}
		fmt.Printf("%-50s %8.0f  at most %8.0f%s\n", b.name, value, b.limit, mark)
	}
	for _, line := range f.upward {
		fmt.Println("imports up:", line)
	}
	fmt.Printf("%-50s %8.1f\n", "average length of unexported function names", float64(f.nameLength)/float64(max(f.unexported, 1)))
	return err
}
