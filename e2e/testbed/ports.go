package testbed

import (
	"fmt"
	"net"
)

// FreePorts returns n different TCP ports of 127.0.0.1 that were free a moment ago. Another process may take one before it is used; whoever starts a
// server on it tries again with fresh ports.
func FreePorts(n int) ([]int, error) {
	ports := make([]int, 0, n)
	for range n {
		listener, err := net.ListenTCP("tcp", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
		if err != nil {
			return nil, fmt.Errorf("find a free port: %w", err)
		}
		defer func() { _ = listener.Close() }() // held until all are found, so that they differ
		ports = append(ports, listener.Addr().(*net.TCPAddr).Port)
	}
	return ports, nil
}
