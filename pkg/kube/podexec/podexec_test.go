package podexec_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/client-go/rest"

	"github.com/holdfast-io/holdfast/pkg/kube/kubetest"
	"github.com/holdfast-io/holdfast/pkg/kube/podexec"
)

func newClient(t *testing.T, h *kubetest.ExecHandler) *podexec.Client {
	t.Helper()
	server := httptest.NewServer(h)
	t.Cleanup(server.Close)
	c, err := podexec.New(&rest.Config{Host: server.URL})
	require.NoError(t, err)
	return c
}

func TestACommandRunsInItsContainer(t *testing.T) {
	for _, refused := range []bool{false, true} { // WebSocket, else SPDY
		t.Run(fmt.Sprint(refused), func(t *testing.T) {
			c := newClient(t, &kubetest.ExecHandler{NoWebSocket: refused, Run: func(_ context.Context, r *kubetest.ExecRequest, stdout, stderr io.Writer) error {
				if _, err := fmt.Fprintf(stdout, "%+v\n", *r); err != nil {
					return err
				}
				if _, err := fmt.Fprint(stderr, "and more"); err != nil {
					return err
				}
				switch r.Command[0] {
				case "fail":
					return &kubetest.ExecExitError{Code: 3}
				case "no":
					return errors.New("no such container")
				}
				return nil
			}})
			run := func(args ...string) (podexec.Output, error) {
				return c.Run(t.Context(), &podexec.Command{Namespace: "a", Pod: "db", Container: "main", Args: args})
			}
			out, err := run("fsfreeze", "--freeze", "/var lib")
			require.NoError(t, err)
			require.Equal(t, podexec.Output{Stdout: "{Namespace:a Pod:db Container:main Command:[fsfreeze --freeze /var lib]}", Stderr: "and more"}, out)
			out, err = run("fail")
			require.ErrorContains(t, err, "exit code 3")
			require.True(t, podexec.Exited(err))
			require.Equal(t, "and more", out.Stderr)
			_, err = run("no")
			require.ErrorContains(t, err, "no such container")
			require.False(t, podexec.Exited(err))
		})
	}
}

// A command that writes without end takes no memory, and the log of a job no more than its beginning.
func TestOfLongOutputTheBeginningIsKept(t *testing.T) {
	c := newClient(t, &kubetest.ExecHandler{Run: func(_ context.Context, _ *kubetest.ExecRequest, stdout, _ io.Writer) error {
		for range 100 {
			if _, err := io.WriteString(stdout, strings.Repeat("x", 1000)); err != nil {
				return err
			}
		}
		return nil
	}})
	out, err := c.Run(t.Context(), &podexec.Command{Namespace: "a", Pod: "p", Container: "c", Args: []string{"yes"}})
	require.NoError(t, err)
	require.Less(t, len(out.Stdout), 9000)
	require.Contains(t, out.Stdout, "bytes more")
}

func TestTheConnectionEndsWithTheContext(t *testing.T) {
	ended := make(chan struct{})
	c := newClient(t, &kubetest.ExecHandler{Run: func(ctx context.Context, _ *kubetest.ExecRequest, _, _ io.Writer) error {
		<-ctx.Done()
		close(ended)
		return ctx.Err()
	}})
	late := errors.New("too late")
	ctx, cancel := context.WithTimeoutCause(t.Context(), 50*time.Millisecond, late)
	defer cancel()
	_, err := c.Run(ctx, &podexec.Command{Namespace: "a", Pod: "p", Container: "c", Args: []string{"sleep"}})
	require.ErrorIs(t, err, late)
	<-ended
}

func TestAServerThatRefusesIsAnError(t *testing.T) {
	server := httptest.NewServer(nil) // 404 to all
	defer server.Close()
	c, err := podexec.New(&rest.Config{Host: server.URL})
	require.NoError(t, err)
	_, err = c.Run(t.Context(), &podexec.Command{Namespace: "a", Pod: "gone", Container: "c", Args: []string{"x"}})
	require.Error(t, err)
}
