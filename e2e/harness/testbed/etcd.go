package testbed

import (
	"context"
	"fmt"
	"testing"
	"time"
)

// StartEtcdT starts one more etcd for a test, such as one for --etcd-servers-overrides, and stops
// it when the test is done. It returns the URL.
func StartEtcdT(tb testing.TB) string {
	tb.Helper()
	binary, err := Binary("etcd")
	if err != nil {
		tb.Fatal(err)
	}
	ports, err := FreePorts(2)
	if err != nil {
		tb.Fatal(err)
	}
	c := &Cluster{dir: tb.TempDir(), etcdURL: fmt.Sprintf("http://127.0.0.1:%d", ports[0])}
	process, err := StartProcess(ProcessSpec{Name: "etcd", Path: binary, Args: etcdArgs(c, ports), LogDir: c.dir})
	if err != nil {
		tb.Fatalf("start etcd: %v", err)
	}
	tb.Cleanup(func() { process.Stop(10 * time.Second) })
	ctx, cancel := context.WithTimeout(tb.Context(), Patience)
	defer cancel()
	if err := waitFor(ctx, process, c.etcdReady); err != nil {
		tb.Fatalf("start etcd: %v", err)
	}
	return c.etcdURL
}
