package node

import (
	"fmt"
	"time"

	"github.com/holdfast-io/holdfast/e2e/harness/testbed"
)

// restartPause is how long a kubelet that has ended is away.
const restartPause = 5 * time.Second

// restartProcess starts a process again whenever it has ended, as the service manager of a node does, until the function that it
// returns stops it. What cannot be started again comes out of ended.
func restartProcess(spec testbed.ProcessSpec, process *testbed.Process, ended chan<- error) (stop func()) {
	stopping, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for {
			select {
			case <-process.Done():
				fmt.Printf("%s is started again in %s: %v\n", spec.Name, restartPause, process.Err())
			case <-stopping:
				process.Stop(stopGrace / 4)
				return
			}
			select {
			case <-time.After(restartPause):
			case <-stopping:
				return
			}
			next, err := testbed.StartProcess(spec)
			if err != nil {
				reportEnd(err, ended)
				return
			}
			process = next
		}
	}()
	return func() { close(stopping); <-stopped }
}

// reportEnd sends the first error of several.
func reportEnd(err error, ended chan<- error) {
	select {
	case ended <- err:
	default: // another one ended before
	}
}
