package chart_test

import (
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	authzv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-io/holdfast/e2e/harness/chart"
	"github.com/holdfast-io/holdfast/e2e/harness/testbed"
	"github.com/holdfast-io/holdfast/pkg/apis/crds"
	"github.com/holdfast-io/holdfast/pkg/kube"
	"github.com/holdfast-io/holdfast/pkg/service/rights"
)

// The name of an account without roles.
const nobody = "nobody"

// isAllowedToAll reports whether the API server's own roles allow a request to every account.
func isAllowedToAll(r chart.Request) bool {
	rules := []rbacv1.PolicyRule{
		{APIGroups: []string{"authorization.k8s.io"}, Resources: []string{"selfsubjectaccessreviews", "selfsubjectrulesreviews"}, Verbs: []string{"create"}},
		{APIGroups: []string{"authentication.k8s.io"}, Resources: []string{"selfsubjectreviews"}, Verbs: []string{"create"}},
		{NonResourceURLs: []string{"/api", "/apis", "/healthz", "/livez", "/openapi/*", "/readyz", "/version", "/.well-known/openid-configuration", "/openid/v1/jwks"}, Verbs: []string{"get"}},
	}
	return slices.ContainsFunc(rules, func(rule rbacv1.PolicyRule) bool { return r.Matches(&rule) })
}

// tableAllows reports whether a table has a request.
func tableAllows(table rights.Rules, r chart.Request) bool {
	matches := func(rule rbacv1.PolicyRule) bool { return r.Matches(&rule) }
	return isAllowedToAll(r) || r.Namespace == namespace && slices.ContainsFunc(table.Namespaced, matches) || slices.ContainsFunc(table.Cluster, matches)
}

// tableDifferences returns what an account may do although the table does not have it, and what it may not
// although it has.
func tableDifferences(table rights.Rules, answers map[chart.Request]bool) (more, less []chart.Request) {
	for r, may := range answers {
		switch want := tableAllows(table, r); {
		case may && !want:
			more = append(more, r)
		case !may && want:
			less = append(less, r)
		}
	}
	return more, less
}

// TestAccountsMayDoWhatTheTableHasAndNoMore asks the API server about every account of the chart, for
// every verb on every resource, and has each make requests that must be refused.
func TestAccountsMayDoWhatTheTableHasAndNoMore(t *testing.T) {
	cluster := testbed.StartT(t)
	require.NoError(t, crds.Install(t.Context(), cluster.RestConfig()))
	c, err := client.New(cluster.RestConfig(), client.Options{Scheme: kube.Scheme()})
	require.NoError(t, err)
	for _, name := range []string{namespace, other} {
		require.NoError(t, c.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}))
	}
	chart.Identities(t, cluster, c, namespace, everything...)
	config := cluster.RestConfig()
	config.ContentType = "application/vnd.kubernetes.protobuf"
	reviews, err := kubernetes.NewForConfig(config)
	require.NoError(t, err)
	asked := allQuestions(t, reviews.Discovery())
	began := time.Now()
	answers := map[string]map[chart.Request]bool{}
	for _, service := range append(rights.Services(), nobody) {
		answers[service] = askAuthorizer(t, reviews, service, asked)
		more, less := tableDifferences(rights.RulesOf(service, allOptions), answers[service])
		require.Empty(t, more, "%s may do more than the table has", service)
		require.Empty(t, less, "%s may do less than the table has", service)
	}
	t.Logf("%d questions about each of %d accounts in %.1f s", len(asked), len(answers), time.Since(began).Seconds())
	t.Run("a table that differs is found", func(t *testing.T) { tablesThatDiffer(t, answers) })
	t.Run("requests", func(t *testing.T) { requestsAreRefused(t, cluster, servedKinds(t, reviews.Discovery())) })
}

// askAuthorizer asks the API server's authorizer about an account.
func askAuthorizer(t *testing.T, reviews kubernetes.Interface, service string, asked []chart.Request) map[chart.Request]bool {
	t.Helper()
	answers := map[chart.Request]bool{}
	var mu sync.Mutex
	inParallel(asked, func(r chart.Request) {
		review := &authzv1.SubjectAccessReview{Spec: authzv1.SubjectAccessReviewSpec{User: chart.User(namespace, service), Groups: chart.Groups(namespace)}}
		if r.Path != "" {
			review.Spec.NonResourceAttributes = &authzv1.NonResourceAttributes{Path: r.Path, Verb: r.Verb}
		} else {
			review.Spec.ResourceAttributes = &authzv1.ResourceAttributes{
				Namespace: r.Namespace, Verb: r.Verb, Group: r.Group, Resource: r.Resource, Subresource: r.Subresource, Name: r.Name,
			}
		}
		answer, err := reviews.AuthorizationV1().SubjectAccessReviews().Create(t.Context(), review, metav1.CreateOptions{})
		mu.Lock()
		defer mu.Unlock()
		if err != nil {
			t.Errorf("%s: %v", r, err)
			return
		}
		answers[r] = answer.Status.Allowed
	})
	require.Len(t, answers, len(asked))
	return answers
}

// inParallel calls do for each request, twice as many at once as there are processors.
func inParallel(all []chart.Request, do func(chart.Request)) {
	next := make(chan chart.Request)
	var working sync.WaitGroup
	for range 2 * runtime.GOMAXPROCS(0) {
		working.Go(func() {
			for r := range next {
				do(r)
			}
		})
	}
	for _, r := range all {
		next <- r
	}
	close(next)
	working.Wait()
}

// tablesThatDiffer compares the answers with tables that lack one verb of one rule, or have one more.
func tablesThatDiffer(t *testing.T, answers map[string]map[chart.Request]bool) {
	for _, service := range rights.Services() {
		table := rights.RulesOf(service, allOptions)
		for place, rules := range map[string][]rbacv1.PolicyRule{"namespace": table.Namespaced, "cluster": table.Cluster} {
			for i := range rules {
				for j, verb := range rules[i].Verbs {
					changed := slices.Clone(rules)
					changed[i].Verbs = slices.Delete(slices.Clone(rules[i].Verbs), j, j+1)
					without := rights.Rules{Namespaced: changed, Cluster: table.Cluster}
					if place == "cluster" {
						without = rights.Rules{Namespaced: table.Namespaced, Cluster: changed}
					}
					more, less := tableDifferences(without, answers[service])
					require.Empty(t, less)
					require.Equal(t, !isCovered(without, &rules[i], verb, place), len(more) > 0, "%s without %s of %v %v in the %s", service, verb, rules[i].Resources, rules[i].NonResourceURLs, place)
				}
			}
		}
		table.Namespaced = append(table.Namespaced, rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"secrets"}, Verbs: []string{"deletecollection"}})
		more, less := tableDifferences(table, answers[service])
		require.Empty(t, more)
		require.Len(t, less, 1, service)
	}
}

// isCovered reports whether a table still allows all that one verb of a rule did.
func isCovered(table rights.Rules, rule *rbacv1.PolicyRule, verb, place string) bool {
	where := map[string]string{"namespace": namespace}[place]
	for _, q := range (rights.Rules{Namespaced: []rbacv1.PolicyRule{{APIGroups: rule.APIGroups, Resources: rule.Resources, ResourceNames: rule.ResourceNames, NonResourceURLs: rule.NonResourceURLs, Verbs: []string{verb}}}}).Requests(where) {
		r := chart.Request{Verb: verb}
		if q.Path != nil {
			r.Path = strings.TrimSuffix(q.Path.Path, "*") + "Method"
		} else {
			r.Group, r.Resource, r.Subresource, r.Namespace, r.Name = q.Resource.Group, q.Resource.Resource, q.Resource.Subresource, where, q.Resource.Name
		}
		if !tableAllows(table, r) {
			return false
		}
	}
	return true
}
