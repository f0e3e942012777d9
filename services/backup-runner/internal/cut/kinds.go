package cut

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/clock"

	"github.com/holdfast-io/holdfast/pkg/kube/rawlist"
)

// Source reads revisions by consistent reads. rawlist.Client is one.
type Source interface {
	// Revision returns the newest revision of the cluster.
	Revision(ctx context.Context) (string, error)
	// RevisionOf returns the newest revision of the storage that holds a kind.
	RevisionOf(ctx context.Context, kind schema.GroupVersionResource, namespace string) (string, error)
}

// kindsLifetime is how long an answer of Kinds is used. Moving a kind to another storage takes at least
// a restart of the API server.
const kindsLifetime = time.Minute

// Kinds finds out which kinds share the revisions of the cluster. An API server may keep a kind in
// an etcd of its own (--etcd-servers-overrides), which counts revisions by itself: at a revision of
// the others such a kind has no state yet, or an old one. Safe for concurrent use; one is shared by
// all backups of a process.
type Kinds struct {
	source Source
	clock  clock.PassiveClock

	mu    sync.Mutex
	kinds map[schema.GroupVersionResource]*kindRevisions

	main   sync.Mutex // held while the cluster's revision is read
	newest uint64     // of the cluster, as far as it was read
}

// kindRevisions is what is known of one kind. The channel is held while it is found out.
type kindRevisions struct {
	turn   chan struct{}
	known  bool
	at     time.Time
	shares bool
}

// NewKinds returns an empty Kinds.
func NewKinds(source Source, clk clock.PassiveClock) *Kinds {
	return &Kinds{source: source, clock: clk, kinds: map[schema.GroupVersionResource]*kindRevisions{}}
}

// Shares reports whether the kind shares the cluster's revisions, of which since was the newest at
// some time before the call. The kind's newest revision is read between since and another read of
// the cluster's: one that shares them lies between the two. It is read in the namespace, unless
// that is empty, where the process may not read it in all of them.
func (k *Kinds) Shares(ctx context.Context, gvr schema.GroupVersionResource, namespace, since string) (bool, error) {
	of := k.kindOf(gvr)
	select {
	case of.turn <- struct{}{}:
		defer func() { <-of.turn }()
	case <-ctx.Done():
		return false, context.Cause(ctx)
	}
	if of.known && k.clock.Since(of.at) < kindsLifetime {
		return of.shares, nil
	}
	revision, err := k.source.RevisionOf(ctx, gvr, "")
	if namespace != "" && isForbidden(err) {
		revision, err = k.source.RevisionOf(ctx, gvr, namespace)
	}
	if err != nil {
		return false, err
	}
	shares, err := k.isClusterRevision(ctx, since, revision)
	if err != nil {
		return false, fmt.Errorf("compare the revision of %s: %w", gvr.GroupResource(), err)
	}
	of.known, of.at, of.shares = true, k.clock.Now(), shares
	return shares, nil
}

func isForbidden(err error) bool {
	var answer *rawlist.StatusError
	return errors.As(err, &answer) && answer.Code == http.StatusForbidden
}

func (k *Kinds) kindOf(gvr schema.GroupVersionResource) *kindRevisions {
	k.mu.Lock()
	defer k.mu.Unlock()
	of := k.kinds[gvr]
	if of == nil {
		of = &kindRevisions{turn: make(chan struct{}, 1)}
		k.kinds[gvr] = of
	}
	return of
}

// isClusterRevision reports whether a revision that was just read may be one of the cluster's, read after
// since. Revisions that are no numbers are believed to be.
func (k *Kinds) isClusterRevision(ctx context.Context, since, revision string) (bool, error) {
	low, err := strconv.ParseUint(since, 10, 64)
	n, err2 := strconv.ParseUint(revision, 10, 64)
	if err != nil || err2 != nil {
		return true, nil //nolint:nilerr // there is no order to compare by
	}
	if n < low {
		return false, nil
	}
	k.main.Lock()
	defer k.main.Unlock()
	if k.newest = max(k.newest, low); n <= k.newest {
		return true, nil
	}
	text, err := k.source.Revision(ctx)
	if err != nil {
		return false, err
	}
	high, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		return true, nil //nolint:nilerr // as above
	}
	k.newest = max(k.newest, high)
	return n <= high, nil
}
