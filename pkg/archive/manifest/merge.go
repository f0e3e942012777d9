package manifest

import (
	"cmp"
	"context"
	"iter"
	"slices"
)

// Pair is one object of two manifests. A or B is nil where its manifest does not have the object.
type Pair struct{ A, B *Item }

// Difference is what two manifests say about one object.
type Difference int

// The differences.
const (
	Unchanged Difference = iota
	// Added is an object that only the second manifest has, Removed one that only the first has.
	Added
	Removed
	// Changed is an object of which a restore would bring back something else.
	Changed
	// Unknown is an object whose bodies have to be compared: a manifest has no content hash of it, or
	// the two may have been written with the fields in another order, such as by an action.
	Unknown
)

// Difference compares the pair by its hashes. reordered reports that the fields of the bodies may
// have different orders.
func (p Pair) Difference(reordered bool) Difference {
	switch {
	case p.A == nil:
		return Added
	case p.B == nil:
		return Removed
	case p.A.ContentHash != "" && p.A.ContentHash == p.B.ContentHash, p.A.SHA256 == p.B.SHA256:
		return Unchanged
	case p.A.ContentHash == "" || p.B.ContentHash == "" || reordered || p.A.Version != p.B.Version || !slices.Equal(p.A.Actions, p.B.Actions):
		return Unknown
	}
	return Changed
}

// Item returns what the second manifest says about the object, or else the first.
func (p Pair) Item() *Item { return cmp.Or(p.B, p.A) }

// MergeFilter selects objects of two manifests. The zero value selects all.
type MergeFilter struct {
	// Resources as in tarball paths, such as "deployments.apps"; empty means all.
	Resources []string
	// Namespaces; empty means all, "" in it means cluster-scoped objects.
	Namespaces []string
}

// SideError is an error of one of two manifests.
type SideError struct {
	Second bool
	Err    error
}

func (e *SideError) Error() string { return e.Err.Error() }

// Unwrap returns the error without its side.
func (e *SideError) Unwrap() error { return e.Err }

// Merge yields every object of two manifests once, reading both as streams, and ends after the first
// error, a SideError. An object is the same in any version of its kind; of several versions in one manifest the
// preferred one counts. Objects come in the manifests' order; those of kinds whose version differs
// come last.
func Merge(ctx context.Context, a, b *Reader, f MergeFilter) iter.Seq2[Pair, error] {
	return func(yield func(Pair, error) bool) {
		for _, run := range pairKinds(a, b, f.Resources) {
			left := newPulled(a.Items(ctx, Filter{Kinds: run.a, Namespaces: f.Namespaces}), run)
			right := newPulled(b.Items(ctx, Filter{Kinds: run.b, Namespaces: f.Namespaces}), run)
			done := mergeRun(left, right, yield)
			left.stop()
			right.stop()
			if !done {
				return
			}
		}
	}
}

// kindRun is kinds of two manifests, as KindName returns them, whose items are merged at once.
type kindRun struct {
	a, b []string
	// converted reports that it is one kind, in another version in each.
	converted bool
}

// noKinds selects nothing: an empty list of kinds selects all.
var noKinds = []string{""}

// pairKinds returns the kinds to merge: first all that are in one order in both manifests.
func pairKinds(a, b *Reader, resources []string) []kindRun {
	inA, inB := a.objectKinds(resources), b.objectKinds(resources)
	same := kindRun{a: slices.Clone(noKinds), b: slices.Clone(noKinds)}
	var runs []kindRun
	for _, kind := range inA {
		i := slices.IndexFunc(inB, func(k objectKind) bool { return k.kindOf == kind.kindOf })
		if i >= 0 && inB[i].name != kind.name {
			runs = append(runs, kindRun{a: []string{kind.name}, b: []string{inB[i].name}, converted: true})
			inB = slices.Delete(inB, i, i+1)
			continue
		}
		same.a = append(same.a, kind.name)
	}
	for _, kind := range inB {
		same.b = append(same.b, kind.name)
	}
	return append([]kindRun{same}, runs...)
}

// objectKind is the version of a kind that stands for it.
type objectKind struct {
	kindOf
	name      string // as KindName returns it
	preferred bool
}

// objectKinds returns one version of each kind of some resources: the preferred one, or else the first.
func (r *Reader) objectKinds(resources []string) []objectKind {
	var kinds []objectKind
	for _, k := range r.dir.Kinds {
		group, _, kind, ok := SplitKindName(k.Kind)
		if !ok || len(resources) > 0 && !slices.Contains(resources, k.Resource) {
			continue
		}
		found := objectKind{kindOf{group, kind}, k.Kind, k.Preferred}
		i := slices.IndexFunc(kinds, func(o objectKind) bool { return o.kindOf == found.kindOf })
		switch {
		case i < 0:
			kinds = append(kinds, found)
		case found.preferred && !kinds[i].preferred:
			kinds[i] = found
		}
	}
	return kinds
}

// pulled is a stream of items and the next of them.
type pulled struct {
	next func() (Item, error, bool)
	stop func()
	run  kindRun
	item *Item // nil at the end
	key  Key
}

func newPulled(items iter.Seq2[Item, error], run kindRun) *pulled {
	next, stop := iter.Pull2(items)
	return &pulled{next: next, stop: stop, run: run}
}

// advance goes to the next item.
func (p *pulled) advance() error {
	item, err, ok := p.next()
	if err != nil || !ok {
		p.item = nil
		return err
	}
	p.item, p.key = &item, item.Key()
	if p.run.converted {
		p.key.Kind = ""
	}
	return nil
}

// mergeRun yields the pairs of two streams, false to stop.
func mergeRun(a, b *pulled, yield func(Pair, error) bool) bool {
	errA, errB := a.advance(), b.advance()
	for {
		if err := cmp.Or(errA, errB); err != nil {
			yield(Pair{}, &SideError{Second: errA == nil, Err: err})
			return false
		}
		if a.item == nil && b.item == nil {
			return true
		}
		pair := Pair{A: a.item, B: b.item}
		switch order := a.compareWith(b); {
		case order < 0:
			pair.B = nil
		case order > 0:
			pair.A = nil
		}
		if !yield(pair, nil) {
			return false
		}
		if pair.A != nil {
			errA = a.advance()
		}
		if pair.B != nil {
			errB = b.advance()
		}
	}
}

// compareWith orders the next items of two streams; a stream at its end is behind every item.
func (p *pulled) compareWith(o *pulled) int {
	switch {
	case p.item == nil:
		return 1
	case o.item == nil:
		return -1
	}
	return p.key.Compare(o.key)
}
