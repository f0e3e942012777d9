package operations

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"os"
	"path/filepath"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/holdfast-io/holdfast/pkg/plugin"
	"github.com/holdfast-io/holdfast/pkg/plugin/serve"
)

// The binaries and the actions in them. The one of Holdfast's protocol acts on ConfigMaps, the one
// of Velero's on Secrets.
const (
	ownBinary    = "own"
	vendorBinary = "vendor"
	ownAction    = "own.example.com/works"
	vendorAction = "vendor.example.com/works"
	// ownRestores and vendorRestores begin operations for objects that are restored.
	ownRestores    = "own.example.com/restores"
	vendorRestores = "vendor.example.com/restores"
)

func TestMain(m *testing.M) {
	if os.Getenv("VELERO_PLUGIN") != "" {
		if err := beAPlugin(filepath.Base(os.Args[0])); err != nil {
			_, _ = fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	goleak.VerifyTestMain(m)
}

// beAPlugin is the test binary as a plugin.
func beAPlugin(binary string) error {
	p, err := newProvider(binary)
	if err != nil {
		return err
	}
	if binary == vendorBinary {
		serveVendor(p)
		return nil
	}
	registry := &plugin.Registry{}
	registry.AsyncBackupItemAction(ownAction, []string{"configmaps"}, func(plugin.Env) (plugin.AsyncBackupItemAction, error) { return own{provider: p}, nil })
	registry.AsyncRestoreItemAction(ownRestores, []string{"configmaps"}, func(plugin.Env) (plugin.AsyncRestoreItemAction, error) {
		return ownRestore{own{provider: p}}, nil
	})
	lives := newInside(p.calls)
	registry.AsyncBackupItemAction(insideAction, []string{"serviceaccounts"}, func(plugin.Env) (plugin.AsyncBackupItemAction, error) { return lives, nil })
	return serve.Run(registry)
}

// own is the action of Holdfast's protocol.
type own struct {
	plugin.Everything
	*provider
}

// Start implements plugin.AsyncBackupItemAction.
func (a own) Start(ctx context.Context, in *plugin.AsyncBackupInput) (*plugin.AsyncBackupOutput, error) {
	w, err := a.startOperation(ctx, in.Item, orderKey, in.Backup.Name(), in.IdempotencyKey)
	if w == nil || err != nil {
		return nil, err
	}
	annotations := in.Item.GetAnnotations()
	annotations[group+"/work"] = w.Name
	in.Item.SetAnnotations(annotations)
	itself := []plugin.ResourceIdentifier{{Group: group, Resource: works, Namespace: w.Namespace, Name: w.Name}}
	return &plugin.AsyncBackupOutput{Item: in.Item, OperationID: w.workID(), AdditionalItems: itself, PostOperationItems: itself}, nil
}

// Progress implements plugin.Operations.
func (a own) Progress(ctx context.Context, op plugin.Operation) (plugin.Progress, error) {
	w, err := a.readProgress(ctx, op.ID)
	if err != nil {
		return plugin.Progress{}, knownError(err)
	}
	p := plugin.Progress{State: plugin.Running, Done: w.Status.Steps, Total: total, Unit: unit, Description: "working for " + w.Spec.Item, Started: w.startedAt()}
	switch {
	case w.Spec.Result == done:
		p.State = plugin.Succeeded
	case w.Spec.Result == failed:
		p.State, p.Error = plugin.Failed, w.Spec.Order.Fails
	case w.Spec.Result == cancelled:
		p.State = plugin.Cancelled
	case p.Started.IsZero():
		p.State = plugin.Pending
	}
	return p, nil
}

func knownError(err error) error {
	if errors.Is(err, errUnknown) {
		return fmt.Errorf("%w: %w", plugin.ErrNoOperation, err)
	}
	return err
}

// Cancel implements plugin.Operations.
func (a own) Cancel(ctx context.Context, op plugin.Operation, _ time.Duration) (bool, error) {
	accepted, err := a.cancelOperation(ctx, op.ID)
	return accepted, knownError(err)
}

// Logs implements plugin.Operations.
func (a own) Logs(ctx context.Context, op plugin.Operation, _ plugin.LogOptions) iter.Seq2[plugin.LogLine, error] {
	return func(yield func(plugin.LogLine, error) bool) {
		w, err := a.getWork(ctx, op.ID)
		if err != nil {
			yield(plugin.LogLine{}, knownError(err))
			return
		}
		began := w.CreationTimestamp.Time
		if yield(plugin.LogLine{Time: began, Level: "info", Message: "the work began", Fields: map[string]string{"item": w.Spec.Item}}, nil) && w.Spec.Result != "" {
			yield(plugin.LogLine{Time: began.Add(time.Second), Level: "info", Message: "the work is " + w.Spec.Result}, nil)
		}
	}
}
