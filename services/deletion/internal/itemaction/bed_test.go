package itemaction

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/extension/action"
	"github.com/holdfast-io/holdfast/pkg/objectstore"
	"github.com/holdfast-io/holdfast/pkg/objectstore/memstore"
	"github.com/holdfast-io/holdfast/pkg/spec/selection"
	"github.com/holdfast-io/holdfast/services/deletion/internal/backuptest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// bed is a bucket and the actions that are registered.
type bed struct {
	t       *testing.T
	store   *memstore.Store
	actions []action.DeleteItem
	closed  int
	confirm func() error
	r       *Runner

	mu    sync.Mutex
	diary []string
}

func newBed(t *testing.T) *bed {
	b := &bed{t: t, store: memstore.New()}
	b.r = &Runner{
		Open:     func(context.Context, *slog.Logger) Session { return b },
		Discover: func(context.Context) (selection.Resolver, error) { return cluster{}, nil },
		Log:      slog.New(slog.DiscardHandler),
	}
	return b
}

// DeleteItems and Close implement Session.
func (b *bed) DeleteItems() []action.DeleteItem { return b.actions }

func (b *bed) Close() { b.closed++ }

// cluster serves what most do.
type cluster struct{}

func (cluster) Resolve(name string) (gr schema.GroupResource, namespaced, ok bool) {
	switch name {
	case "po", "pods":
		return schema.GroupResource{Resource: "pods"}, true, true
	case "deploy", "deployments.apps":
		return schema.GroupResource{Group: "apps", Resource: "deployments"}, true, true
	}
	return gr, false, false
}

// fake is an action without a process.
type fake struct {
	bed      *bed
	name     string
	selector action.Selector
	unable   error // of AppliesTo
	// do decides about an object, "Pod a/x"; nil is success.
	do func(ctx context.Context, object string) error
}

func (f *fake) Name() string { return f.name }

func (f *fake) AppliesTo(context.Context) (action.Selector, error) { return f.selector, f.unable }

func (f *fake) Execute(ctx context.Context, object *action.Object, backup *action.Backup) error {
	id, err := object.Identity()
	if err != nil {
		return err
	}
	f.bed.noteLine(f.name + " " + id.String())
	if backup.Backup().Name != "b" || !strings.Contains(string(backup.JSON()), `"kind":"Backup","apiVersion":"velero.io/v1"`) {
		return errors.New("not the backup: " + string(backup.JSON()))
	}
	if f.do == nil {
		return nil
	}
	return f.do(ctx, id.String())
}

// registerAction adds an action.
func (b *bed) registerAction(name string, selector action.Selector, do func(ctx context.Context, object string) error) *fake {
	f := &fake{bed: b, name: name, selector: selector, do: do}
	b.actions = append(b.actions, f)
	return f
}

func (b *bed) noteLine(line string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.diary = append(b.diary, line)
}

// takeNotes returns what was noted since its last call.
func (b *bed) takeNotes() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	said := b.diary
	b.diary = nil
	return said
}

func backupNamed(name string) *velerov1.Backup {
	return &velerov1.Backup{ObjectMeta: metav1.ObjectMeta{Namespace: "velero", Name: name}}
}

// runAttempt makes one attempt.
func (b *bed) runAttempt(ctx context.Context) error {
	confirm := func(ctx context.Context) error {
		if b.confirm != nil {
			return b.confirm()
		}
		return ctx.Err()
	}
	return b.r.Run(ctx, Job{Backup: backupNamed("b"), Store: b.store, Confirm: confirm})
}

// inBothWays runs the test on a backup of ours and on one of Velero's.
func inBothWays(t *testing.T, items []backuptest.Item, test func(*bed)) {
	t.Run("manifest", func(t *testing.T) {
		b := newBed(t)
		backuptest.Write(t, b.store, "b", items...)
		test(b)
	})
	t.Run("tarball alone", func(t *testing.T) {
		b := newBed(t)
		backuptest.WriteVelero(t, b.store, "b", items)
		test(b)
	})
}

// podItems returns pods of namespace a.
func podItems(names ...string) []backuptest.Item {
	all := make([]backuptest.Item, 0, len(names))
	for _, name := range names {
		all = append(all, backuptest.Object("pods", "Pod", "a", name))
	}
	return all
}

// failForObject fails for one object.
func failForObject(object string, err error) func(context.Context, string) error {
	return func(_ context.Context, o string) error {
		if o == object {
			return err
		}
		return nil
	}
}

func errorMessages(t *testing.T, err error) []string {
	t.Helper()
	failed := new(FailedError)
	require.ErrorAs(t, err, &failed)
	return failed.Messages()
}

func linesContaining(all []string, part string) []string {
	return slices.DeleteFunc(slices.Clone(all), func(s string) bool { return !strings.Contains(s, part) })
}

func (b *bed) injectFault(op memstore.Op, part string, err error) {
	b.store.Inject(func(o memstore.Op, key string) error {
		if o == op && strings.Contains(key, part) {
			return err
		}
		return nil
	})
}

var errStore = errors.Join(objectstore.ErrAccess, errors.New("the bucket says no"))
