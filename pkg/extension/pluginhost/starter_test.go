package pluginhost_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/holdfast-io/holdfast/pkg/plugin"
	"github.com/holdfast-io/holdfast/pkg/plugin/serve"
)

// This file is the test binary as a plugin with the SDK's asynchronous actions.

func serveStarters() {
	registry := &plugin.Registry{}
	registry.BackupItemAction("z.io/sync", []string{"pods"}, func(plugin.Env) (plugin.BackupItemAction, error) { return annotate{}, nil })
	registry.AsyncBackupItemAction("a.io/inside", []string{"pods"}, func(plugin.Env) (plugin.AsyncBackupItemAction, error) {
		return &starter{inside: true, began: map[string]plugin.State{}}, nil
	})
	registry.AsyncBackupItemAction("a.io/outside", []string{"pods"}, func(plugin.Env) (plugin.AsyncBackupItemAction, error) { return &starter{}, nil })
	registry.AsyncRestoreItemAction("a.io/restores", []string{"pods"}, func(plugin.Env) (plugin.AsyncRestoreItemAction, error) {
		return &restarter{starter{inside: true, began: map[string]plugin.State{}}}, nil
	})
	if err := serve.Run(registry); err != nil {
		fmt.Fprintln(stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// starter begins operations that have the key of their start as ID. Those inside end when they are
// cancelled; those outside behave as they are called.
type starter struct {
	plugin.Everything
	inside  bool
	mu      sync.Mutex
	began   map[string]plugin.State
	cancels int64
}

func (s *starter) Start(_ context.Context, in *plugin.AsyncBackupInput) (*plugin.AsyncBackupOutput, error) {
	key := in.IdempotencyKey
	switch key {
	case "nothing":
		return nil, nil
	case "exit":
		os.Exit(7)
	case "error":
		return nil, errors.New("no licence")
	case "other":
		in.Item.SetName("other")
	case "long":
		key = strings.Repeat("x", 5<<10)
	}
	if s.inside {
		s.mu.Lock()
		s.began[key] = plugin.Running
		s.mu.Unlock()
	}
	in.Item.SetAnnotations(map[string]string{"backup": in.Backup.Name()})
	secret := plugin.ResourceIdentifier{Resource: "secrets", Namespace: "a", Name: "s"}
	return &plugin.AsyncBackupOutput{
		Item: in.Item, OperationID: key, InProcess: s.inside,
		AdditionalItems: []plugin.ResourceIdentifier{secret}, PostOperationItems: []plugin.ResourceIdentifier{secret, secret},
	}, nil
}

func (s *starter) Progress(_ context.Context, op plugin.Operation) (plugin.Progress, error) {
	p := plugin.Progress{State: plugin.Running, Description: formatInt(os.Getpid()), Unit: op.Job.Name()}
	switch op.ID {
	case "hang":
		<-make(chan struct{})
	case "exit":
		os.Exit(8)
	}
	if s.inside {
		s.mu.Lock()
		defer s.mu.Unlock()
		p.Done = s.cancels
		var known bool
		if p.State, known = s.began[op.ID]; !known {
			return p, fmt.Errorf("%q: %w", op.ID, plugin.ErrNoOperation)
		}
	}
	return p, nil
}

func (s *starter) Cancel(_ context.Context, op plugin.Operation, grace time.Duration) (bool, error) {
	switch op.ID {
	case "hang":
		<-make(chan struct{})
	case "refuse":
		return false, nil
	case "failing":
		return true, errors.New("cannot reach the array")
	}
	if s.inside {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.began[op.ID] = plugin.Cancelled
		s.cancels++
		return true, nil
	}
	return grace == time.Minute, nil
}

func (s *starter) Logs(ctx context.Context, op plugin.Operation, options plugin.LogOptions) iter.Seq2[plugin.LogLine, error] {
	return func(yield func(plugin.LogLine, error) bool) {
		line := plugin.LogLine{Time: time.Unix(1, 0).UTC(), Level: "WARN", Message: "one\ntwo", Fields: map[string]string{"since": options.Since.Format(time.RFC3339)}}
		switch op.ID {
		case "none":
			return
		case "unknown":
			yield(line, plugin.ErrNoOperation)
			return
		case "hang":
			<-make(chan struct{})
		case "long":
			line.Message = strings.Repeat("x", 2<<20)
		case "endless":
			line.Message = strings.Repeat("x", 1<<20-1000)
			for yield(line, nil) {
			}
			return
		}
		if yield(line, nil) && options.Follow {
			<-ctx.Done()
		}
	}
}

// restarter is a starter of restores.
type restarter struct{ starter }

func (r *restarter) Start(_ context.Context, in *plugin.AsyncRestoreInput) (*plugin.AsyncRestoreOutput, error) {
	in.Item.SetAnnotations(map[string]string{"restore": in.Restore.Name(), "stored": in.ItemFromBackup.GetName()})
	r.mu.Lock()
	r.began[in.IdempotencyKey] = plugin.Running
	r.mu.Unlock()
	return &plugin.AsyncRestoreOutput{
		Item: in.Item, OperationID: in.IdempotencyKey, InProcess: true, SkipRestore: in.IdempotencyKey == "skip",
		AdditionalItems: []plugin.ResourceIdentifier{{Resource: "secrets", Namespace: "a", Name: "s"}},
	}, nil
}
