package kubetest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"

	"github.com/gorilla/websocket"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/remotecommand"
	"k8s.io/streaming/pkg/httpstream"
	"k8s.io/streaming/pkg/httpstream/spdy"
)

// ExecRequest is a command that is to be run.
type ExecRequest struct {
	Namespace, Pod, Container string
	Command                   []string
}

// ExecExitError ends a command with a status other than 0.
type ExecExitError struct{ Code int }

// Error implements error.
func (e *ExecExitError) Error() string {
	return fmt.Sprintf("command terminated with non-zero exit code: %d", e.Code)
}

// ExecHandler runs commands. The context of Run ends with the connection.
type ExecHandler struct {
	Run func(ctx context.Context, r *ExecRequest, stdout, stderr io.Writer) error
	// NoWebSocket refuses WebSockets, as some proxies do.
	NoWebSocket bool
}

// parseRequest reads /api/v1/namespaces/{namespace}/pods/{pod}/exec of an API server, and
// /exec/{namespace}/{pod}/{container} of a kubelet.
func parseRequest(r *http.Request) (*ExecRequest, bool) {
	parts := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	query := r.URL.Query()
	switch {
	case len(parts) == 7 && parts[4] == "pods" && parts[6] == "exec":
		return &ExecRequest{Namespace: parts[3], Pod: parts[5], Container: query.Get("container"), Command: query["command"]}, true
	case len(parts) >= 4 && parts[0] == "exec":
		return &ExecRequest{Namespace: parts[1], Pod: parts[2], Container: parts[len(parts)-1], Command: query["command"]}, true
	}
	return nil, false
}

// ServeHTTP implements http.Handler.
func (h *ExecHandler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	request, ok := parseRequest(r)
	switch {
	case !ok:
		http.NotFound(w, r)
	case !websocket.IsWebSocketUpgrade(r):
		h.serveSPDY(w, r, request)
	case h.NoWebSocket:
		http.Error(w, "no WebSockets here", http.StatusForbidden)
	default:
		h.serveWebSocket(w, r, request)
	}
}

// channel writes to one stream of a WebSocket.
type channel struct {
	mu     *sync.Mutex
	conn   *websocket.Conn
	number byte
}

func (c *channel) Write(data []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	err := c.conn.WriteMessage(websocket.BinaryMessage, append([]byte{c.number}, data...))
	return len(data), err
}

func (c *channel) close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.conn.WriteMessage(websocket.CloseMessage, websocket.FormatCloseMessage(websocket.CloseNormalClosure, ""))
}

func (h *ExecHandler) serveWebSocket(w http.ResponseWriter, r *http.Request, request *ExecRequest) {
	upgrader := websocket.Upgrader{Subprotocols: []string{remotecommand.StreamProtocolV5Name}}
	conn, err := upgrader.Upgrade(w, r, nil)
	if err != nil {
		return // answered
	}
	ctx, cancel := context.WithCancel(r.Context())
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		defer cancel()
		for {
			if _, _, err := conn.ReadMessage(); err != nil {
				return
			}
		}
	}()
	mu := &sync.Mutex{}
	of := func(number byte) *channel { return &channel{mu, conn, number} }
	err = h.Run(ctx, request, of(remotecommand.StreamStdOut), of(remotecommand.StreamStdErr))
	_, _ = of(remotecommand.StreamErr).Write(exitStatus(err)) // the client may have closed the connection
	_ = of(0).close()
	_ = conn.Close()
	<-gone
}

// accepted is a stream that the client opened, and the answer that accepts it.
type accepted struct {
	httpstream.Stream
	replied <-chan struct{}
}

func (h *ExecHandler) serveSPDY(w http.ResponseWriter, r *http.Request, request *ExecRequest) {
	if _, err := httpstream.Handshake(r, w, []string{remotecommand.StreamProtocolV4Name}); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	opened := make(chan accepted, 8)
	conn := spdy.NewResponseUpgrader().UpgradeResponse(w, r, func(s httpstream.Stream, replied <-chan struct{}) error {
		opened <- accepted{s, replied}
		return nil
	})
	if conn == nil {
		return // answered
	}
	defer func() { _ = conn.Close() }()
	streams := map[string]io.WriteCloser{}
	for _, name := range []string{corev1.StreamTypeError, corev1.StreamTypeStdout, corev1.StreamTypeStderr} {
		if name != corev1.StreamTypeError && !requestsStream(r, name) {
			streams[name] = nowhere{}
		}
	}
	for len(streams) < 3 {
		select {
		case s := <-opened:
			<-s.replied
			streams[s.Headers().Get(corev1.StreamType)] = s
		case <-conn.CloseChan():
			return
		}
	}
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	go func() {
		defer cancel()
		select {
		case <-conn.CloseChan():
		case <-ctx.Done():
		}
	}()
	err := h.Run(ctx, request, streams[corev1.StreamTypeStdout], streams[corev1.StreamTypeStderr])
	_, _ = streams[corev1.StreamTypeError].Write(exitStatus(err)) // as above
	for _, s := range streams {
		_ = s.Close()
	}
}

// requestsStream reports whether a client requests a stream; API server and kubelet name them differently.
func requestsStream(r *http.Request, stream string) bool {
	query := r.URL.Query()
	for _, name := range []string{stream, map[string]string{"stdout": "output", "stderr": "error"}[stream]} {
		if wanted, err := strconv.ParseBool(query.Get(name)); err == nil && wanted {
			return true
		}
	}
	return false
}

type nowhere struct{}

func (nowhere) Write(data []byte) (int, error) { return len(data), nil }
func (nowhere) Close() error                   { return nil }

// exitStatus is how a command ended, as protocols 4 and 5 encode it.
func exitStatus(err error) []byte {
	s := metav1.Status{Status: metav1.StatusSuccess}
	exit := new(ExecExitError)
	switch {
	case errors.As(err, &exit):
		s = metav1.Status{Status: metav1.StatusFailure, Reason: remotecommand.NonZeroExitCodeReason, Message: err.Error(),
			Details: &metav1.StatusDetails{Causes: []metav1.StatusCause{{Type: remotecommand.ExitCodeCauseType, Message: strconv.Itoa(exit.Code)}}}}
	case err != nil:
		s = metav1.Status{Status: metav1.StatusFailure, Reason: metav1.StatusReasonInternalError, Message: err.Error()}
	}
	data, err := json.Marshal(s)
	if err != nil {
		return []byte(err.Error()) // which a client does not understand
	}
	return data
}
