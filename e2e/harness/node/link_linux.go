package node

import (
	"context"
	"fmt"
	"os/exec"
	"strings"
)

// links is how many clusters run on a machine at once.
const links = 64

// newLink creates a pair of devices, with the end of this machine up and a route to the Pods behind the
// other one, and returns its number. The kernel gives a name once, so two clusters never get the same.
func newLink(ctx context.Context) (int, error) {
	for n := range links {
		host, peer := hostEnd(n), peerEnd(n)
		err := runIP(ctx, "link", "add", host, "type", "veth", "peer", "name", peer)
		if err != nil && strings.Contains(err.Error(), "File exists") {
			continue
		}
		if err != nil {
			return 0, err
		}
		if err = runIP(ctx, "addr", "add", fmt.Sprintf("198.18.%d.1/30", n), "dev", host); err == nil {
			err = runIP(ctx, "link", "set", host, "up")
		}
		if err == nil {
			to := newPlace("", n, "")
			err = runIP(ctx, "route", "add", to.pods, "via", to.address)
		}
		if err != nil {
			_ = runIP(ctx, "link", "del", host)
		}
		return n, err
	}
	return 0, fmt.Errorf("%d clusters run on this machine already", links)
}

func hostEnd(n int) string { return fmt.Sprintf("%s%d", linkPrefix, n) }

func peerEnd(n int) string { return hostEnd(n) + "n" }

func runIP(ctx context.Context, args ...string) error { return runProgram(ctx, "ip", args...) }

func runProgram(ctx context.Context, name string, args ...string) error {
	if out, err := exec.CommandContext(ctx, name, args...).CombinedOutput(); err != nil {
		return fmt.Errorf("%s %s: %w: %s", name, strings.Join(args, " "), err, out)
	}
	return nil
}
