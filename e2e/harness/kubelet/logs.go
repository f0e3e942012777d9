package kubelet

import (
	"bytes"
	"net/http"
	"os"
	"strconv"
	"strings"
)

// ServeLogs serves logs of containers, which /containerLogs of a kubelet has: file returns the path of the
// log of a Pod, empty for a Pod that has none.
func (n *Node) ServeLogs(file func(namespace, pod string) string) { n.logFile.Store(&file) }

// serveRequest answers the API server: logs here, and commands by the handler.
func (n *Node) serveRequest(exec http.Handler) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		parts := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
		file := n.logFile.Load()
		if len(parts) != 4 || parts[0] != "containerLogs" || file == nil { //nolint:mnd // /containerLogs/{namespace}/{pod}/{container}
			exec.ServeHTTP(w, r)
			return
		}
		data, err := os.ReadFile((*file)(parts[1], parts[2]))
		if err != nil {
			http.Error(w, err.Error(), http.StatusNotFound)
			return
		}
		if lines, err := strconv.Atoi(r.URL.Query().Get("tailLines")); err == nil {
			data = tailLines(data, lines)
		}
		_, _ = w.Write(data)
	}
}

func tailLines(data []byte, lines int) []byte {
	all := bytes.SplitAfter(data, []byte("\n"))
	if n := len(all); len(all[n-1]) == 0 {
		all = all[:n-1]
	}
	return bytes.Join(all[max(0, len(all)-lines):], nil)
}
