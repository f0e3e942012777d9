package doctor

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"golang.org/x/sync/errgroup"
	appsv1 "k8s.io/api/apps/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/holdfast-io/holdfast/pkg/service"
	"github.com/holdfast-io/holdfast/pkg/service/rights"
)

const (
	// reviewsAtOnce is how many reviews are requested together, namedAtMost how many missing rights
	// a message names.
	reviewsAtOnce = 8
	namedAtMost   = 8

	// hooksOf is the service that runs the hooks of backups.
	hooksOf = "backup-runner"
)

// checkRights reviews what the services' accounts may do and what the caller may. Where the chart is not
// installed the caller is reviewed as a service: `holdfast up` has its user's rights.
func (e *examination) checkRights(ctx context.Context, n *checkNotes) {
	if e.unread != nil {
		n.addSkipped("services", fmt.Sprintf("their accounts are not known: %v", e.unread), "run this as someone who may list deployments in namespace "+e.Namespace)
	}
	for _, name := range rights.Services() {
		d := e.deployments[name]
		switch {
		case d != nil:
			e.accountRights(ctx, n, name, d)
		case !e.runsElsewhere():
			options := rights.Options{CSI: e.usesCSI(), Hooks: true}
			e.reviewRights(ctx, n, name+" as you", rights.RulesOf(name, options).Requests(e.Namespace), nil,
				"run `holdfast up` with an account that has these rights; docs/rights.md says what "+name+" needs them for")
		}
	}
	e.callerRights(ctx, n)
}

// accountRights reviews the account of a Deployment.
func (e *examination) accountRights(ctx context.Context, n *checkNotes, name string, d *appsv1.Deployment) {
	options := rights.Options{
		CSI: slices.Contains(splitFlag(d, "features"), service.FeatureCSI), Reviews: slices.Contains(splitFlag(d, "auth"), service.AuthKubernetes),
	}
	user := "system:serviceaccount:" + e.Namespace + ":" + serviceAccount(d)
	spec := &authorizationv1.SubjectAccessReviewSpec{
		User: user, Groups: []string{"system:serviceaccounts", "system:serviceaccounts:" + e.Namespace, "system:authenticated"},
	}
	e.reviewRights(ctx, n, name, rights.RulesOf(name, options).Requests(e.Namespace), spec,
		fmt.Sprintf("bind these rights to %s: helm upgrade with rbac.create: true does; docs/rights.md says what %s needs them for", user, name))
	if name == hooksOf {
		e.hookRights(ctx, n, spec)
	}
}

// hookRights reviews what hooks need, which an installation may have turned off.
func (e *examination) hookRights(ctx context.Context, n *checkNotes, spec *authorizationv1.SubjectAccessReviewSpec) {
	refused, err := e.refusedRequests(ctx, []rights.Request{
		{Resource: &authorizationv1.ResourceAttributes{Verb: "create", Resource: "pods", Subresource: "exec"}},
		{Resource: &authorizationv1.ResourceAttributes{Verb: "get", Resource: "pods", Subresource: "exec"}},
	}, spec)
	if err == nil && len(refused) > 0 {
		n.addWarning(hooksOf, "may not "+joinLimited(refused)+": backups with hooks have errors", "set hooks.enabled: true in the chart's values, if backups are to run hooks")
	}
}

// callerRights reviews the rights that the commands of this program need.
func (e *examination) callerRights(ctx context.Context, n *checkNotes) {
	var needed []rights.Request
	for _, each := range []struct{ resource, verbs string }{
		{"backups", "get list watch create patch"}, {"restores", "get list watch create patch delete"}, {"backupstoragelocations", "get list"},
		{"downloadrequests", "get create"}, {"serverstatusrequests", "get create"}, {"deletebackuprequests", "list create"},
	} {
		for verb := range strings.FieldsSeq(each.verbs) {
			needed = append(needed, rights.Request{Resource: &authorizationv1.ResourceAttributes{
				Namespace: e.Namespace, Group: "velero.io", Resource: each.resource, Verb: verb,
			}})
		}
	}
	refused, err := e.refusedRequests(ctx, needed, nil)
	switch {
	case err != nil:
		n.addSkipped("you", err.Error(), "make the API server answer")
	case len(refused) > 0:
		n.addWarning("you", "you may not "+joinLimited(refused)+": some commands are refused", "have ClusterRole holdfast-admin, or -operator, bound to you in namespace "+e.Namespace)
	default:
		n.addOK("you", "you may use every command")
	}
}

// reviewRights notes what of the requests is refused; a nil spec is about the caller.
func (e *examination) reviewRights(ctx context.Context, n *checkNotes, subject string, requests []rights.Request, spec *authorizationv1.SubjectAccessReviewSpec, remedy string) {
	refused, err := e.refusedRequests(ctx, requests, spec)
	switch {
	case apierrors.IsForbidden(err):
		n.addSkipped(subject, "you may not create subjectaccessreviews", "run this as someone who may; `kubectl auth can-i --list --as` needs more rights")
	case err != nil:
		n.addFailure(subject, err.Error(), "make the API server answer")
	case len(refused) > 0:
		n.addFailure(subject, "may not "+joinLimited(refused), remedy)
	default:
		n.addOK(subject, "has all "+countNoun(len(requests), "right"))
	}
}

// refusedRequests returns the requests that are not allowed, in their order.
func (e *examination) refusedRequests(ctx context.Context, requests []rights.Request, spec *authorizationv1.SubjectAccessReviewSpec) ([]string, error) {
	allowed := make([]bool, len(requests))
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(reviewsAtOnce)
	for i, q := range requests {
		group.Go(func() (err error) {
			allowed[i], err = e.isAllowed(ctx, q, spec)
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}
	var out []string
	for i, q := range requests {
		if !allowed[i] {
			out = append(out, q.String())
		}
	}
	return out, nil
}

func (e *examination) isAllowed(ctx context.Context, q rights.Request, spec *authorizationv1.SubjectAccessReviewSpec) (bool, error) {
	if spec == nil {
		review := &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: q.Resource, NonResourceAttributes: q.Path}}
		err := e.Client.Create(ctx, review)
		return review.Status.Allowed, err
	}
	review := &authorizationv1.SubjectAccessReview{Spec: *spec}
	review.Spec.ResourceAttributes, review.Spec.NonResourceAttributes = q.Resource, q.Path
	err := e.Client.Create(ctx, review)
	return review.Status.Allowed, err
}

func joinLimited(texts []string) string {
	if len(texts) <= namedAtMost {
		return strings.Join(texts, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(texts[:namedAtMost], ", "), len(texts)-namedAtMost)
}
