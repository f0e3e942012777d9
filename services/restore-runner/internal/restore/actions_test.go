package restore_test

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/extension/action"
	"github.com/holdfast-io/holdfast/pkg/kube/kubetest"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/restore"
)

var (
	configMaps = schema.GroupResource{Resource: "configmaps"}
	secrets    = schema.GroupResource{Resource: "secrets"}
)

// fake is an action without a process. As it is it cannot be asked whether items are ready.
type fake struct {
	name     string
	selector action.Selector
	execute  func(o, stored *action.Object) (action.RestoreResult, error)

	mu   sync.Mutex
	seen []string
}

func (f *fake) Name() string { return f.name }

func (f *fake) AppliesTo(context.Context) (action.Selector, error) { return f.selector, nil }

func (f *fake) Execute(_ context.Context, o, stored *action.Object, _ *action.Restore) (action.RestoreResult, error) {
	id, err := o.Identity()
	if err != nil {
		return action.RestoreResult{}, err
	}
	f.mu.Lock()
	f.seen = append(f.seen, id.String())
	f.mu.Unlock()
	return f.execute(o, stored)
}

// timesCalled is how often the action was called for an object.
func (f *fake) timesCalled(id string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(slices.DeleteFunc(slices.Clone(f.seen), func(s string) bool { return s != id }))
}

// nothing resolves no short names.
type nothing struct{}

func (nothing) Resolve(string) (gr schema.GroupResource, namespaced, ok bool) {
	return gr, false, false
}

// withActions has a restore ask these actions.
func withActions[A action.RestoreItem](t testing.TB, actions ...A) func(*restore.Config) {
	t.Helper()
	all := make([]action.RestoreItem, len(actions))
	for i := range actions {
		all[i] = actions[i]
	}
	bound, errs := action.Bind(t.Context(), all, nothing{})
	require.Empty(t, errs)
	object, err := action.NewRestore(&velerov1.Restore{ObjectMeta: metav1.ObjectMeta{Name: "r"}})
	require.NoError(t, err)
	return func(c *restore.Config) { c.Actions, c.Object, c.ReadyTimeout = bound, object, time.Minute }
}

// changingAction is an action that changes objects.
func changingAction(name string, selector action.Selector, do func(u *unstructured.Unstructured, stored map[string]any)) *fake {
	return &fake{name: name, selector: selector, execute: func(o, stored *action.Object) (action.RestoreResult, error) {
		u, err := o.Copy()
		if err != nil {
			return action.RestoreResult{}, err
		}
		before, err := stored.Content()
		if err != nil {
			return action.RestoreResult{}, err
		}
		do(u, before)
		return action.RestoreResult{Object: action.FromContent(u.Object)}, nil
	}}
}

// additionalAction is an action that returns additional items for some objects, named as Identity does.
func additionalAction(name string, additional map[string][]action.Item) *fake {
	return &fake{name: name, execute: func(o, _ *action.Object) (action.RestoreResult, error) {
		id, err := o.Identity()
		return action.RestoreResult{Object: o, Additional: additional[id.String()]}, err
	}}
}

func configMap(namespace, name string) action.Item {
	return action.Item{GroupResource: configMaps, Namespace: namespace, Name: name}
}

func TestEachActionSeesWhatTheOneBeforeLeft(t *testing.T) {
	s, b := kubetest.Start(t), &backup{}
	b.addObject("configmaps", "v1", "ConfigMap", "a", "c", object{"status": object{"x": "y"}, "metadata": object{"labels": object{"keep": "it"}}}, ownerBy("v1", "Widget", "absent", false))
	b.addObject("secrets", "v1", "Secret", "a", "s", nil)
	var got []map[string]any
	first := changingAction("a.io/first", action.Selector{IncludedResources: []string{"configmaps"}, IncludedNamespaces: []string{"z"}, ExcludedNamespaces: []string{"a"}}, func(u *unstructured.Unstructured, stored map[string]any) {
		got = append(got, u.DeepCopy().Object, stored)
		u.SetLabels(map[string]string{"first": "yes", "velero.io/restore-name": "another's"})
		u.SetNamespace("elsewhere")
		u.SetUID("old-c")
		u.SetResourceVersion("9")
		u.SetOwnerReferences([]metav1.OwnerReference{{APIVersion: "v1", Kind: "Widget", Name: "absent", UID: "old-absent"}, {APIVersion: "v1", Kind: "Node", Name: "n", UID: "of-today"}})
		u.Object["status"] = object{"x": "z"}
	})
	second := changingAction("a.io/second", action.Selector{Labels: "first=yes"}, func(u *unstructured.Unstructured, _ map[string]any) {
		u.Object["data"] = map[string]any{"k": "v"}
	})
	never := changingAction("a.io/third", action.Selector{Labels: "keep"}, func(*unstructured.Unstructured, map[string]any) {})
	f := runRestore(t, s, b, velerov1.RestoreSpec{NamespaceMapping: map[string]string{"a": "z"}}, withActions(t, first, second, never))
	require.Empty(t, f.results.Errors.allMessages())
	require.Equal(t, []string{"ConfigMap a/c"}, first.seen, "chosen by the target namespace, called in that of the backup")
	require.Equal(t, []string{"ConfigMap elsewhere/c"}, second.seen)
	require.Empty(t, never.seen, "labels are those of the object as it is now")
	require.Equal(t, object{"name": "c", "namespace": "a", "labels": object{"keep": "it"}}, got[0]["metadata"])
	require.Nil(t, got[0]["status"])
	require.Equal(t, "old-c", got[1]["metadata"].(object)["uid"], "the second is as it was backed up")
	require.NotNil(t, got[1]["status"])

	c := s.Object("/api/v1/namespaces/z/configmaps/c")
	require.Equal(t, object{"k": "v"}, c["data"])
	require.Nil(t, c["status"])
	meta := kubetest.Meta(c)
	require.Equal(t, "z", meta["namespace"])
	require.Equal(t, object{"first": "yes", "velero.io/backup-name": "b", "velero.io/restore-name": "r"}, meta["labels"])
	require.Len(t, meta["ownerReferences"], 1, "a reference to an owner of the old cluster does not come back")
	require.Equal(t, "of-today", meta["ownerReferences"].([]any)[0].(object)["uid"])
	require.NotNil(t, s.Object("/api/v1/namespaces/z/secrets/s"))
}

func TestSkipEndsTheChain(t *testing.T) {
	s, b := kubetest.Start(t), &backup{}
	b.addObject("configmaps", "v1", "ConfigMap", "a", "c", nil)
	b.addObject("secrets", "v1", "Secret", "a", "asked", object{"metadata": object{"labels": object{"not": "selected"}}})
	skip := &fake{name: "a.io/skip", execute: func(*action.Object, *action.Object) (action.RestoreResult, error) {
		return action.RestoreResult{Skip: true, Additional: []action.Item{{GroupResource: secrets, Namespace: "a", Name: "asked"}}}, nil
	}}
	later := additionalAction("a.io/then", nil)
	f := runRestore(t, s, b, velerov1.RestoreSpec{LabelSelector: &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "not", Operator: "DoesNotExist"}}}}, withActions(t, skip, later))
	require.Empty(t, later.seen)
	require.Equal(t, map[string][]string{"v1/ConfigMap": {"a/c(skipped)"}}, f.list)
	require.Nil(t, s.Object("/api/v1/namespaces/a/secrets/asked"), "additional items of one that is left out do not count")
	require.Zero(t, f.recorder.Counts().Warnings+f.recorder.Counts().Errors)
}

func TestAnActionsFailureCostsItsObject(t *testing.T) {
	s, b := kubetest.Start(t), &backup{}
	for _, name := range []string{"fails", "renamed", "nameless", "secret", "group", "nil", "garbage", "operation", "fine"} {
		b.addObject("configmaps", "v1", "ConfigMap", "a", name, nil)
	}
	do := map[string]func(o *action.Object) (action.RestoreResult, error){
		"fails": func(*action.Object) (action.RestoreResult, error) {
			return action.RestoreResult{}, errors.New("plugin a.io/x: Execute of ConfigMap a/fails: no")
		},
		"renamed": func(*action.Object) (action.RestoreResult, error) {
			return action.RestoreResult{Object: action.FromJSON([]byte(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"fine"}}`))}, nil
		},
		"nameless": func(*action.Object) (action.RestoreResult, error) {
			return action.RestoreResult{Object: action.FromJSON([]byte(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"generateName":"x"}}`))}, nil
		},
		"secret": func(*action.Object) (action.RestoreResult, error) {
			return action.RestoreResult{Object: action.FromJSON([]byte(`{"apiVersion":"v1","kind":"Secret","metadata":{"name":"secret"}}`))}, nil
		},
		"group": func(*action.Object) (action.RestoreResult, error) { // a kind of that name in another group is another kind
			return action.RestoreResult{Object: action.FromJSON([]byte(`{"apiVersion":"example.com/v1","kind":"ConfigMap","metadata":{"name":"group"}}`))}, nil
		},
		"nil": func(*action.Object) (action.RestoreResult, error) { return action.RestoreResult{}, nil },
		"garbage": func(*action.Object) (action.RestoreResult, error) {
			return action.RestoreResult{Object: action.FromJSON([]byte("garbage"))}, nil
		},
		"operation": func(o *action.Object) (action.RestoreResult, error) {
			return action.RestoreResult{Object: o, OperationID: "op"}, nil
		},
	}
	x := &fake{name: "a.io/x", execute: func(o, _ *action.Object) (action.RestoreResult, error) {
		id, err := o.Identity()
		if f := do[id.Name]; f != nil && err == nil {
			return f(o)
		}
		return action.RestoreResult{Object: o}, err
	}}
	f := runRestore(t, s, b, velerov1.RestoreSpec{}, withActions(t, x))
	require.Equal(t, 7, f.recorder.Counts().Errors)
	require.Equal(t, []string{"a/fails(failed)", "a/fine(created)", "a/garbage(failed)", "a/group(failed)", "a/nameless(failed)", "a/nil(failed)", "a/operation(created)",
		"a/renamed(failed)"}, f.list["v1/ConfigMap"])
	for _, want := range []string{
		"configmaps a/fails: plugin a.io/x: Execute of ConfigMap a/fails: no", "a/renamed: actions gave it the place of another object of the restore, a/fine",
		`a/nameless: action a.io/x: Execute: renamed it to ""`, `a/group: action a.io/x: Execute: made it a ConfigMap of "example.com/v1", and it was a ConfigMap of "v1": the cluster does not serve the new kind`, "a/nil: action a.io/x: Execute: returned no object", "a/garbage: action a.io/x: Execute: not a Kubernetes object",
		`a/operation: action a.io/x: Execute began operation "op"`,
	} {
		require.Contains(t, f.results.Errors.allMessages(), want)
	}
	require.Equal(t, []string{"a/secret(created)"}, f.list["v1/Secret"])
}

// An action that gave an object another name was an error of the object, another namespace was ignored.
func TestAnActionMayMoveAnObject(t *testing.T) {
	mapped := velerov1.RestoreSpec{NamespaceMapping: map[string]string{"a": "x"}}
	for name, tt := range map[string]struct {
		namespace, name string // as the action returns it
		spec            velerov1.RestoreSpec
		path, warning   string
	}{
		"another name":                         {namespace: "a", name: "new", path: "a/configmaps/new"},
		"another namespace":                    {namespace: "b", name: "c", path: "b/configmaps/c"},
		"another name in a mapped namespace":   {namespace: "a", name: "new", spec: mapped, path: "x/configmaps/new"},
		"the mapped namespace":                 {namespace: "x", name: "c", spec: mapped, path: "x/configmaps/c"},
		"a namespace that is not restored to":  {namespace: "elsewhere", name: "c", path: "a/configmaps/c", warning: `actions put it into namespace "elsewhere", to which this restore restores nothing: it is restored to "a"`},
		"no namespace, which is that it is in": {name: "c", path: "a/configmaps/c"},
	} {
		t.Run(name, func(t *testing.T) {
			s, b := kubetest.Start(t), &backup{}
			b.addObject("configmaps", "v1", "ConfigMap", "a", "c", object{"data": object{"k": "v"}})
			b.addObject("secrets", "v1", "Secret", "b", "s", nil)
			x := changingAction("a.io/x", action.Selector{IncludedResources: []string{"configmaps"}}, func(u *unstructured.Unstructured, _ map[string]any) {
				u.SetNamespace(tt.namespace)
				u.SetName(tt.name)
			})
			after := changingAction("a.io/y", action.Selector{}, func(u *unstructured.Unstructured, _ map[string]any) { u.SetLabels(map[string]string{"after": "x"}) })
			for _, want := range []string{"created", "skipped"} {
				f := runRestore(t, s, b, tt.spec, withActions(t, x, after))
				require.Empty(t, f.results.Errors.allMessages())
				require.Equal(t, object{"k": "v"}, s.Object("/api/v1/namespaces/" + tt.path)["data"])
				require.Contains(t, f.list["v1/ConfigMap"][0], want, "the second restore finds it unchanged")
				if tt.warning == "" {
					require.Empty(t, f.results.Warnings.allMessages())
					continue
				}
				require.Equal(t, 1, strings.Count(f.results.Warnings.allMessages(), tt.warning))
			}
		})
	}
}

// A namespace on what has none means nothing.
func TestAnActionCannotMoveWhatHasNoNamespace(t *testing.T) {
	s, b := kubetest.Start(t), &backup{}
	s.Serve("storage.k8s.io/v1", "storageclasses", "StorageClass", false)
	b.addObject("storageclasses.storage.k8s.io", "storage.k8s.io/v1", "StorageClass", "", "fast", nil)
	b.addObject("secrets", "v1", "Secret", "b", "s", nil)
	x := changingAction("a.io/x", action.Selector{IncludedResources: []string{"storageclasses.storage.k8s.io"}}, func(u *unstructured.Unstructured, _ map[string]any) { u.SetNamespace("b") })
	f := runRestore(t, s, b, velerov1.RestoreSpec{}, withActions(t, x))
	require.Empty(t, f.results.Errors.allMessages())
	require.Equal(t, []string{"fast(created)"}, f.list["storage.k8s.io/v1/StorageClass"])
}

// Owners, hooks and takeovers find an object that an action moved.
func TestWhatAnActionMovedIsFoundAgain(t *testing.T) {
	n, b := newNode(t), &backup{}
	b.addPod("a", "db", object{postHook + "command": "x"})
	b.addObject("configmaps", "v1", "ConfigMap", "a", "owned", nil, ownerBy("v1", "Pod", "db", false))
	x := changingAction("a.io/x", action.Selector{IncludedResources: []string{"pods"}}, func(u *unstructured.Unstructured, _ map[string]any) { u.SetName("new") })
	var end atomic.Pointer[func()]
	n.look = func(path string, _ int) {
		if die := end.Load(); die != nil {
			(*die)()
			return
		}
		n.startContainers(path, "main")
	}
	f := runRestore(t, n.cluster, b, velerov1.RestoreSpec{}, withActions(t, x), n.setExec, func(config *restore.Config) {
		records := runFirstOwner(t, config, func(ctx context.Context, die func(), own *restore.Config) {
			end.Store(&die)
			require.ErrorIs(t, restore.Run(ctx, *own), context.Canceled)
		})
		end.Store(nil)
		replayRecords(t, config, records)
		require.Len(t, config.History.Moved, 1)
	})
	require.Empty(t, f.results.Errors.allMessages())
	owners := kubetest.Meta(n.cluster.Object("/api/v1/namespaces/a/configmaps/owned"))["ownerReferences"].([]any)
	require.Equal(t, "new", owners[0].(object)["name"])
	require.Equal(t, []string{"a/new main x"}, n.ranCommands())
	require.Nil(t, n.cluster.Object("/api/v1/namespaces/a/pods/db"))
}

func TestDefinitionsMeetActionsToo(t *testing.T) {
	s, b := kubetest.Start(t), &backup{}
	addDefinition(b)
	b.addObject("widgets.example.com", "example.com/v1", "Widget", "a", "w", nil)
	x := changingAction("a.io/x", action.Selector{IncludedResources: []string{"customresourcedefinitions.apiextensions.k8s.io"}}, func(u *unstructured.Unstructured, _ map[string]any) {
		u.SetAnnotations(map[string]string{"seen": "yes"})
	})
	more := &fake{name: "a.io/y", selector: x.selector, execute: func(o, _ *action.Object) (action.RestoreResult, error) {
		return action.RestoreResult{Object: o, Additional: []action.Item{configMap("a", "c")}}, nil
	}}
	f := runRestore(t, s, b, velerov1.RestoreSpec{}, withActions(t, x, more))
	require.Empty(t, f.results.Errors.allMessages())
	require.Contains(t, f.results.Warnings.allMessages(), "widgets.example.com: action a.io/y: additional items of a definition are not waited for")
	require.Equal(t, object{"seen": "yes"}, kubetest.Meta(s.Object("/apis/apiextensions.k8s.io/v1/customresourcedefinitions/widgets.example.com"))["annotations"])
	require.NotNil(t, s.Object("/apis/example.com/v1/namespaces/a/widgets/w"))
}

// creationOrder is where in the requests the creation of objects of a collection came.
func creationOrder(s *kubetest.Server, suffixes ...string) (out []int) {
	posts := s.Requests("POST ")
	for _, suffix := range suffixes {
		out = append(out, slices.IndexFunc(posts, func(r string) bool { return strings.HasSuffix(r, suffix) }))
	}
	return out
}

// selected selects what has no label "no".
var selected = velerov1.RestoreSpec{LabelSelector: &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "no", Operator: "DoesNotExist"}}}}

func TestAdditionalItemsComeFirstRecursivelyAndOnce(t *testing.T) {
	s, b := kubetest.Start(t), &backup{}
	no := object{"metadata": object{"labels": object{"no": "x"}}}
	b.addObject("configmaps", "v1", "ConfigMap", "a", "first", nil)
	b.addObject("configmaps", "v1", "ConfigMap", "a", "second", nil)
	b.addObject("secrets", "v1", "Secret", "a", "s", no)     // asked for by both
	b.addObject("services", "v1", "Service", "a", "svc", no) // by the secret
	b.addObject("pods", "v1", "Pod", "quiet", "p", no)       // in a namespace nothing else is restored to
	b.addObject("namespaces", "v1", "Namespace", "", "quiet", object{"metadata": object{"labels": object{"no": "x", "team": "y"}}})
	b.addObject("pods", "v1", "Pod", "a", "unwanted", no)
	x := additionalAction("a.io/x", map[string][]action.Item{
		"ConfigMap a/first":  {{GroupResource: secrets, Namespace: "a", Name: "s"}, configMap("a", "absent")},
		"ConfigMap a/second": {{GroupResource: secrets, Namespace: "a", Name: "s"}, {GroupResource: schema.GroupResource{Resource: "pods"}, Namespace: "quiet", Name: "p"}},
		"Secret a/s":         {{GroupResource: schema.GroupResource{Resource: "services"}, Namespace: "a", Name: "svc"}},
	})
	f := runRestore(t, s, b, selected, withActions(t, x))
	require.Empty(t, f.results.Errors.allMessages())
	require.Equal(t, map[string][]string{
		"v1/ConfigMap": {"a/first(created)", "a/second(created)"}, "v1/Secret": {"a/s(created)"}, "v1/Service": {"a/svc(created)"},
		"v1/Pod": {"quiet/p(created)"}, "v1/Namespace": {"quiet(created)"},
	}, f.list)
	require.Equal(t, 6, f.recorder.Counts().Total)
	require.Equal(t, "y", kubetest.Meta(s.Object("/api/v1/namespaces/quiet"))["labels"].(object)["team"])
	at := creationOrder(s, "/services", "/secrets", "/configmaps")
	require.True(t, slices.IsSorted(at), at)
	require.Equal(t, 1, x.timesCalled("ConfigMap a/first"), "an action is asked once, however long the object waits")
	require.Equal(t, 1, x.timesCalled("Secret a/s"))
	require.Equal(t, 1, f.recorder.Counts().Warnings)
	require.Contains(t, f.results.Warnings.allMessages(), "configmaps a/first: additional item configmaps a/absent, which action a.io/x asks for, is not in the backup")
}

func TestWhatComesBeforeAllActionsIsNotSaidToBeMissing(t *testing.T) {
	s, b := kubetest.Start(t), &backup{}
	no := object{"metadata": object{"labels": object{"no": "x"}}}
	b.addObject("configmaps", "v1", "ConfigMap", "a", "c", nil)
	b.addObject("namespaces", "v1", "Namespace", "", "empty", no)
	b.addObject("customresourcedefinitions.apiextensions.k8s.io", "apiextensions.k8s.io/v1", "CustomResourceDefinition", "", "widgets.example.com", no)
	x := additionalAction("a.io/x", map[string][]action.Item{"ConfigMap a/c": {
		{GroupResource: schema.GroupResource{Resource: "namespaces"}, Name: "empty"}, {GroupResource: schema.GroupResource{Resource: "namespaces"}, Name: "a"},
		{GroupResource: schema.GroupResource{Group: "apiextensions.k8s.io", Resource: "customresourcedefinitions"}, Name: "widgets.example.com"},
	}})
	f := runRestore(t, s, b, selected, withActions(t, x))
	require.Equal(t, map[string][]string{"v1/ConfigMap": {"a/c(created)"}}, f.list)
	for _, want := range []string{"namespaces empty", "customresourcedefinitions.apiextensions.k8s.io widgets.example.com"} {
		require.Contains(t, f.results.Warnings.allMessages(), "additional item "+want+", which action a.io/x asks for, is not in the backup or not selected: ")
	}
	require.Equal(t, 3, f.recorder.Counts().Warnings, "there is no object of namespace a")
}

func TestFiltersHoldForAdditionalItems(t *testing.T) {
	s, b := kubetest.Start(t), &backup{}
	b.addObject("configmaps", "v1", "ConfigMap", "a", "c", nil)
	b.addObject("secrets", "v1", "Secret", "a", "s", nil)
	x := additionalAction("a.io/x", map[string][]action.Item{"ConfigMap a/c": {{GroupResource: secrets, Namespace: "a", Name: "s"}}})
	f := runRestore(t, s, b, velerov1.RestoreSpec{ExcludedResources: []string{"secrets"}}, withActions(t, x))
	require.Equal(t, map[string][]string{"v1/ConfigMap": {"a/c(created)"}}, f.list)
	require.Zero(t, f.recorder.Counts().Warnings)
}

func TestAnAdditionalItemThatFailsDoesNotKeepTheObject(t *testing.T) {
	s, b := kubetest.Start(t), &backup{}
	b.addObject("configmaps", "v1", "ConfigMap", "a", "c", nil)
	b.addObject("secrets", "v1", "Secret", "a", "s", nil)
	s.Fail(func(r *http.Request, _ map[string]any) (int, bool) {
		if strings.HasSuffix(r.URL.Path, "/secrets") {
			return http.StatusUnprocessableEntity, false
		}
		return 0, false
	})
	x := additionalAction("a.io/x", map[string][]action.Item{"ConfigMap a/c": {{GroupResource: secrets, Namespace: "a", Name: "s"}}})
	f := runRestore(t, s, b, velerov1.RestoreSpec{}, withActions(t, x))
	require.Equal(t, map[string][]string{"v1/ConfigMap": {"a/c(created)"}, "v1/Secret": {"a/s(failed)"}}, f.list)
	require.Equal(t, 1, f.recorder.Counts().Errors)
}

func TestObjectsThatAskForEachOtherAreRestoredWithAWarning(t *testing.T) {
	s, b := kubetest.Start(t), &backup{}
	for _, name := range []string{"one", "two", "three", "self"} {
		b.addObject("configmaps", "v1", "ConfigMap", "a", name, nil)
	}
	b.addObject("serviceaccounts", "v1", "ServiceAccount", "a", "sa", nil)
	b.addObject("pods", "v1", "Pod", "a", "p", nil) // waits for the account anyway
	x := additionalAction("a.io/x", map[string][]action.Item{
		"ConfigMap a/one": {configMap("a", "two")}, "ConfigMap a/two": {configMap("a", "three")}, "ConfigMap a/three": {configMap("a", "one")},
		"ConfigMap a/self": {configMap("a", "self")}, "ServiceAccount a/sa": {{GroupResource: schema.GroupResource{Resource: "pods"}, Namespace: "a", Name: "p"}},
	})
	f := runRestore(t, s, b, velerov1.RestoreSpec{}, withActions(t, x))
	require.Empty(t, f.results.Errors.allMessages())
	require.Equal(t, 6, f.recorder.ByAction()["created"])
	require.Equal(t, 3, f.recorder.Counts().Warnings, f.results.Warnings.allMessages())
	require.Contains(t, f.results.Warnings.allMessages(), "serviceaccounts a/sa: additional item pods p, which action a.io/x asks for, waits for this object: restored before it")
	require.Contains(t, f.results.Warnings.allMessages(), "configmaps a/self: additional item configmaps self")
	require.True(t, slices.IsSorted(creationOrder(s, "/serviceaccounts", "/pods")))
}

// An owner that was not selected is restored only as an additional item, and a Job that was not
// selected makes no pods.
func TestOwnersInReserveAreNone(t *testing.T) {
	s, b := kubetest.Start(t), &backup{}
	no := object{"metadata": object{"labels": object{"no": "x"}}}
	b.addObject("jobs.batch", "batch/v1", "Job", "a", "job", no)
	b.addObject("pods", "v1", "Pod", "a", "p", nil, ownerBy("batch/v1", "Job", "job", true))
	b.addObject("configmaps", "v1", "ConfigMap", "a", "owner", no)
	b.addObject("configmaps", "v1", "ConfigMap", "a", "asked", no)
	b.addObject("secrets", "v1", "Secret", "a", "s", nil, ownerBy("v1", "ConfigMap", "owner", false))
	b.addObject("secrets", "v1", "Secret", "a", "t", nil, ownerBy("v1", "ConfigMap", "asked", false))
	x := additionalAction("a.io/x", map[string][]action.Item{"Secret a/t": {configMap("a", "asked")}})
	f := runRestore(t, s, b, selected, withActions(t, x))
	require.Equal(t, map[string][]string{"v1/Pod": {"a/p(created)"}, "v1/Secret": {"a/s(created)", "a/t(created)"}, "v1/ConfigMap": {"a/asked(created)"}}, f.list)
	require.Nil(t, kubetest.Meta(s.Object("/api/v1/namespaces/a/secrets/s"))["ownerReferences"])
	require.Equal(t, s.UID("/api/v1/namespaces/a/configmaps/asked"), kubetest.Meta(s.Object("/api/v1/namespaces/a/secrets/t"))["ownerReferences"].([]any)[0].(object)["uid"])
	require.Contains(t, f.results.Warnings.allMessages(), "owner reference to ConfigMap owner dropped: the owner is not part of the restore")
}

// A crash fails the calls of all objects under way; only the one that causes it is to blame.
func TestACrashCostsTheObjectThatCausesIt(t *testing.T) {
	s, b := kubetest.Start(t), &backup{}
	for _, name := range []string{"bad", "one", "two"} {
		b.addObject("configmaps", "v1", "ConfigMap", "a", name, nil)
	}
	crashed := errors.New("plugin process died")
	var under sync.WaitGroup
	under.Add(3)
	var first sync.Map
	x := &fake{name: "a.io/x", execute: func(o, _ *action.Object) (action.RestoreResult, error) {
		id, err := o.Identity()
		if _, again := first.LoadOrStore(id.Name, nil); !again {
			under.Done()
			under.Wait() // all three are under way when it dies
			return action.RestoreResult{}, crashed
		}
		if id.Name == "bad" {
			return action.RestoreResult{}, crashed
		}
		return action.RestoreResult{Object: o}, err
	}}
	f := runRestore(t, s, b, velerov1.RestoreSpec{}, withActions(t, x), func(c *restore.Config) { c.IsProcessCrash = func(err error) bool { return errors.Is(err, crashed) } })
	require.Equal(t, []string{"a/bad(failed)", "a/one(created)", "a/two(created)"}, f.list["v1/ConfigMap"])
	require.Equal(t, 3, x.timesCalled("ConfigMap a/bad"))
	require.Equal(t, 2, x.timesCalled("ConfigMap a/one"))
}
