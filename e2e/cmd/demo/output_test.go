package main

import (
	"bytes"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestOutputIsIndentedByWholeLines(t *testing.T) {
	var out bytes.Buffer
	p := newPrinter(&out)
	p.Step("First %s", "step")
	for _, piece := range []string{"a li", "ne\nprogress 1\rprogress 2\r", "\nlast\n"} {
		_, err := p.Write([]byte(piece))
		require.NoError(t, err)
	}
	p.Command("holdfast", "backup", "create")
	lines := strings.Split(out.String(), "\n")
	require.Contains(t, lines[1], "1. First step")
	require.Equal(t, []string{"a line", "progress 1", "progress 2", "last", "$ holdfast backup create"}, trimLines(lines[2:7]))
}

func trimLines(lines []string) []string {
	for i := range lines {
		lines[i] = strings.TrimSpace(lines[i])
	}
	return lines
}
