package testbed

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
)

// Ports are chosen between these, below what kernels hand out for port 0 and for outgoing
// connections (from 32768 on Linux, RFC 6335's dynamic range elsewhere), so that nothing takes one
// between its choice and its use, and between restarts of a server.
const (
	firstPort = 15000
	lastPort  = 29999
)

// held keeps the locks of this process's ports: the kernel gives them back when the process ends,
// however it ends.
var held struct {
	sync.Mutex
	locks []*os.File
}

// FreePorts returns n different TCP ports of 127.0.0.1 that are free and that no other process gets
// from FreePorts while this one runs.
func FreePorts(n int) ([]int, error) {
	dir := filepath.Join(os.TempDir(), "holdfast-ports")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("find a free port: %w", err)
	}
	held.Lock()
	defer held.Unlock()
	var ports []int
	for _, offset := range rand.Perm(lastPort - firstPort + 1) {
		if len(ports) == n {
			return ports, nil
		}
		port := firstPort + offset
		lock, err := reservePort(dir, port)
		if err != nil {
			return nil, fmt.Errorf("find a free port: %w", err)
		}
		if lock != nil {
			held.locks = append(held.locks, lock)
			ports = append(ports, port)
		}
	}
	return nil, fmt.Errorf("find %d free ports: all from %d to %d are taken", n, firstPort, lastPort)
}

// reservePort locks a port for this process; it returns nil for one that is taken.
func reservePort(dir string, port int) (_ *os.File, err error) {
	lock, err := os.OpenFile(filepath.Join(dir, strconv.Itoa(port)), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		if errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, lock.Close()
		}
		return nil, errors.Join(err, lock.Close())
	}
	listener, err := net.ListenTCP("tcp", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: port})
	if err != nil {
		return nil, lock.Close() // another process listens on it
	}
	if err := listener.Close(); err != nil {
		return nil, errors.Join(err, lock.Close())
	}
	return lock, nil
}
