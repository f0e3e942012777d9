package node

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"strings"
)

// ReadyPrefix begins the line that the program prints when a cluster is ready.
const ReadyPrefix = "export KUBECONFIG="

// Held is a cluster that a process of its own takes down when this process ends, however that ends: its standard input is a pipe that this
// process holds.
type Held struct {
	cmd   *exec.Cmd
	input io.Closer
	lines *bufio.Scanner
	log   io.Writer
}

// Hold runs the command `up` of a program with the flag --hold and further arguments. Progress goes to log. The caller calls Release.
func Hold(program string, log io.Writer, args ...string) (*Held, error) {
	cmd := exec.Command(program, append([]string{"up", "--hold"}, args...)...) //nolint:noctx // it takes the cluster down after this process
	cmd.Stderr = log
	input, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	output, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	return &Held{cmd: cmd, input: input, lines: bufio.NewScanner(output), log: log}, cmd.Start()
}

// AwaitReady returns when the cluster is ready; it never will be when the program ends.
func (h *Held) AwaitReady(ctx context.Context) error {
	defer context.AfterFunc(ctx, func() { _ = h.input.Close() })()
	for h.lines.Scan() {
		if _, err := fmt.Fprintln(h.log, h.lines.Text()); err != nil {
			return err
		}
		if strings.HasPrefix(h.lines.Text(), ReadyPrefix) {
			return nil
		}
	}
	return errors.Join(errors.New("the cluster did not get ready"), ctx.Err(), h.lines.Err())
}

// Release has the cluster taken down and waits until nothing of it is left.
func (h *Held) Release() error {
	err := h.input.Close()
	for h.lines.Scan() {
		_, _ = fmt.Fprintln(h.log, h.lines.Text())
	}
	return errors.Join(err, h.cmd.Wait())
}
