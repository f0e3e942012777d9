// Package kubeauth lets Kubernetes decide who may call a service: the API server says whose token
// it is (TokenReview) and whether its RBAC lets that user post to the method's path
// (SubjectAccessReview).
//
// A caller sends "authorization: Bearer <token>" as gRPC metadata. The right is granted like any
// other, on the path of the method:
//
//	kind: ClusterRole
//	rules:
//	  - nonResourceURLs: ["/holdfast.queue.v1.QueueService/*"]
//	    verbs: ["post"]
//
// The service's own account needs to create tokenreviews.authentication.k8s.io and
// subjectaccessreviews.authorization.k8s.io, which the ClusterRole system:auth-delegator grants.
package kubeauth

import (
	"context"
	"crypto/sha256"
	"fmt"
	"time"

	authnv1 "k8s.io/api/authentication/v1"
	authzv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/cache"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/clock"

	"github.com/holdfast-io/holdfast/pkg/errgrpc"
	"github.com/holdfast-io/holdfast/pkg/service/grpcserver"
)

const (
	// AllowedFor is how long a positive answer is used again: for so long a revoked token or right
	// still works.
	AllowedFor = time.Minute
	// DeniedFor is how long a negative answer is used again: for so long a new right does not work
	// yet.
	DeniedFor = 5 * time.Second
	// Remembered is how many answers are kept at most.
	Remembered = 4096
)

// Verb is the verb a caller needs on the path of a method.
const Verb = "post"

// Reviewer authenticates and authorizes callers by the API server. It is safe for concurrent use.
type Reviewer struct {
	client  kubernetes.Interface
	answers *cache.LRUExpireCache
}

// New returns a Reviewer that calls through client and measures the age of answers with clk.
func New(client kubernetes.Interface, clk clock.Clock) *Reviewer {
	return &Reviewer{client: client, answers: cache.NewLRUExpireCacheWithClock(Remembered, clk)}
}

// question identifies an answer without keeping the token.
type question struct {
	token  [sha256.Size]byte
	method string
}

type answer struct {
	user authnv1.UserInfo
	err  error // wraps errgrpc.ErrUnauthenticated or ErrForbidden, or nil
}

// Authorize is a grpcserver.Authorizer. The returned context carries the user, see [UserFrom]. The
// error wraps errgrpc.ErrUnauthenticated without a valid token, errgrpc.ErrForbidden without the
// right, and errgrpc.ErrUnavailable when the API server did not say.
func (r *Reviewer) Authorize(ctx context.Context, fullMethod string) (context.Context, error) {
	token, err := grpcserver.BearerToken(ctx)
	if err != nil {
		return nil, err
	}
	key := question{token: sha256.Sum256([]byte(token)), method: fullMethod}
	if known, ok := r.answers.Get(key); ok {
		if a, ok := known.(answer); ok {
			return a.apply(ctx)
		}
	}
	a, err := r.ask(ctx, token, fullMethod)
	if err != nil {
		return nil, err
	}
	keep := AllowedFor
	if a.err != nil {
		keep = DeniedFor
	}
	r.answers.Add(key, a, keep)
	return a.apply(ctx)
}

func (a answer) apply(ctx context.Context) (context.Context, error) {
	if a.err != nil {
		return nil, a.err
	}
	return context.WithValue(ctx, userKey{}, a.user.Username), nil
}

// ask returns an error only when there is no answer.
func (r *Reviewer) ask(ctx context.Context, token, method string) (answer, error) {
	who, err := r.client.AuthenticationV1().TokenReviews().Create(ctx,
		&authnv1.TokenReview{Spec: authnv1.TokenReviewSpec{Token: token}}, metav1.CreateOptions{})
	if err != nil {
		return answer{}, fmt.Errorf("review token: %w: %w", errgrpc.ErrUnavailable, err)
	}
	if !who.Status.Authenticated {
		return answer{err: fmt.Errorf("token is not valid: %w", errgrpc.ErrUnauthenticated)}, nil
	}
	user := who.Status.User
	review := &authzv1.SubjectAccessReview{Spec: authzv1.SubjectAccessReviewSpec{
		User: user.Username, UID: user.UID, Groups: user.Groups, Extra: extra(user.Extra),
		NonResourceAttributes: &authzv1.NonResourceAttributes{Path: method, Verb: Verb},
	}}
	may, err := r.client.AuthorizationV1().SubjectAccessReviews().Create(ctx, review, metav1.CreateOptions{})
	if err != nil {
		return answer{}, fmt.Errorf("review access: %w: %w", errgrpc.ErrUnavailable, err)
	}
	if !may.Status.Allowed {
		return answer{err: fmt.Errorf("%q may not %s to %s: %w", user.Username, Verb, method, errgrpc.ErrForbidden)}, nil
	}
	return answer{user: user}, nil
}

func extra(from map[string]authnv1.ExtraValue) map[string]authzv1.ExtraValue {
	to := make(map[string]authzv1.ExtraValue, len(from))
	for name, value := range from {
		to[name] = authzv1.ExtraValue(value)
	}
	return to
}

type userKey struct{}

// UserFrom is the name of the user whose call ctx belongs to; empty when no one was asked.
func UserFrom(ctx context.Context) string {
	name, ok := ctx.Value(userKey{}).(string)
	if !ok {
		return ""
	}
	return name
}
