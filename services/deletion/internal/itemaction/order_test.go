package itemaction

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/holdfast-io/holdfast/pkg/extension/action"
	"github.com/holdfast-io/holdfast/pkg/layout"
	"github.com/holdfast-io/holdfast/pkg/objectstore/memstore"
	"github.com/holdfast-io/holdfast/services/deletion/internal/backuptest"
)

var everything action.Selector

func TestNothingIsReadWithoutActions(t *testing.T) {
	b := newBed(t)
	backuptest.Write(t, b.store, "b", podItems("p")...)
	b.store.Inject(func(op memstore.Op, key string) error { return fmt.Errorf("%s of %s", op, key) })
	b.r.Discover = nil
	require.NoError(t, b.runAttempt(t.Context()))
	require.Equal(t, 1, b.closed)
}

func TestTheTarballIsNotReadForWhatNobodyWants(t *testing.T) {
	b := newBed(t)
	backuptest.Write(t, b.store, "b", podItems("p")...)
	b.registerAction("a.io/b", action.Selector{IncludedResources: []string{"secrets"}}, nil)
	b.injectFault(memstore.OpGet, layout.BackupTarball("b"), errStore)
	require.NoError(t, b.runAttempt(t.Context()))
	b.registerAction("a.io/c", action.Selector{IncludedResources: []string{"pods"}, Labels: "tier=db"}, nil)
	require.NoError(t, b.runAttempt(t.Context()), "labels are in the manifest")
	require.Empty(t, b.takeNotes())
}

func TestAMissingTarballIsNoError(t *testing.T) {
	b := newBed(t)
	b.registerAction("a.io/b", everything, nil).unable = errors.New("not asked")
	b.r.Unknown = func() []error { return []error{errors.New("plugin binary /x: cannot start")} }
	require.NoError(t, b.runAttempt(t.Context()))
	b.injectFault(memstore.OpStat, layout.BackupTarball("b"), errStore)
	require.ErrorIs(t, b.runAttempt(t.Context()), errStore, "but it must be known that it is missing")
}

func TestActionsSeeWhatTheyAskFor(t *testing.T) {
	labelled := backuptest.Object("pods", "Pod", "a", "labelled")
	labelled.Labels = map[string]string{"tier": "db"}
	scheduled := backuptest.Object("pods", "Pod", "a", "scheduled")
	scheduled.Spec = map[string]any{"nodeName": "n1"}
	deployment := backuptest.Item{Kind: schema.GroupVersionKind{Group: "apps", Version: "v1", Kind: "Deployment"}, Resource: "deployments", Namespace: "a", Name: "d"}
	widget := backuptest.Item{Kind: schema.GroupVersionKind{Group: "example.com", Version: "v2", Kind: "Widget"}, Resource: "widgets", Name: "w"}
	all := []backuptest.Item{labelled, scheduled, backuptest.Object("pods", "Pod", "other", "p"), deployment, widget}
	for name, tc := range map[string]struct {
		selector action.Selector
		want     []string
	}{
		"everything":         {everything, []string{"Deployment.apps a/d", "Pod a/labelled", "Pod a/scheduled", "Pod other/p", "Widget.example.com w"}},
		"a short name":       {action.Selector{IncludedResources: []string{"deploy"}}, []string{"Deployment.apps a/d"}},
		"all but a resource": {action.Selector{ExcludedResources: []string{"po"}}, []string{"Deployment.apps a/d", "Widget.example.com w"}},
		"a namespace":        {action.Selector{IncludedNamespaces: []string{"other"}}, []string{"Pod other/p"}},
		"labels":             {action.Selector{Labels: "tier=db"}, []string{"Pod a/labelled"}},
		"no such label":      {action.Selector{Labels: "!tier", IncludedResources: []string{"pods"}}, []string{"Pod a/scheduled", "Pod other/p"}},
		"an expression":      {action.Selector{Expression: "item.kind == 'Pod' && has(item.spec.nodeName)", IncludedNamespaces: []string{"a"}, Labels: "!tier", Touches: []string{"pods"}}, []string{"Pod a/scheduled"}},
		"declared resources": {action.Selector{Touches: []string{"po"}}, []string{"Pod a/labelled", "Pod a/scheduled", "Pod other/p"}},
	} {
		t.Run(name, func(t *testing.T) {
			inBothWays(t, all, func(b *bed) {
				var seen []string
				b.registerAction("a.io/b", tc.selector, func(_ context.Context, object string) error { seen = append(seen, object); return nil })
				require.NoError(b.t, b.runAttempt(b.t.Context()))
				require.ElementsMatch(b.t, tc.want, seen)
			})
		})
	}
}

// What the cluster does not serve any more is known by the names it has in the backup.
func TestNamesOfRemovedDefinitionsAreResolved(t *testing.T) {
	widget := backuptest.Item{Kind: schema.GroupVersionKind{Group: "example.com", Version: "v2", Kind: "Widget"}, Resource: "widgets", Name: "w"}
	for _, name := range []string{"widgets", "Widget", "widgets.example.com"} {
		b := newBed(t)
		backuptest.Write(t, b.store, "b", widget)
		b.registerAction("a.io/b", action.Selector{IncludedResources: []string{name}}, nil)
		require.NoError(t, b.runAttempt(t.Context()))
		require.Equal(t, []string{"a.io/b Widget.example.com w"}, b.takeNotes(), name)
	}
}

func TestActionsGetTheItemAsItIsStored(t *testing.T) {
	stored := backuptest.Object("pods", "Pod", "a", "p")
	stored.Spec = map[string]any{"big": int64(9007199254740993)}
	inBothWays(t, []backuptest.Item{stored}, func(b *bed) {
		b.actions = []action.DeleteItem{&looking{want: string(stored.Body())}, &looking{name: "second", want: string(stored.Body())}}
		require.NoError(b.t, b.runAttempt(b.t.Context()))
	})
}

// looking compares objects, and changes a copy of them as plugins do.
type looking struct{ name, want string }

func (l *looking) Name() string { return "a.io/look" + l.name }

func (*looking) AppliesTo(context.Context) (action.Selector, error) { return action.Selector{}, nil }

func (l *looking) Execute(_ context.Context, object *action.Object, _ *action.Backup) error {
	got, err := object.JSON()
	if err != nil || string(got) != l.want {
		return fmt.Errorf("got %s: %w", got, err)
	}
	changed, err := object.Copy()
	if err == nil {
		changed.SetName("changed")
	}
	return err
}

// A tarball of Velero's holds further copies of objects: in the preferred version, and in others
// with its feature for that.
func TestAnItemIsShownOnce(t *testing.T) {
	b := newBed(t)
	p := podItems("p")
	backuptest.WriteVelero(t, b.store, "b", p, [2]string{"resources/pods/v1beta1/namespaces/a/p.json", string(p[0].Body())})
	b.registerAction("a.io/b", everything, nil)
	require.NoError(t, b.runAttempt(t.Context()))
	require.Equal(t, []string{"a.io/b Pod a/p"}, b.takeNotes())
}

func TestManyItemsAreShownOnceEach(t *testing.T) {
	inBothWays(t, backuptest.Objects("pods", "Pod", "a", 2*batchItems+1), func(b *bed) {
		b.registerAction("a.io/b", everything, nil)
		require.NoError(b.t, b.runAttempt(b.t.Context()))
		said := b.takeNotes()
		require.Len(b.t, said, 2*batchItems+1)
		for i, line := range said {
			require.Equal(b.t, fmt.Sprintf("a.io/b Pod a/o-%06d", i), line)
		}
	})
}

func TestNothingIsShownWhileAnActionDoesNotSayWhatItWants(t *testing.T) {
	for name, change := range map[string]func(*bed, *fake){
		"an error":         func(_ *bed, f *fake) { f.unable = errors.New("plugin a.io/x: AppliesTo: gone") },
		"a bad selector":   func(_ *bed, f *fake) { f.selector.Labels = "==" },
		"a bad expression": func(_ *bed, f *fake) { f.selector.Expression = "item." },
		"an unknown binary": func(b *bed, _ *fake) {
			b.r.Unknown = func() []error { return []error{errors.New("plugin binary /plugins/a.io/x: exec format error")} }
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBed(t)
			backuptest.Write(t, b.store, "b", podItems("p")...)
			change(b, b.registerAction("a.io/x", everything, nil))
			b.registerAction("b.io/a", everything, nil)
			texts := errorMessages(t, b.runAttempt(t.Context()))
			require.Len(t, texts, 1)
			require.Contains(t, texts[0], "a.io/x")
			require.Empty(t, b.takeNotes())
		})
	}
}
