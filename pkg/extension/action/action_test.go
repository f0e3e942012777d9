package action_test

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"

	"github.com/holdfast-io/holdfast/pkg/extension/action"
)

var (
	pods        = schema.GroupResource{Resource: "pods"}
	deployments = schema.GroupResource{Group: "apps", Resource: "deployments"}
	volumes     = schema.GroupResource{Resource: "persistentvolumes"}
)

// resolver resolves resource names as a cluster would.
type resolver map[string]schema.GroupResource

func (r resolver) Resolve(name string) (schema.GroupResource, bool, bool) {
	gr, ok := r[name]
	return gr, gr != volumes, ok
}

var cluster = resolver{"pods": pods, "po": pods, "deploy": deployments, "deployments.apps": deployments, "pv": volumes}

func TestMatcherDecidesAsVeleroDoes(t *testing.T) {
	labelled := labels.Set{"tier": "db"}
	for name, tc := range map[string]struct {
		selector  action.Selector
		resource  schema.GroupResource
		namespace string
		labels    labels.Labels
		want      bool
	}{
		"nothing asked is everything":                       {action.Selector{}, pods, "a", nil, true},
		"nothing asked takes cluster-scoped ones":           {action.Selector{}, volumes, "", nil, true},
		"a short name":                                      {action.Selector{IncludedResources: []string{"po"}}, pods, "a", nil, true},
		"a pattern":                                         {action.Selector{IncludedResources: []string{"*.apps"}}, deployments, "a", nil, true},
		"a pattern of others":                               {action.Selector{IncludedResources: []string{"*.apps"}}, pods, "a", nil, false},
		"excluded by a pattern":                             {action.Selector{ExcludedResources: []string{"po?s"}}, pods, "a", nil, false},
		"another resource":                                  {action.Selector{IncludedResources: []string{"po"}}, deployments, "a", nil, false},
		"an unknown name stays literal":                     {action.Selector{IncludedResources: []string{"things.example.com"}}, schema.GroupResource{Group: "example.com", Resource: "things"}, "a", nil, true},
		"excluded beats included":                           {action.Selector{IncludedResources: []string{"*"}, ExcludedResources: []string{"deploy"}}, deployments, "a", nil, false},
		"an empty entry is none":                            {action.Selector{IncludedResources: []string{""}}, pods, "a", nil, true},
		"in the namespace":                                  {action.Selector{IncludedNamespaces: []string{"a"}}, pods, "a", nil, true},
		"in another":                                        {action.Selector{IncludedNamespaces: []string{"a"}}, pods, "b", nil, false},
		"by pattern":                                        {action.Selector{IncludedNamespaces: []string{"team-*"}}, pods, "team-x", nil, true},
		"excluded namespace":                                {action.Selector{ExcludedNamespaces: []string{"kube-*"}}, pods, "kube-system", nil, false},
		"cluster-scoped, namespaces named":                  {action.Selector{IncludedNamespaces: []string{"a"}}, volumes, "", nil, false},
		"cluster-scoped, a namespace excluded":              {action.Selector{ExcludedNamespaces: []string{"a"}}, volumes, "", nil, false},
		"cluster-scoped, every namespace asked for by star": {action.Selector{IncludedNamespaces: []string{"*"}}, volumes, "", nil, true},
		"labels match":                                      {action.Selector{Labels: "tier in (db)"}, pods, "a", labelled, true},
		"labels differ":                                     {action.Selector{Labels: "tier=web"}, pods, "a", labelled, false},
		"no labels":                                         {action.Selector{Labels: "!tier"}, pods, "a", nil, true},
	} {
		t.Run(name, func(t *testing.T) {
			m, err := tc.selector.Compile(cluster)
			require.NoError(t, err)
			require.Equal(t, tc.want, m.Matches(tc.resource, tc.namespace, tc.labels))
		})
	}
}

func TestMatcherAllocatesNothing(t *testing.T) {
	m, err := action.Selector{IncludedResources: []string{"po"}, IncludedNamespaces: []string{"a"}}.Compile(cluster)
	require.NoError(t, err)
	require.Zero(t, testing.AllocsPerRun(100, func() { m.Matches(pods, "a", nil); m.Matches(deployments, "b", nil) }))
}

func TestSelectorErrorsNameTheField(t *testing.T) {
	for field, selector := range map[string]action.Selector{
		"selector":                             {Labels: "=="},
		"includedNamespaces":                   {IncludedNamespaces: []string{"a{b}"}},
		"excludedNamespaces":                   {ExcludedNamespaces: []string{"[x"}},
		"includedResources, excludedResources": {ExcludedResources: []string{"[x"}},
	} {
		_, err := selector.Compile(cluster)
		require.ErrorContains(t, err, field+": ")
	}
}

func TestObjectConvertsOnceAndKeepsIntegers(t *testing.T) {
	o := action.FromJSON([]byte(`{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"x","namespace":"a"},"spec":{"big":9007199254740993}}`))
	id, err := o.Identity()
	require.NoError(t, err)
	require.Equal(t, "Deployment.apps a/x", id.String())

	copied, err := o.Copy()
	require.NoError(t, err)
	copied.SetLabels(map[string]string{"k": "v"})
	content, err := o.Content()
	require.NoError(t, err)
	require.NotContains(t, content["metadata"], "labels", "the original must not change")

	changed := action.FromContent(copied.Object)
	raw, err := changed.JSON()
	require.NoError(t, err)
	require.JSONEq(t, `{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"x","namespace":"a","labels":{"k":"v"}},"spec":{"big":9007199254740993}}`, string(raw))
	require.Contains(t, string(raw), "9007199254740993")
	again, err := changed.Identity()
	require.NoError(t, err)
	require.Equal(t, id, again)
}

func TestWhatIsNoObjectIsAnError(t *testing.T) {
	for _, text := range []string{"", "null", "[]", `"x"`, `{"metadata":{"name":1}}`, `{} {}`, `{"a":`, "\xff"} {
		_, err := action.FromJSON([]byte(text)).Identity()
		require.ErrorIs(t, err, action.ErrObject, text)
	}
	for _, text := range []string{"", "null", "[]", `{} {}`} {
		_, err := action.FromJSON([]byte(text)).Content()
		require.ErrorIs(t, err, action.ErrObject, text)
	}
}

// fake is an action without a process.
type fake struct {
	name     string
	selector action.Selector
	err      error
	asked    int
}

func (f *fake) Name() string { return f.name }

func (f *fake) AppliesTo(context.Context) (action.Selector, error) {
	f.asked++
	return f.selector, f.err
}

func TestBindAsksOnceAndLeavesOutWhatDoesNotAnswer(t *testing.T) {
	gone := errors.New("action b.io/x: AppliesTo: gone")
	all := []*fake{{name: "a.io/x"}, {name: "b.io/x", err: gone}, {name: "c.io/x", selector: action.Selector{Labels: "=="}}, {name: "d.io/x"}}
	bound, errs := action.Bind(t.Context(), all, cluster)
	require.Len(t, bound, 2)
	require.Equal(t, "a.io/x", bound[0].Action.Name())
	require.Equal(t, "d.io/x", bound[1].Action.Name())
	require.Len(t, errs, 2)
	require.ErrorIs(t, errs[0], gone)
	require.ErrorContains(t, errs[1], "c.io/x: AppliesTo: selector")
	for _, a := range all {
		require.Equal(t, 1, a.asked)
	}
}

func TestJobsAreEncodedOnce(t *testing.T) {
	b, err := action.NewBackup(&velerov1.Backup{})
	require.NoError(t, err)
	first := b.JSON()
	require.Same(t, &first[0], &b.JSON()[0])
	require.NotNil(t, b.Backup())
	r, err := action.NewRestore(&velerov1.Restore{})
	require.NoError(t, err)
	require.Contains(t, string(r.JSON()), `"spec"`)
	require.NotNil(t, r.Restore())
}
