package moverpods

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"

	"github.com/holdfast-io/holdfast/pkg/kube/kubetest"
)

// ownBinary is the mover's in its container.
const ownBinary = "/proc/1/exe"

// IsMover reports whether a command is to run in a mover Pod.
func (m *Movers) IsMover(r *kubetest.ExecRequest) bool { return m.findRun(r.Pod) != nil }

// RunCommand runs the mover's own binary in a mover Pod that runs.
func (m *Movers) RunCommand(ctx context.Context, r *kubetest.ExecRequest, stdout, stderr io.Writer) error {
	run := m.findRun(r.Pod)
	if run == nil || len(r.Command) == 0 || r.Command[0] != ownBinary {
		return fmt.Errorf("no mover runs %q", r.Command)
	}
	run.mu.Lock()
	places := run.places
	run.mu.Unlock()
	if places == nil {
		return fmt.Errorf("the container of Pod %s has not started", r.Pod)
	}
	command := exec.CommandContext(ctx, m.binary, places.replaceIn(r.Command[1:])...)
	command.Env, command.Stdout, command.Stderr = append(os.Environ(), environment(&run.pod.Spec.Containers[0])...), stdout, stderr
	err := command.Run()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return &kubetest.ExecExitError{Code: exit.ExitCode()}
	}
	return err
}

func (m *Movers) findRun(pod string) *moverPod {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, run := range m.pods {
		if run.pod.Name == pod {
			return run
		}
	}
	return nil
}
