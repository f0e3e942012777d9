package caller

import (
	"context"
	"crypto/sha256"
	"fmt"
	"runtime/debug"
	"slices"
	"time"

	"golang.org/x/sync/singleflight"
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

// ReviewerConfig describes a Reviewer.
type ReviewerConfig struct {
	// Client makes the reviews. Required.
	Client kubernetes.Interface
	// Clock measures the age of answers, and how many reviews are made. Required.
	Clock clock.Clock
	// Audience is what tokens must be issued for; empty means the audience of the API server.
	Audience string
}

// Reviewer authenticates and authorizes callers by the API server. It is safe for concurrent use.
type Reviewer struct {
	client    kubernetes.Interface
	audiences []string
	answers   *cache.LRUExpireCache
	asking    *singleflight.Group
	limits    hostLimits
}

// NewReviewer returns a Reviewer.
func NewReviewer(cfg ReviewerConfig) *Reviewer {
	r := &Reviewer{
		client: cfg.Client, answers: cache.NewLRUExpireCacheWithClock(Remembered, cfg.Clock),
		asking: &singleflight.Group{}, limits: newLimits(cfg.Clock),
	}
	if cfg.Audience != "" {
		r.audiences = []string{cfg.Audience}
	}
	return r
}

// reviewKey identifies an answer without keeping the token.
type reviewKey struct {
	token  [sha256.Size]byte
	method string
}

type reviewAnswer struct {
	user authnv1.UserInfo
	err  error // wraps errgrpc.ErrUnauthenticated or ErrForbidden, or nil
}

// Authorize is a grpcserver.Authorizer. The error wraps errgrpc.ErrUnauthenticated without a valid
// token, errgrpc.ErrForbidden without the right, and errgrpc.ErrUnavailable when the API server did
// not say or would be asked too often. Callers with one token and method at the same time share a
// review, which counts for the address of the first one.
func (r *Reviewer) Authorize(ctx context.Context, fullMethod string) (user string, err error) {
	token, err := grpcserver.BearerToken(ctx)
	if err != nil {
		return "", err
	}
	key := reviewKey{token: sha256.Sum256([]byte(token)), method: fullMethod}
	if a, ok := r.knownAnswer(key); ok {
		return a.user.Username, a.err
	}
	shared := r.asking.DoChan(string(key.token[:])+fullMethod, func() (_ any, err error) {
		defer func() { // no caller is on this goroutine to recover
			if value := recover(); value != nil {
				err = fmt.Errorf("review panicked: %v\n%s", value, debug.Stack())
			}
		}()
		return r.reviewShared(context.WithoutCancel(ctx), token, key)
	})
	select {
	case <-ctx.Done():
		return "", fmt.Errorf("review token: %w: %w", errgrpc.ErrUnavailable, ctx.Err())
	case reviewed := <-shared:
		user, _ = reviewed.Val.(string)
		return user, reviewed.Err
	}
}

func (r *Reviewer) knownAnswer(key reviewKey) (reviewAnswer, bool) {
	known, _ := r.answers.Get(key)
	a, ok := known.(reviewAnswer)
	return a, ok
}

// reviewShared gets the answer for all calls that wait for it, within a limit of its own.
func (r *Reviewer) reviewShared(ctx context.Context, token string, key reviewKey) (user string, err error) {
	if a, ok := r.knownAnswer(key); ok { // of a review that has ended since Authorize had none
		return a.user.Username, a.err
	}
	if err := r.limits.takeReview(ctx); err != nil {
		return "", err
	}
	ctx, cancel := context.WithTimeout(ctx, grpcserver.ReviewLimit)
	defer cancel()
	a, err := r.askServer(ctx, token, key.method)
	if err != nil {
		return "", err
	}
	keep := AllowedFor
	if a.err != nil {
		keep = DeniedFor
	}
	r.answers.Add(key, a, keep)
	return a.user.Username, a.err
}

// askServer returns an error only when there is no answer.
func (r *Reviewer) askServer(ctx context.Context, token, method string) (reviewAnswer, error) {
	who, err := r.client.AuthenticationV1().TokenReviews().Create(ctx,
		&authnv1.TokenReview{Spec: authnv1.TokenReviewSpec{Token: token, Audiences: r.audiences}}, metav1.CreateOptions{})
	if err != nil {
		return reviewAnswer{}, fmt.Errorf("review token: %w: %w", errgrpc.ErrUnavailable, err)
	}
	if !who.Status.Authenticated {
		return reviewAnswer{err: fmt.Errorf("token is not valid: %w", errgrpc.ErrUnauthenticated)}, nil
	}
	if r.audiences != nil && !slices.Contains(who.Status.Audiences, r.audiences[0]) { // an authenticator without audiences returns none
		return reviewAnswer{err: fmt.Errorf("token is not for audience %q: %w", r.audiences[0], errgrpc.ErrUnauthenticated)}, nil
	}
	user := who.Status.User
	review := &authzv1.SubjectAccessReview{Spec: authzv1.SubjectAccessReviewSpec{
		User: user.Username, UID: user.UID, Groups: user.Groups, Extra: extraValues(user.Extra),
		NonResourceAttributes: &authzv1.NonResourceAttributes{Path: method, Verb: Verb},
	}}
	may, err := r.client.AuthorizationV1().SubjectAccessReviews().Create(ctx, review, metav1.CreateOptions{})
	if err != nil {
		return reviewAnswer{}, fmt.Errorf("review access: %w: %w", errgrpc.ErrUnavailable, err)
	}
	if !may.Status.Allowed {
		return reviewAnswer{user: user, err: fmt.Errorf("%q may not %s to %s: %w", user.Username, Verb, method, errgrpc.ErrForbidden)}, nil
	}
	return reviewAnswer{user: user}, nil
}

func extraValues(from map[string]authnv1.ExtraValue) map[string]authzv1.ExtraValue {
	to := make(map[string]authzv1.ExtraValue, len(from))
	for name, value := range from {
		to[name] = authzv1.ExtraValue(value)
	}
	return to
}
