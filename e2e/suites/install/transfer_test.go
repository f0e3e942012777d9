//go:build node

package install

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-io/holdfast/e2e/harness/node"
)

// Counters of /proc/PID/io: the bytes that a process has read and written.
const (
	bytesRead    = "rchar"
	bytesWritten = "wchar"
)

// begun is how many bytes a mover has moved that is in the middle of a large volume.
const begun = 32 << 20

// awaitTransfer waits until the mover with these words in its command line is in the middle of its volume, by a counter, and
// returns its process.
func (b *bed) awaitTransfer(ctx context.Context, words, counter string) (pid int, err error) {
	cgroup, err := node.Cgroup(b.dir)
	if err != nil {
		return 0, err
	}
	err = wait.PollUntilContextTimeout(ctx, look, patience, true, func(context.Context) (bool, error) {
		processes, err := node.Processes(cgroup)
		for candidate, command := range processes {
			if strings.Contains(command, " move ") && strings.Contains(command, words) {
				pid = candidate
			}
		}
		return pid != 0, err
	})
	if err == nil {
		err = wait.PollUntilContextTimeout(ctx, time.Millisecond, patience, true, func(context.Context) (bool, error) {
			moved, err := readCounter(pid, counter)
			return moved >= begun, err
		})
	}
	if err != nil {
		return 0, fmt.Errorf("the mover with %q: %w", words, err)
	}
	return pid, nil
}

// readCounter returns a counter of a process that has not ended.
func readCounter(pid int, counter string) (value int, err error) {
	text, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "io"))
	if err != nil {
		return 0, err
	}
	_, rest, _ := strings.Cut(string(text), counter+": ")
	line, _, _ := strings.Cut(rest, "\n")
	return strconv.Atoi(line)
}

// killTransfer kills a mover in the middle of its volume, whenever that is. The error comes out of the channel.
func (b *bed) killTransfer(t *testing.T, words, counter string) <-chan error {
	t.Helper()
	killed := make(chan error, 1)
	go func() {
		pid, err := b.awaitTransfer(t.Context(), words, counter)
		if err == nil {
			err = syscall.Kill(pid, syscall.SIGKILL)
		}
		killed <- err
	}()
	return killed
}

// awaitNoMovers waits until nothing is left of movers.
func (b *bed) awaitNoMovers(t *testing.T) {
	t.Helper()
	movers := []client.ListOption{client.InNamespace(server), client.HasLabels{"holdfast.io/mover"}}
	require.Eventually(t, func() bool {
		pods, secrets := &corev1.PodList{}, &corev1.SecretList{}
		return b.client.List(t.Context(), pods, movers...) == nil && b.client.List(t.Context(), secrets, movers...) == nil && len(pods.Items)+len(secrets.Items) == 0
	}, patience, look, "mover Pods and their Secrets are gone")
}
