package main

import (
	"bytes"
	"context"
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// figures are the sizes of hand-written Go: generated files are left out.
type figures struct {
	productLines, testLines, longFunctions int
	// unexported counts functions and methods of product and tests whose names are not exported, oneWord those of a single English word.
	unexported, oneWord, nameLength int
	packages                        map[string]bool
	upward                          []string
	groups                          []string // of pkg, from the ground up
}

const (
	module       = "github.com/holdfast-io/holdfast/"
	longFunction = 80 // lines
)

var (
	generated = regexp.MustCompile(`(\.pb|_grpc\.pb|/zz_generated[^/]*)\.go$|^proto/`)
	// testSupport are packages that only tests import.
	testSupport = regexp.MustCompile(`(^|/)(kubetest|storetest|plugintest|csitest|memstore|footprint|example|directoryplugin|clitest|backuptest|certtest|actiontest|jobtest|limittest|selfplugin|testing)/`)
	oneWord     = regexp.MustCompile(`^[a-z][a-z0-9]*$`)
	groupOrder  = regexp.MustCompile(`(?m)^order=\((.*)\)$`)
)

func listSources(ctx context.Context) ([]string, error) {
	out, err := exec.CommandContext(ctx, "git", "ls-files", "--cached", "--others", "--exclude-standard", "*.go").Output()
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(strings.Fields(string(out)), func(path string) bool {
		_, err := os.Stat(path)
		return err != nil || generated.MatchString(path)
	}), nil
}

// readGroups reads the order of the groups of pkg where the linter's own check has it.
func readGroups() ([]string, error) {
	text, err := os.ReadFile("e2e/tools/importrules.sh")
	if err != nil {
		return nil, err
	}
	order := groupOrder.FindSubmatch(text)
	if order == nil {
		return nil, errors.New("e2e/tools/importrules.sh has no line order=(...)")
	}
	return strings.Fields(string(order[1])), nil
}

func measureSources(paths, groups []string) (figures, error) {
	f := figures{packages: map[string]bool{}, groups: groups}
	for _, path := range paths {
		if err := f.measureFile(path); err != nil {
			return f, err
		}
	}
	return f, nil
}

func (f *figures) measureFile(path string) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	files := token.NewFileSet()
	tree, err := parser.ParseFile(files, path, text, parser.SkipObjectResolution)
	if err != nil {
		return err
	}
	lines := bytes.Count(text, []byte{'\n'})
	product := !strings.HasPrefix(path, "e2e/") && !strings.HasSuffix(path, "_test.go")
	if product {
		f.packages[filepath.Dir(path)] = true
		f.checkImports(path, tree)
	}
	if product && !testSupport.MatchString(path) {
		f.productLines += lines
	} else {
		f.testLines += lines
	}
	for _, declaration := range tree.Decls {
		if function, ok := declaration.(*ast.FuncDecl); ok {
			f.countFunction(files, function, product)
		}
	}
	return nil
}

func (f *figures) countFunction(files *token.FileSet, function *ast.FuncDecl, product bool) {
	name := function.Name.Name
	if product && files.Position(function.End()).Line-files.Position(function.Pos()).Line >= longFunction {
		f.longFunctions++
	}
	if function.Name.IsExported() || name == "main" || name == "init" {
		return
	}
	f.unexported++
	f.nameLength += len(name)
	if oneWord.MatchString(name) {
		f.oneWord++
	}
}

// checkImports notes imports of pkg that run up: to a later group, or to a service.
func (f *figures) checkImports(path string, tree *ast.File) {
	rank := f.groupRank(path)
	if !strings.HasPrefix(path, "pkg/") {
		return
	}
	for _, imported := range tree.Imports {
		name, err := strconv.Unquote(imported.Path.Value)
		if err != nil || !strings.HasPrefix(name, module) {
			continue
		}
		if name = strings.TrimPrefix(name, module); f.groupRank(name) > rank {
			f.upward = append(f.upward, path+" -> "+name)
		}
	}
}

// groupRank is the place of a path's group from the ground up: the ground of pkg and the contracts are 0, services are above all.
func (f *figures) groupRank(path string) int {
	parts := strings.Split(path, "/")
	if parts[0] == "services" {
		return len(f.groups) + 1
	}
	if parts[0] != "pkg" || len(parts) < 2 {
		return 0
	}
	return slices.Index(f.groups, parts[1]) + 1
}
