package node

import (
	"fmt"
	"strings"
)

// Connection is a TCP connection that the connection tracking of a cluster's node knows: addresses
// of the client and of the server, behind a Service that of the Pod.
type Connection struct{ Client, Server, Port string }

// Connections returns the connections in the node's table, which keeps those that have ended for two
// minutes, each once.
func Connections(dir string) (map[Connection]bool, error) {
	text, err := readProc(dir, "net/nf_conntrack")
	if err != nil {
		return nil, fmt.Errorf("read the node's connections: %w", err)
	}
	found := map[Connection]bool{}
	for line := range strings.Lines(text) {
		if c, ok := parseConnection(line); ok {
			found[c] = true
		}
	}
	return found, nil
}

// parseConnection reads a line of nf_conntrack, which has the addresses and ports of the first
// packet and those of the answer to it: the answer's source is who serves, after what a Service
// translates.
func parseConnection(line string) (Connection, bool) {
	fields := strings.Fields(line)
	if len(fields) < 3 || fields[2] != "tcp" {
		return Connection{}, false
	}
	var sources, ports []string
	for _, field := range fields {
		if value, ok := strings.CutPrefix(field, "src="); ok {
			sources = append(sources, value)
		}
		if value, ok := strings.CutPrefix(field, "sport="); ok {
			ports = append(ports, value)
		}
	}
	if len(sources) != 2 || len(ports) != 2 {
		return Connection{}, false
	}
	return Connection{Client: sources[0], Server: sources[1], Port: ports[1]}, true
}
