package actionset_test

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/runtime/schema"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/extension/action"
	"github.com/holdfast-io/holdfast/services/backup-runner/internal/collect/actionset"
)

// fake is an action without a process.
type fake struct {
	name     string
	selector action.Selector
	do       func(o *action.Object) (action.BackupResult, error)
	calls    int
}

func (f *fake) Name() string                                       { return f.name }
func (f *fake) AppliesTo(context.Context) (action.Selector, error) { return f.selector, nil }

func (f *fake) Execute(_ context.Context, o *action.Object, _ *action.Backup) (action.BackupResult, error) {
	f.calls++
	return f.do(o)
}

// screening is a fake for which nothing is of concern.
type screening struct{ fake }

func (*screening) Concerns([]byte) bool { return false }

// annotatingAction returns an action that sets an annotation.
func annotatingAction(name, key, value string) *fake {
	return &fake{name: name, do: func(o *action.Object) (action.BackupResult, error) {
		u, err := o.Copy()
		if err != nil {
			return action.BackupResult{}, err
		}
		annotations := u.GetAnnotations()
		if annotations == nil {
			annotations = map[string]string{}
		}
		annotations[key] += value
		u.SetAnnotations(annotations)
		return action.BackupResult{Object: action.FromContent(u.Object)}, nil
	}}
}

func answeringAction(name string, r action.BackupResult, err error) *fake {
	return &fake{name: name, do: func(o *action.Object) (action.BackupResult, error) {
		if r.Object == nil && err == nil {
			r.Object = o
		}
		return r, err
	}}
}

type literal struct{}

func (literal) Resolve(name string) (schema.GroupResource, bool, bool) {
	return schema.ParseGroupResource(name), true, true
}

var podKind = schema.GroupVersionKind{Version: "v1", Kind: "Pod"}

const pod = `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"p","namespace":"a","labels":{"app":"x"}},"spec":{"big":9007199254740993}}`

func parseObject(t *testing.T, raw string) actionset.Object {
	t.Helper()
	o, err := actionset.ParseObject(podKind, []byte(raw))
	require.NoError(t, err)
	return o
}

// wanted is what an action asked for.
type wanted struct {
	by    string
	items []action.Item
	must  bool
}

func runChain(t *testing.T, raw string, actions ...action.BackupItem) (actionset.Result, []wanted, error) {
	t.Helper()
	bound, errs := action.Bind(t.Context(), actions, literal{})
	require.Empty(t, errs)
	backup, err := action.NewBackup(&velerov1.Backup{})
	require.NoError(t, err)
	c := &actionset.Chain{Resource: schema.GroupResource{Resource: "pods"}, Actions: bound, Backup: backup}
	var h host
	r, err := c.Run(t.Context(), parseObject(t, raw), &h)
	return r, h.asked, err
}

// host notes what actions ask for.
type host struct {
	asked   []wanted
	refusal error
}

func (*host) Execute(ctx context.Context, a action.BackupItem, o *action.Object, b *action.Backup) (action.BackupResult, error) {
	return actionset.Execute(ctx, a, o, b)
}

func (h *host) Additional(_ context.Context, by string, items []action.Item, must bool) error {
	h.asked = append(h.asked, wanted{by, items, must})
	return h.refusal
}

func TestEachActionSeesWhatTheOneBeforeLeft(t *testing.T) {
	third := annotatingAction("c", "k", "3")
	third.selector.Labels = "app=x"
	other := annotatingAction("d", "k", "4")
	other.selector.IncludedNamespaces = []string{"b"}
	expression := annotatingAction("e", "k", "5")
	expression.selector.Expression = `item.metadata.annotations.k == "123"`
	never := annotatingAction("f", "k", "6")
	never.selector.Expression = `has(item.spec.nosuch)`
	r, asked, err := runChain(t, pod, annotatingAction("a", "k", "1"), annotatingAction("b", "k", "2"), third, other, &screening{*annotatingAction("g", "k", "7")}, expression, never)
	require.NoError(t, err)
	require.Empty(t, asked)
	require.True(t, r.Changed)
	require.Equal(t, []string{"a", "b", "c", "e"}, r.Applied)
	require.Equal(t, "1235", r.Object.Meta.Annotations.Get("k"))
	require.Contains(t, string(r.Object.Raw), "9007199254740993")
}

func TestAnObjectLeftAloneIsStoredAsItWas(t *testing.T) {
	r, _, err := runChain(t, pod, answeringAction("a", action.BackupResult{}, nil))
	require.NoError(t, err)
	require.False(t, r.Changed)
	require.Equal(t, pod, string(r.Object.Raw))
	require.Equal(t, []string{"a"}, r.Applied)
}

func TestSkippingEndsTheChain(t *testing.T) {
	items := []action.Item{{GroupResource: schema.GroupResource{Resource: "secrets"}, Namespace: "a", Name: "s"}}
	skip := annotatingAction("b", velerov1.AnnotationSkipFromBackup, "")
	inner := skip.do
	skip.do = func(o *action.Object) (action.BackupResult, error) {
		r, err := inner(o)
		r.Additional = items
		return r, err
	}
	last := annotatingAction("c", "k", "1")
	r, asked, err := runChain(t, pod, answeringAction("a", action.BackupResult{Additional: items}, nil), skip, last)
	require.NoError(t, err)
	require.Equal(t, "b", r.LeftOut)
	require.Zero(t, last.calls)
	require.Equal(t, []wanted{{"a", items, false}}, asked, "what the action that skips asks for does not count")
}

func TestMustIncludeIsAMessageAndNotStored(t *testing.T) {
	items := []action.Item{{GroupResource: schema.GroupResource{Resource: "secrets"}, Namespace: "a", Name: "s"}}
	must := annotatingAction("a", velerov1.AnnotationMustIncludeAdditional, "true")
	inner := must.do
	must.do = func(o *action.Object) (action.BackupResult, error) {
		r, err := inner(o)
		r.Additional = items
		return r, err
	}
	r, asked, err := runChain(t, pod, must, answeringAction("b", action.BackupResult{Additional: items}, nil))
	require.NoError(t, err)
	require.Equal(t, []wanted{{"a", items, true}, {"b", items, false}}, asked, "it counts for the action that says it")
	require.NotContains(t, string(r.Object.Raw), "annotations")
}

// An operation that the host does not take is a problem, and the object is stored.
func TestAnOperationThatNothingWaitsForIsAProblem(t *testing.T) {
	r, _, err := runChain(t, pod, answeringAction("a.io/x", action.BackupResult{OperationID: "op-1"}, nil))
	require.NoError(t, err)
	require.Len(t, r.Problems, 1)
	require.ErrorContains(t, r.Problems[0], `action a.io/x: Execute: it began operation "op-1", which nothing waits for`)
}

func TestWhatFailsAnObject(t *testing.T) {
	broken := errors.New("no such volume")
	other := func(raw string) action.BackupResult { return action.BackupResult{Object: action.FromJSON([]byte(raw))} }
	odd := annotatingAction("a", "k", "1")
	odd.selector.Expression = "item.spec.nosuch == 1"
	for name, tc := range map[string]struct {
		first *fake
		want  string
	}{
		"its error": {answeringAction("a", action.BackupResult{}, broken), "no such volume"},
		"a panic": {&fake{name: "a", do: func(*action.Object) (action.BackupResult, error) {
			panic("broken")
		}}, "action a: Execute: panic: broken"},
		"nothing":      {&fake{name: "a", do: func(*action.Object) (action.BackupResult, error) { return action.BackupResult{}, nil }}, "action a: Execute: no object came back"},
		"another name": {answeringAction("a", other(`{"apiVersion":"v1","kind":"Pod","metadata":{"name":"q","namespace":"a"}}`), nil), "another object came back: Pod a/q"},
		"another kind": {answeringAction("a", other(`{"apiVersion":"v1","kind":"Secret","metadata":{"name":"p","namespace":"a"}}`), nil), "another object came back: Secret a/p"},
		// The identity of what comes back is all of it: an object of the same kind and name
		// elsewhere would be stored in its place.
		"another namespace": {answeringAction("a", other(`{"apiVersion":"v1","kind":"Pod","metadata":{"name":"p","namespace":"b"}}`), nil), "another object came back: Pod b/p"},
		"no namespace":      {answeringAction("a", other(`{"apiVersion":"v1","kind":"Pod","metadata":{"name":"p"}}`), nil), "another object came back"},
		"another group":     {answeringAction("a", other(`{"apiVersion":"x.io/v1","kind":"Pod","metadata":{"name":"p","namespace":"a"}}`), nil), "another object came back"},
		"no version":        {answeringAction("a", other(`{"kind":"Pod","metadata":{"name":"p","namespace":"a"}}`), nil), "another object came back"},
		"no object":         {answeringAction("a", other(`[]`), nil), "not a Kubernetes object"},
		"metadata":          {answeringAction("a", other(`{"apiVersion":"v1","kind":"Pod","metadata":{"name":"p","namespace":"a","labels":{"x":1}}}`), nil), "metadata.labels"},
		"its expression":    {odd, "action a: AppliesTo: "},
		"additional item":   {answeringAction("a", action.BackupResult{Additional: []action.Item{{Name: "x"}}}, nil), ""},
	} {
		t.Run(name, func(t *testing.T) {
			second := annotatingAction("b", "k", "2")
			bound, errs := action.Bind(t.Context(), []action.BackupItem{tc.first, second}, literal{})
			require.Empty(t, errs)
			c := &actionset.Chain{Actions: bound}
			refused := errors.New("refused")
			_, err := c.Run(t.Context(), parseObject(t, pod), &host{refusal: refused})
			if tc.want == "" {
				require.ErrorIs(t, err, refused)
			} else {
				require.ErrorContains(t, err, tc.want)
			}
			require.Zero(t, second.calls, "the chain ends")
		})
	}
}

func TestDecidingAllocatesNothing(t *testing.T) {
	a := annotatingAction("a", "k", "1")
	a.selector = action.Selector{IncludedNamespaces: []string{"b"}}
	b := &screening{*annotatingAction("b", "k", "1")}
	bound, errs := action.Bind(t.Context(), []action.BackupItem{a, b}, literal{})
	require.Empty(t, errs)
	o := parseObject(t, pod)
	require.Zero(t, testing.AllocsPerRun(100, func() {
		for i := range bound {
			if actionset.MatchesObject(&bound[i], o.Meta, o.Raw) {
				t.Error("it does not match")
			}
		}
	}))
}
