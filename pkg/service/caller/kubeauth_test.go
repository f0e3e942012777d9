package caller_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	authnv1 "k8s.io/api/authentication/v1"
	authzv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/holdfast-io/holdfast/pkg/errgrpc"
	"github.com/holdfast-io/holdfast/pkg/service/caller"
)

const submit = "/holdfast.queue.v1.QueueService/SubmitBackup"

// apiserver has the tokens of two users, one of whom may submit.
type apiserver struct {
	Clientset *fake.Clientset
	away      bool
	hold      chan struct{}   // reviews of tokens are answered once it is closed
	allowed   map[string]bool // by user
	audiences []string        // of every token
	asked     []string        // audiences of the last review
	access    authzv1.SubjectAccessReviewSpec
}

func newAPIServer() *apiserver {
	api := &apiserver{Clientset: fake.NewClientset(), allowed: map[string]bool{"ann": true}}
	users := map[string]string{"token-of-ann": "ann", "token-of-bob": "bob"}
	api.Clientset.PrependReactor("create", "tokenreviews", func(action clienttesting.Action) (bool, runtime.Object, error) {
		if api.hold != nil {
			<-api.hold
		}
		if api.away {
			return true, nil, errors.New("connection refused")
		}
		review := action.(clienttesting.CreateAction).GetObject().(*authnv1.TokenReview).DeepCopy()
		api.asked = review.Spec.Audiences
		name, ok := users[review.Spec.Token]
		review.Status = authnv1.TokenReviewStatus{Authenticated: ok, Audiences: api.audiences, User: authnv1.UserInfo{
			Username: name, UID: "uid-" + name, Groups: []string{"people"}, Extra: map[string]authnv1.ExtraValue{"scopes": {"a", "b"}},
		}}
		return true, review, nil
	})
	api.Clientset.PrependReactor("create", "subjectaccessreviews", func(action clienttesting.Action) (bool, runtime.Object, error) {
		review := action.(clienttesting.CreateAction).GetObject().(*authzv1.SubjectAccessReview).DeepCopy()
		api.access = review.Spec
		review.Status.Allowed = api.allowed[review.Spec.User]
		return true, review, nil
	})
	return api
}

func withAuthorization(t *testing.T, authorization ...string) context.Context {
	t.Helper()
	return metadata.NewIncomingContext(t.Context(), metadata.MD{"authorization": authorization})
}

func TestRightsDecide(t *testing.T) {
	api := newAPIServer()
	r := caller.NewReviewer(caller.ReviewerConfig{Client: api.Clientset, Clock: clocktesting.NewFakeClock(time.Unix(0, 0))})
	user, err := r.Authorize(withAuthorization(t, "Bearer token-of-ann"), submit)
	require.NoError(t, err)
	require.Equal(t, "ann", user)
	require.Equal(t, authzv1.SubjectAccessReviewSpec{
		User: "ann", UID: "uid-ann", Groups: []string{"people"}, Extra: map[string]authzv1.ExtraValue{"scopes": {"a", "b"}},
		NonResourceAttributes: &authzv1.NonResourceAttributes{Path: submit, Verb: "post"},
	}, api.access, "the whole identity is passed on")

	user, err = r.Authorize(withAuthorization(t, "Bearer token-of-bob"), submit)
	require.Equal(t, "bob", user, "it is known who was refused")
	require.ErrorIs(t, err, errgrpc.ErrForbidden)
	require.ErrorContains(t, err, `"bob" may not post to `+submit)
}

func TestNoTokenNoEntry(t *testing.T) {
	api := newAPIServer()
	r := caller.NewReviewer(caller.ReviewerConfig{Client: api.Clientset, Clock: clocktesting.NewFakeClock(time.Unix(0, 0))})
	for _, ctx := range []context.Context{
		t.Context(), withAuthorization(t), withAuthorization(t, "token-of-ann"), withAuthorization(t, "Basic token-of-ann"), withAuthorization(t, "Bearer "), withAuthorization(t, "Bearer x", "Bearer token-of-ann"),
	} {
		_, err := r.Authorize(ctx, submit)
		require.ErrorIs(t, err, errgrpc.ErrUnauthenticated)
	}
	require.Empty(t, api.Clientset.Actions(), "nobody was asked")
	_, err := r.Authorize(withAuthorization(t, "Bearer stolen"), submit)
	require.ErrorIs(t, err, errgrpc.ErrUnauthenticated)
	require.NotContains(t, err.Error(), "stolen")
}

func TestAnswersAreUsedAgainForAWhile(t *testing.T) {
	api := newAPIServer()
	clk := clocktesting.NewFakeClock(time.Unix(0, 0))
	r := caller.NewReviewer(caller.ReviewerConfig{Client: api.Clientset, Clock: clk})
	may := func(user, method string) error {
		_, err := r.Authorize(withAuthorization(t, "Bearer token-of-"+user), method)
		return err
	}
	require.NoError(t, may("ann", submit))
	require.ErrorIs(t, may("bob", submit), errgrpc.ErrForbidden)
	asked := len(api.Clientset.Actions())
	api.allowed = map[string]bool{"bob": true}
	require.NoError(t, may("ann", submit))
	require.ErrorIs(t, may("bob", submit), errgrpc.ErrForbidden)
	require.Len(t, api.Clientset.Actions(), asked)
	require.ErrorIs(t, may("ann", submit+"2"), errgrpc.ErrForbidden, "an answer is about one method")

	clk.Step(caller.DeniedFor + time.Second)
	require.NoError(t, may("ann", submit))
	require.NoError(t, may("bob", submit))
	clk.Step(caller.AllowedFor)
	require.ErrorIs(t, may("ann", submit), errgrpc.ErrForbidden)
}

func TestOutagesAreNoAnswer(t *testing.T) {
	api := newAPIServer()
	api.away = true
	r := caller.NewReviewer(caller.ReviewerConfig{Client: api.Clientset, Clock: clocktesting.NewFakeClock(time.Unix(0, 0))})
	_, err := r.Authorize(withAuthorization(t, "Bearer token-of-ann"), submit)
	require.ErrorIs(t, err, errgrpc.ErrUnavailable)
	api.away = false
	_, err = r.Authorize(withAuthorization(t, "Bearer token-of-ann"), submit)
	require.NoError(t, err, "an outage is not remembered")
}

// An authenticator without audiences takes every valid token and returns none.
func TestATokenForAnotherAudienceIsNoToken(t *testing.T) {
	api := newAPIServer()
	clk := clocktesting.NewFakeClock(time.Unix(0, 0))
	r := caller.NewReviewer(caller.ReviewerConfig{Client: api.Clientset, Clock: clk, Audience: "holdfast"})
	for _, audiences := range [][]string{nil, {"https://kubernetes.default.svc"}} {
		api.audiences = audiences
		_, err := r.Authorize(withAuthorization(t, "Bearer token-of-ann"), submit)
		require.ErrorIs(t, err, errgrpc.ErrUnauthenticated)
		clk.Step(caller.DeniedFor + time.Second)
	}
	require.Equal(t, []string{"holdfast"}, api.asked)
	api.audiences = []string{"other", "holdfast"}
	_, err := r.Authorize(withAuthorization(t, "Bearer token-of-ann"), submit)
	require.NoError(t, err)
}

func withPeerAddress(ctx context.Context, address string) context.Context {
	return peer.NewContext(ctx, &peer.Peer{Addr: &net.TCPAddr{IP: net.ParseIP(address), Port: 1}})
}

// TestMadeUpTokensDoNotFloodTheAPIServer: each of them was a review.
func TestMadeUpTokensDoNotFloodTheAPIServer(t *testing.T) {
	api := newAPIServer()
	clk := clocktesting.NewFakeClock(time.Unix(0, 0))
	r := caller.NewReviewer(caller.ReviewerConfig{Client: api.Clientset, Clock: clk})
	asked := 0
	flood := func(address string, n int) {
		for range n {
			asked++
			_, err := r.Authorize(withPeerAddress(withAuthorization(t, fmt.Sprintf("Bearer made-up-%d", asked)), address), submit)
			require.Error(t, err)
		}
	}
	_, err := r.Authorize(withPeerAddress(withAuthorization(t, "Bearer token-of-ann"), "10.0.0.1"), submit)
	require.NoError(t, err)
	flood("10.0.0.1", 1000)
	require.LessOrEqual(t, len(api.Clientset.Actions()), caller.ReviewsAtOnceOfAddress+1)
	_, err = r.Authorize(withPeerAddress(withAuthorization(t, "Bearer token-of-bob"), "10.0.0.1"), submit)
	require.ErrorIs(t, err, errgrpc.ErrUnavailable)
	_, err = r.Authorize(withPeerAddress(withAuthorization(t, "Bearer token-of-ann"), "10.0.0.1"), submit)
	require.NoError(t, err, "a known answer asks for no review")
	_, err = r.Authorize(withPeerAddress(withAuthorization(t, "Bearer token-of-bob"), "10.0.0.2"), submit)
	require.ErrorIs(t, err, errgrpc.ErrForbidden, "other addresses are answered")

	for i := range 100 {
		flood(fmt.Sprintf("10.0.1.%d", i), caller.ReviewsAtOnceOfAddress)
	}
	require.LessOrEqual(t, len(api.Clientset.Actions()), caller.ReviewsAtOnce+2, "all addresses together")
	clk.Step(time.Second)
	_, err = r.Authorize(withPeerAddress(withAuthorization(t, "Bearer token-of-bob"), "10.0.0.3"), submit)
	require.ErrorIs(t, err, errgrpc.ErrForbidden)
}

// Callers that send nothing that can be a token are refused before anything of their address is used
// up: others may call from there, through a proxy or a NAT.
func TestCallersWithoutATokenUseUpNoReviews(t *testing.T) {
	api := newAPIServer()
	r := caller.NewReviewer(caller.ReviewerConfig{Client: api.Clientset, Clock: clocktesting.NewFakeClock(time.Unix(0, 0))})
	for range caller.ReviewsAtOnce + 1 {
		for _, ctx := range []context.Context{
			t.Context(), withAuthorization(t), withAuthorization(t, ""), withAuthorization(t, "Bearer"), withAuthorization(t, "Bearer "), withAuthorization(t, "Bearer  "), withAuthorization(t, "Bearer a b"), withAuthorization(t, "Basic YTpi"), withAuthorization(t, "Bearer a", "Bearer b"),
		} {
			_, err := r.Authorize(withPeerAddress(ctx, "10.0.0.1"), submit)
			require.ErrorIs(t, err, errgrpc.ErrUnauthenticated)
		}
	}
	require.Empty(t, api.Clientset.Actions())
	for i := range caller.ReviewsAtOnceOfAddress {
		_, err := r.Authorize(withPeerAddress(withAuthorization(t, fmt.Sprintf("Bearer made-up-%d", i)), "10.0.0.1"), submit)
		require.ErrorIs(t, err, errgrpc.ErrUnauthenticated)
	}
	require.Len(t, api.Clientset.Actions(), caller.ReviewsAtOnceOfAddress)
}

// observed counts contexts that have been waited for.
type observed struct {
	context.Context
	once  *sync.Once
	count *atomic.Int32
}

func (o observed) Done() <-chan struct{} {
	o.once.Do(func() { o.count.Add(1) })
	return o.Context.Done()
}

// TestOneTokenIsReviewedOnce: each of the calls that came before the answer was a review, so that a
// client with many streams used up the reviews of its address.
func TestOneTokenIsReviewedOnce(t *testing.T) {
	api, calls := newAPIServer(), caller.ReviewsAtOnceOfAddress+10
	api.hold = make(chan struct{})
	r := caller.NewReviewer(caller.ReviewerConfig{Client: api.Clientset, Clock: clocktesting.NewFakeClock(time.Unix(0, 0))})
	count, results := &atomic.Int32{}, make(chan error, calls)
	wait := func(ctx context.Context) {
		_, err := r.Authorize(observed{Context: withPeerAddress(ctx, "10.0.0.1"), once: &sync.Once{}, count: count}, submit)
		results <- err
	}
	waiting := func(n int) {
		t.Helper()
		require.Eventually(t, func() bool { return int(count.Load()) == n }, time.Minute, time.Millisecond)
	}
	first, leave := context.WithCancel(withAuthorization(t, "Bearer token-of-ann"))
	go wait(first)
	waiting(1)
	for range calls - 1 {
		go wait(withAuthorization(t, "Bearer token-of-ann"))
	}
	waiting(calls)
	leave()
	require.ErrorIs(t, <-results, context.Canceled, "a caller need not wait")
	close(api.hold)
	for range calls - 1 {
		require.NoError(t, <-results, "the review does not end with the call that began it")
	}
	require.Len(t, api.Clientset.Actions(), 2, "a review of the token and one of the right")
}

// TestAPanicOfASharedReviewIsAnError: on the goroutine of a shared review it would end the process.
func TestAPanicOfASharedReviewIsAnError(t *testing.T) {
	api := newAPIServer()
	api.Clientset.PrependReactor("create", "tokenreviews", func(clienttesting.Action) (bool, runtime.Object, error) { panic("on purpose") })
	r := caller.NewReviewer(caller.ReviewerConfig{Client: api.Clientset, Clock: clocktesting.NewFakeClock(time.Unix(0, 0))})
	for range 2 {
		_, err := r.Authorize(withAuthorization(t, "Bearer token-of-ann"), submit)
		require.ErrorContains(t, err, "on purpose")
	}
}
