package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestSourcesAreMeasured(t *testing.T) {
	t.Chdir(t.TempDir())
	long := "func readPages() {\n" + strings.Repeat("\t_ = 0\n", longFunction) + "}\n"
	for path, text := range map[string]string{
		"pkg/kube/a.go":          "package kube\n\nimport _ \"github.com/holdfast-io/holdfast/pkg/job/claim\"\n\nfunc end() {}\n\nfunc Run() {}\n",
		"pkg/job/claim/b.go":     "package claim\n\nimport _ \"github.com/holdfast-io/holdfast/pkg/kube\"\n\n" + long,
		"pkg/kube/kubetest/c.go": "package kubetest\n\nfunc startServer() {}\n",
		"pkg/kube/a_test.go":     "package kube\n\nfunc add() {}\n",
	} {
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	}
	f, err := measureSources([]string{"pkg/kube/a.go", "pkg/job/claim/b.go", "pkg/kube/kubetest/c.go", "pkg/kube/a_test.go"}, []string{"kube", "job"})
	require.NoError(t, err)
	require.Equal(t, 7+4+longFunction+2, f.productLines)
	require.Equal(t, 6, f.testLines)
	require.Len(t, f.packages, 3)
	require.Equal(t, 1, f.longFunctions)
	require.Equal(t, []string{"pkg/kube/a.go -> pkg/job/claim"}, f.upward)
	require.Equal(t, 4, f.unexported)
	require.Equal(t, 2, f.oneWord)
	require.Equal(t, len("end")+len("readPages")+len("startServer")+len("add"), f.nameLength)
}
