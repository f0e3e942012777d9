package mutants

import (
	"bytes"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/e2e/harness/testbed"
)

// A file that was renamed, a text that changed and a test that is gone are noticed without running
// the table.
func TestTheTableIsTrue(t *testing.T) {
	root, err := testbed.RepositoryRoot()
	require.NoError(t, err)
	names := map[string]bool{}
	for _, m := range Table() {
		require.False(t, names[m.Name], "%q is there twice", m.Name)
		names[m.Name] = true
		requireParses(t, root, m.Name, m.Edits())
		test, _, _ := strings.Cut(m.Test, "/")
		require.True(t, declaresTest(t, filepath.Join(root, m.Package), test), "%s: %s has no %s", m.Name, m.Package, test)
	}
	for name, edits := range Processes {
		requireParses(t, root, name, edits)
	}
}

// requireParses plants edits and looks whether files of Go come out.
func requireParses(t *testing.T, root, name string, edits []Edit) {
	t.Helper()
	dir := t.TempDir()
	_, err := Plant(root, dir, edits...)
	require.NoError(t, err, name)
	files, err := filepath.Glob(filepath.Join(dir, "*.go"))
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, file := range files {
		_, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
		require.NoError(t, err, name)
	}
}

func declaresTest(t *testing.T, dir, test string) bool {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*_test.go"))
	require.NoError(t, err)
	pattern := regexp.MustCompile(`(?m)^func ` + regexp.QuoteMeta(test) + `\(`)
	for _, file := range files {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		if pattern.Match(text) {
			return true
		}
	}
	return false
}

// newModule is a repository with one package, whose tests notice some mistakes.
func newModule(t *testing.T) string {
	t.Helper()
	root := t.TempDir()
	for name, text := range map[string]string{
		"go.mod":     "module example.com/m\n\ngo 1.26\n",
		"sum/sum.go": "// Package sum adds.\npackage sum\n\nfunc Sum(a, b int) int { return a + b }\n\nfunc Double(a int) int { return a + a }\n\nfunc Big(a int) bool { return a > 10 }\n",
		"sum/sum_test.go": "package sum\n\nimport (\n\t\"os\"\n\t\"testing\"\n)\n\n" +
			"func TestSum(t *testing.T) {\n\tt.Run(\"of two\", func(t *testing.T) {\n\t\tif Sum(1, 2) != 3 {\n\t\t\tt.Fatal()\n\t\t}\n\t})\n\tif Sum(1, 1) < 0 {\n\t\tos.Exit(3)\n\t}\n}\n\n" +
			"func TestDouble(t *testing.T) {\n\tif Double(2) != 4 {\n\t\tpanic(\"wrong\")\n\t}\n}\n\nfunc TestWrong(t *testing.T) { t.Fatal() }\n\nfunc TestNothing(t *testing.T) {}\n",
	} {
		require.NoError(t, os.MkdirAll(filepath.Dir(filepath.Join(root, name)), 0o755))
		require.NoError(t, os.WriteFile(filepath.Join(root, name), []byte(text), 0o600))
	}
	return root
}

func TestOnlyANamedTestThatFailsBecauseOfItKillsAMutant(t *testing.T) {
	minus := Edit{"sum/sum.go", "a + b", "a - b"}
	cases := []struct {
		m    Mutant
		want error
	}{
		{Mutant{Name: "killed", Edit: minus, Test: "TestSum"}, nil},
		{Mutant{Name: "killed by a subtest", Edit: minus, Test: "TestSum/of_two"}, nil},
		{Mutant{Name: "killed by a panic", Edit: Edit{"sum/sum.go", "a + a", "a"}, Test: "TestDouble"}, nil},
		{Mutant{Name: "two edits", Edit: Edit{"sum/sum.go", "a + a", "a + 0"}, Also: []Edit{{"sum/sum.go", "a + 0", "0"}}, Test: "TestDouble"}, nil},
		{Mutant{Name: "a survivor", Edit: Edit{"sum/sum.go", "> 10", "> 11"}, Test: "TestSum"}, ErrSurvived},
		{Mutant{Name: "another test would notice", Edit: minus, Test: "TestNothing"}, ErrSurvived},
		{Mutant{Name: "it does not compile", Edit: Edit{"sum/sum.go", "a + b", "a + c"}, Test: "TestSum"}, ErrNoCompile},
		{Mutant{Name: "the test fails without it", Edit: minus, Test: "TestWrong"}, ErrFails},
		{Mutant{Name: "no such test", Edit: minus, Test: "TestGone"}, ErrNotRun},
		{Mutant{Name: "no such subtest", Edit: minus, Test: "TestSum/of_three"}, ErrNotRun},
		{Mutant{Name: "old text that is there twice", Edit: Edit{"sum/sum.go", "a + ", "a - "}, Test: "TestSum"}, ErrText},
		{Mutant{Name: "old text that is not there", Edit: Edit{"sum/sum.go", "a * b", "a - b"}, Test: "TestSum"}, ErrText},
		{Mutant{Name: "no change", Edit: Edit{"sum/sum.go", "a + b", "a + b"}, Test: "TestSum"}, ErrText},
		{Mutant{Name: "no such file", Edit: Edit{"sum/gone.go", "a + b", "a - b"}, Test: "TestSum"}, os.ErrNotExist},
	}
	var table []Mutant
	for _, c := range cases {
		c.m.Package = "./sum"
		table = append(table, c.m)
	}
	var out bytes.Buffer
	r := Runner{Root: newModule(t), Parallel: 2, Env: append(Environment(), "GOWORK=off"), Out: &out}
	joined, ok := r.Run(t.Context(), table).(interface{ Unwrap() []error })
	require.True(t, ok)
	for _, c := range cases {
		i := slices.IndexFunc(joined.Unwrap(), func(err error) bool { return strings.HasPrefix(err.Error(), c.m.Name+":") })
		if c.want == nil {
			require.Negative(t, i, c.m.Name)
			require.Regexp(t, "killed .* "+c.m.Name+` \(`, out.String())
			continue
		}
		require.GreaterOrEqual(t, i, 0, c.m.Name)
		require.ErrorIs(t, joined.Unwrap()[i], c.want, c.m.Name)
		require.Regexp(t, "ALIVE .* "+c.m.Name+` \(`, out.String())
	}
}

func TestAPackageThatDoesNotCompileIsReported(t *testing.T) {
	root := newModule(t)
	require.NoError(t, os.WriteFile(filepath.Join(root, "sum", "more.go"), []byte("package sum\n\nvar x int = true\n"), 0o600))
	r := Runner{Root: root, Env: append(Environment(), "GOWORK=off"), Out: t.Output()}
	m := Mutant{Name: "m", Edit: Edit{"sum/sum.go", "a + b", "a - b"}, Package: "./sum", Test: "TestSum"}
	require.ErrorIs(t, r.Run(t.Context(), []Mutant{m}), ErrFails)
}
