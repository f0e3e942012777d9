package testbed

import (
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"testing"
)

// privateNetwork makes a network namespace with nothing but a loopback device, in which connections to the given addresses on
// loopback lead to those of this machine. The path is one for nsenter; all ends with the test. It takes root.
func privateNetwork(tb testing.TB, addresses []string) (path string) {
	tb.Helper()
	made := make(chan error, 1)
	var namespace *os.File
	var listeners []net.Listener
	go func() {
		runtime.LockOSThread() // for good: the thread, which is in the other namespace, ends with the goroutine
		made <- func() (err error) {
			if err = syscall.Unshare(syscall.CLONE_NEWNET); err != nil {
				return fmt.Errorf("make a network namespace: %w", err)
			}
			if namespace, err = os.Open("/proc/thread-self/ns/net"); err != nil {
				return err
			}
			if out, err := exec.CommandContext(tb.Context(), "ip", "link", "set", "lo", "up").CombinedOutput(); err != nil {
				return fmt.Errorf("start loopback: %w: %s", err, out)
			}
			for _, address := range addresses {
				listener, err := (&net.ListenConfig{}).Listen(tb.Context(), "tcp", address)
				if err != nil {
					return err
				}
				listeners = append(listeners, listener)
			}
			return nil
		}()
	}()
	err := <-made
	tb.Cleanup(func() {
		_ = namespace.Close()
		for _, l := range listeners {
			_ = l.Close()
		}
	})
	if err != nil {
		tb.Fatal(err)
	}
	for _, l := range listeners {
		go relayConnections(l)
	}
	return fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), namespace.Fd())
}

// relayConnections hands on what comes to a listener to its address in the network of this process, until the listener is closed.
func relayConnections(l net.Listener) {
	for {
		from, err := l.Accept()
		if err != nil {
			return
		}
		to, err := net.Dial("tcp", l.Addr().String()) //nolint:noctx // ends with either side
		if err != nil {
			_ = from.Close()
			continue
		}
		for _, pair := range [][2]net.Conn{{from, to}, {to, from}} {
			go func() {
				_, _ = io.Copy(pair[0], pair[1])
				_ = pair[0].Close()
			}()
		}
	}
}
