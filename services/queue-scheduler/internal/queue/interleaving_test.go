package queue_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/job/ledger"
	"github.com/holdfast-io/holdfast/pkg/kube"
)

// replica is one scheduler whose every call to the API server waits for its turn.
type replica struct {
	turn    chan struct{}
	asleep  int  // steps it is not given a turn for
	waiting bool // at a call
}

// theatre gives one replica at a time one call, at random, so that each may stop between any two of
// its steps for as long as the others need to finish a job.
type theatre struct {
	t        *testing.T
	random   *rand.Rand
	c        client.WithWatch // the API server itself
	replicas []*replica
	arrived  chan *replica
	wrote    bool // the last call was a write
	old      map[string]client.ObjectList
	oldBook  *corev1.ConfigMap
	listed   []types.UID // the ledger after the last write
	admitted int         // entries the witness saw in all

}

func newTheatre(t *testing.T, seed uint64, replicas int) *theatre {
	t.Helper()
	th := &theatre{
		t: t, random: rand.New(rand.NewPCG(seed, 7)), arrived: make(chan *replica), old: map[string]client.ObjectList{},
		c: fake.NewClientBuilder().WithScheme(kube.Scheme()).Build(),
	}
	for range replicas {
		th.replicas = append(th.replicas, &replica{turn: make(chan struct{})})
	}
	return th
}

// awaitTurn is where a replica waits for its turn.
func (th *theatre) awaitTurn(ctx context.Context, r *replica) error {
	select {
	case th.arrived <- r:
	case <-ctx.Done():
		return ctx.Err()
	}
	select {
	case <-r.turn:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// writeInTurn carries out a write, refuses it, or carries it out and loses the answer. Only the replica
// whose turn it is runs, so nothing here needs a lock.
func (th *theatre) writeInTurn(ctx context.Context, r *replica, do func() error) error {
	if err := th.awaitTurn(ctx, r); err != nil {
		return err
	}
	th.wrote = true
	switch th.random.IntN(12) {
	case 0:
		return apierrors.NewConflict(schema.GroupResource{Resource: "any"}, "any", errDown)
	case 1:
		return errors.Join(do(), errDown)
	}
	return do()
}

func (th *theatre) clientFor(r *replica) client.Client {
	return interceptor.NewClient(th.c, interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
			if err := th.awaitTurn(ctx, r); err != nil {
				return err
			}
			book, isBook := obj.(*corev1.ConfigMap)
			if isBook && th.oldBook != nil && th.random.IntN(10) == 0 {
				th.oldBook.DeepCopyInto(book)
				return nil
			}
			err := c.Get(ctx, key, obj, opts...)
			if isBook && err == nil && th.random.IntN(4) == 0 {
				th.oldBook = book.DeepCopy()
			}
			return err
		},
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
			if err := th.awaitTurn(ctx, r); err != nil {
				return err
			}
			return th.listFromCache(ctx, c, list, opts...)
		},
		Create: func(ctx context.Context, c client.WithWatch, obj client.Object, opts ...client.CreateOption) error {
			return th.writeInTurn(ctx, r, func() error { return c.Create(ctx, obj, opts...) })
		},
		Update: func(ctx context.Context, c client.WithWatch, obj client.Object, opts ...client.UpdateOption) error {
			return th.writeInTurn(ctx, r, func() error { return c.Update(ctx, obj, opts...) })
		},
		Patch: func(ctx context.Context, c client.WithWatch, obj client.Object, p client.Patch, opts ...client.PatchOption) error {
			return th.writeInTurn(ctx, r, func() error { return c.Patch(ctx, obj, p, opts...) })
		},
	})
}

// listFromCache answers from an old cache now and then.
func (th *theatre) listFromCache(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
	kind := fmt.Sprintf("%T", list)
	if old := th.old[kind]; old != nil && th.random.IntN(8) == 0 {
		switch into := list.(type) {
		case *velerov1.BackupList:
			old.(*velerov1.BackupList).DeepCopyInto(into) //nolint:forcetypeassert // of the kind it is kept under
		case *velerov1.RestoreList:
			old.(*velerov1.RestoreList).DeepCopyInto(into) //nolint:forcetypeassert // of the kind it is kept under
		}
		return nil
	}
	err := c.List(ctx, list, opts...)
	if copied, ok := list.DeepCopyObject().(client.ObjectList); err == nil && ok && th.random.IntN(4) == 0 {
		th.old[kind] = copied
	}
	return err
}

// playPasses makes passes with every replica until all jobs are over.
func (th *theatre) playPasses(limits ledger.Limits, jobs int) {
	th.t.Helper()
	ctx, cancel := context.WithCancel(th.t.Context())
	ended := make(chan struct{}, len(th.replicas))
	defer func() {
		cancel()
		for range th.replicas {
			<-ended
		}
	}()
	for _, r := range th.replicas {
		c := th.clientFor(r)
		s := newQueue(c, &limits)
		go func() {
			for ctx.Err() == nil {
				_ = s.Pass(ctx) // injected faults end passes; the next one continues
			}
			ended <- struct{}{}
		}()
	}
	const steps = 30_000
	for range steps {
		th.stepOnce()
		if th.wrote {
			th.wrote = false
			th.checkInvariants(limits)
		}
		if th.random.IntN(15) == 0 && th.runRunners() == jobs {
			return
		}
	}
	require.Fail(th.t, "jobs are stuck", "after %d steps", steps)
}

// stepOnce lets everyone arrive at a call, then one go on to its next.
func (th *theatre) stepOnce() {
	for _, r := range th.replicas {
		for !r.waiting {
			(<-th.arrived).waiting = true
		}
	}
	var awake []*replica
	for _, r := range th.replicas {
		r.asleep--
		if r.asleep <= 0 {
			awake = append(awake, r)
		}
	}
	if len(awake) == 0 {
		return
	}
	r := awake[th.random.IntN(len(awake))]
	if th.random.IntN(25) == 0 { // stopped just before this call
		r.asleep = 1 << th.random.IntN(10)
		return
	}
	r.waiting = false
	r.turn <- struct{}{}
	(<-th.arrived).waiting = true
}
