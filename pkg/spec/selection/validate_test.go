package selection

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestValidateLists(t *testing.T) {
	tests := map[string]struct {
		check    func(in, out []string) []error
		in, out  []string
		sentinel error // nil: valid
	}{
		"nothing":                     {check: ValidateIncludesExcludes},
		"star alone":                  {check: ValidateIncludesExcludes, in: []string{"*"}, out: []string{"pods"}},
		"star beside others":          {check: ValidateIncludesExcludes, in: []string{"*", "pods"}, sentinel: ErrIncludeAllMixed},
		"star excluded":               {check: ValidateIncludesExcludes, out: []string{"*"}, sentinel: ErrExcludeAll},
		"in both":                     {check: ValidateIncludesExcludes, in: []string{"pods", "jobs"}, out: []string{"jobs"}, sentinel: ErrIncludedExcluded},
		"scoped star excluded alone":  {check: ValidateScopedIncludesExcludes, out: []string{"*"}},
		"scoped star and more":        {check: ValidateScopedIncludesExcludes, out: []string{"*", "a"}, sentinel: ErrExcludeAll},
		"scoped star with includes":   {check: ValidateScopedIncludesExcludes, in: []string{"a"}, out: []string{"*"}, sentinel: ErrExcludeAll},
		"namespace names":             {check: ValidateNamespaces, in: []string{"a", "b-1"}, out: []string{"kube-*"}},
		"namespace empty":             {check: ValidateNamespaces, in: []string{""}},
		"namespace patterns":          {check: ValidateNamespaces, in: []string{"team-?", "app-[a-c]x", "*-prod"}},
		"namespace double star":       {check: ValidateNamespaces, in: []string{"a**"}, sentinel: ErrPattern},
		"namespace alternatives":      {check: ValidateNamespaces, in: []string{"a|b"}, sentinel: ErrPattern},
		"namespace braces":            {check: ValidateNamespaces, out: []string{"{a,b}"}, sentinel: ErrPattern},
		"namespace negation":          {check: ValidateNamespaces, in: []string{"!a"}, sentinel: ErrPattern},
		"namespace upper case":        {check: ValidateNamespaces, in: []string{"Prod"}, sentinel: ErrPattern},
		"namespace open class":        {check: ValidateNamespaces, in: []string{"a[b"}, sentinel: ErrPattern},
		"namespace escape":            {check: ValidateNamespaces, in: []string{`a\*`}, sentinel: ErrPattern},
		"namespace too long":          {check: ValidateNamespaces, in: []string{strings.Repeat("a", 64)}, sentinel: ErrPattern},
		"namespace star beside other": {check: ValidateNamespaces, in: []string{"*", "a"}, sentinel: ErrIncludeAllMixed},
		"namespace in both":           {check: ValidateNamespaces, in: []string{"a"}, out: []string{"a"}, sentinel: ErrIncludedExcluded},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			errs := tt.check(tt.in, tt.out)
			if tt.sentinel == nil {
				require.Empty(t, errs)
				return
			}
			require.NotEmpty(t, errs)
			require.ErrorIs(t, errs[0], tt.sentinel)
		})
	}
}

func TestSpecValidateNamesEveryProblem(t *testing.T) {
	yes := true
	spec := Spec{
		IncludedNamespaces: []string{"*", "a"}, ExcludedResources: []string{"*"}, IncludeClusterResources: &yes,
		IncludedClusterScopedResources: []string{"*", "nodes"}, ExcludedNamespaceScopedResources: []string{"*", "x"},
	}
	got := strings.Join(spec.Validate(), "\n")
	for _, want := range []string{PrefixResources, PrefixClusterResources, PrefixNamespaceResources, PrefixNamespaces,
		"cannot be used together"} {
		require.Contains(t, got, want)
	}
	require.Empty(t, (&Spec{IncludedNamespaces: []string{"*"}, ExcludedResources: []string{"*.longhorn.io", "[a-c]*"}}).Validate())
	for _, spec := range []Spec{{ExcludedResources: []string{"a[b"}}, {IncludedClusterScopedResources: []string{"a[b"}}, {ExcludedNamespaceScopedResources: []string{"a[b"}}} {
		require.Contains(t, strings.Join(spec.Validate(), "\n"), `"a[b": not a resource name or pattern`)
	}
}

func TestSelectors(t *testing.T) {
	one := &metav1.LabelSelector{MatchLabels: map[string]string{"app": "x"}}
	sel, err := (&Spec{OrLabelSelectors: []*metav1.LabelSelector{one, {MatchLabels: map[string]string{"app": "y"}}}}).Selectors()
	require.NoError(t, err)
	require.Len(t, sel, 2)

	sel, err = (&Spec{OrLabelSelectors: []*metav1.LabelSelector{one, {}}}).Selectors()
	require.NoError(t, err)
	require.Empty(t, sel, "an empty selector matches everything, so none is needed")

	_, err = (&Spec{LabelSelector: one, OrLabelSelectors: []*metav1.LabelSelector{one}}).Selectors()
	require.ErrorIs(t, err, ErrBothSelectors)
	_, err = (&Spec{OrLabelSelectors: []*metav1.LabelSelector{nil}}).Selectors()
	require.ErrorContains(t, err, "orLabelSelectors[0]: ")
	near := &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "a", Operator: "Near"}}}
	var bad *SelectorError
	_, err = (&Spec{LabelSelector: near}).Selectors()
	require.ErrorAs(t, err, &bad)
	require.Equal(t, "labelSelector", bad.Field)
	_, err = (&Spec{OrLabelSelectors: []*metav1.LabelSelector{one, near}}).Selectors()
	require.ErrorAs(t, err, &bad)
	require.Equal(t, "orLabelSelectors[1]", bad.Field)
}

func TestExpandNamespaces(t *testing.T) {
	live := []string{"default", "kube-system", "team-a", "team-b", "prod"}
	tests := map[string]struct{ in, out, want []string }{
		"nothing given":            {want: []string{"*"}},
		"star":                     {in: []string{"*"}, want: []string{"*"}},
		"empty entry":              {in: []string{""}, want: []string{}},
		"empty entry and a name":   {in: []string{"", "prod"}, want: []string{"prod"}},
		"empty entry excluded":     {out: []string{""}, want: []string{"*"}},
		"star with excludes":       {in: []string{"*"}, out: []string{"kube-*"}, want: []string{"default", "prod", "team-a", "team-b"}},
		"only excludes":            {out: []string{"prod"}, want: []string{"default", "kube-system", "team-a", "team-b"}},
		"excludes naming no one":   {out: []string{"gone"}, want: []string{"default", "kube-system", "prod", "team-a", "team-b"}},
		"pattern":                  {in: []string{"team-?"}, want: []string{"team-a", "team-b"}},
		"pattern and exclude":      {in: []string{"team-*"}, out: []string{"*-b"}, want: []string{"team-a"}},
		"pattern without a match":  {in: []string{"x*"}, want: []string{}},
		"a name that is not alive": {in: []string{"gone", "prod", "prod"}, want: []string{"gone", "prod"}},
		"an excluded dead name":    {in: []string{"gone"}, out: []string{"go*"}, want: []string{}},
		"class":                    {in: []string{"team-[b-z]"}, want: []string{"team-b"}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			require.Equal(t, tt.want, ExpandNamespaces(tt.in, tt.out, live))
		})
	}
}

func FuzzExpandNamespaces(f *testing.F) {
	f.Add("team-[a-c]*", "kube-?")
	f.Add("[", "\\")
	f.Fuzz(func(t *testing.T, in, out string) {
		valid := len(ValidateNamespaces([]string{in}, []string{out})) == 0
		got := ExpandNamespaces([]string{in}, []string{out}, []string{"team-a", "kube-x"})
		if valid && out != "" {
			require.NotContains(t, got, "*", "an exclude narrows, so the set is never open")
		}
	})
}
