package job

import (
	"context"
	"fmt"
	"io"

	"github.com/spf13/pflag"
	"google.golang.org/grpc"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/services/holdfast/internal/cli/command"
)

// LiveLog reads the logs of jobs that run.
type LiveLog struct {
	// Remote says where the service is that knows them.
	Remote command.RemoteOptions
	// Read hands over the log of a job in parts of whole lines, and how many lines are left out before each. With follow
	// it goes on until the job has ended.
	Read func(ctx context.Context, conn grpc.ClientConnInterface, name string, follow bool, show func(text string, leftOut int64) error) error

	follow bool
}

func (l *LiveLog) bindFlags(fs *pflag.FlagSet) {
	fs.BoolVarP(&l.follow, "follow", "f", false, "print new lines until it has ended")
	l.Remote.BindFlags(fs)
}

// isLogged reports the phases in which a job may have a log that is not stored yet.
func isLogged(phase velerov1.BackupPhase) bool {
	return phase == velerov1.BackupPhaseInProgress || phase == velerov1.BackupPhaseFinalizing || phase == velerov1.BackupPhaseFinalizingPartiallyFailed
}

// printSoFar prints the log of a job so far, and reports whether there was any.
func (l *LiveLog) printSoFar(ctx context.Context, g *command.Global, name string) (said bool, err error) {
	conn, err := l.Remote.Connect(g)
	if err != nil {
		return false, err
	}
	defer func() { _ = conn.Close() }() // nothing is lost with it
	read := func(ctx context.Context) error {
		return l.Read(ctx, conn, name, l.follow, func(text string, leftOut int64) error {
			said = true
			if leftOut > 0 {
				_, _ = fmt.Fprintf(g.ErrOut, "holdfast: %d earlier lines are left out here; the log has them when the run is over\n", leftOut)
			}
			_, err := io.WriteString(g.Out, text)
			return err
		})
	}
	if l.follow {
		err = l.Remote.KeepWatching(ctx, g, &said, read)
	} else {
		err = read(ctx)
	}
	if err != nil {
		err = l.Remote.Explain(err)
	}
	return said, err
}
