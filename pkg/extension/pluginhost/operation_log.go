package pluginhost

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"maps"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/holdfast-io/holdfast/pkg/extension/action"
	pluginv1 "github.com/holdfast-io/holdfast/pkg/plugin/wire/holdfast/plugin/v1"
)

// What a log may take: a line as it comes, the fields that are kept of it, and all lines of one
// that is not followed.
const (
	maxLogLine   = 1 << 20
	maxLogFields = 64
	maxLogBytes  = 64 << 20
)

// Logs calls the plugin. Velero's protocol has no logs: the error is action.ErrNoLogs. Without follow
// each line has to come in time, and the log may not be larger than 64 MiB; with follow ctx alone
// limits it.
func (o *Operations) Logs(ctx context.Context, op action.Operation, job []byte, since time.Time, follow bool) iter.Seq2[action.LogLine, error] {
	return func(yield func(action.LogLine, error) bool) {
		p, err := o.pluginOf(op)
		switch {
		case err != nil:
		case !isAsynchronous(p.registration.Kind):
			err = fmt.Errorf("%s %s: %w", clipText(op.Kind), clipText(op.Action), action.ErrNoLogs)
		default:
			r := &pluginv1.LogsRequest{Kind: contractKind(p.registration.Kind), Plugin: p.name, OperationId: op.ID, Job: job, Follow: follow}
			if !since.IsZero() {
				r.Since = timestamppb.New(since)
			}
			err = p.streamLogs(ctx, callAbout(p.newQuery("Logs"), op), r, func(line action.LogLine) bool { return yield(line, nil) })
		}
		if err != nil {
			yield(action.LogLine{}, err)
		}
	}
}

// streamLogs hands on the lines until take returns false.
func (p *plugin) streamLogs(ctx context.Context, c pluginCall, r *pluginv1.LogsRequest, take func(action.LogLine) bool) error {
	t, err := p.worker.openTransfer(ctx, c)
	if err != nil {
		return err
	}
	defer func() { _ = t.endTransfer(nil) }() // also if take panics
	stream, err := pluginv1.NewAsyncActionServiceClient(t.p.conn).Logs(t.streamContext(), r, grpc.MaxCallRecvMsgSize(min(maxLogLine, p.worker.spec.limits.Answer)))
	if err != nil {
		return t.endTransfer(err)
	}
	if r.GetFollow() {
		t.reportWaiting(false) // the next line may come at any time
	}
	for size := 0; ; {
		var line *pluginv1.LogsResponse
		receive := func() error {
			return guardPanic(func() (err error) { line, err = stream.Recv(); return err })
		}
		if r.GetFollow() {
			err = receive()
		} else {
			err = t.runStep(receive)
			size += proto.Size(line)
		}
		switch {
		case errors.Is(err, io.EOF):
			return t.endTransfer(nil)
		case err != nil:
			return t.endTransfer(err)
		case size > maxLogBytes:
			return t.endTransfer(fmt.Errorf("%w: log is larger than %d bytes", ErrTooLarge, maxLogBytes))
		case !take(logLine(line)):
			return t.endTransfer(nil)
		}
	}
}

// logLine bounds a line.
func logLine(line *pluginv1.LogsResponse) action.LogLine {
	r := action.LogLine{Time: convertTimestamp(line.GetTime()), Level: logLevel(line.GetLevel()), Message: plainText(line.GetMessage())}
	keys := slices.Sorted(maps.Keys(line.GetFields()))
	for _, key := range keys[:min(len(keys), maxLogFields)] {
		if r.Fields == nil {
			r.Fields = map[string]string{}
		}
		r.Fields[plainText(key)] = plainText(line.GetFields()[key])
	}
	return r
}

func logLevel(name string) string {
	switch name = strings.ToLower(name); name {
	case "debug", "warning", "error":
		return name
	case "warn":
		return "warning"
	default:
		return "info"
	}
}
