package acting

import (
	"errors"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/holdfast-io/holdfast/pkg/archive/part"
	"github.com/holdfast-io/holdfast/pkg/joblog"
	"github.com/holdfast-io/holdfast/pkg/kube/resource"
	"github.com/holdfast-io/holdfast/services/backup-runner/internal/collect/actionset"
	"github.com/holdfast-io/holdfast/services/backup-runner/internal/collect/partwriter"
	"github.com/holdfast-io/holdfast/services/backup-runner/internal/collect/plan"
	"github.com/holdfast-io/holdfast/services/backup-runner/internal/itemset"
)

// storeObject adds the object to the part.
func (a *objectProcessor) storeObject(s *processedObject, r *actionset.Result) (itemset.Result, error) {
	open, err := a.out.Part()
	if err != nil {
		return itemset.Unknown, err
	}
	o := &r.Object
	res, _ := a.pool.Finder.Catalog.Lookup(s.GroupResource()) // zero, and so not Custom, if it is not served
	u := plan.Unit{Res: resource.Resource{Kind: o.Kind, Name: s.Resource, Custom: res.Custom}}
	found, complete := u.References(a.pool.References).Find(s.Namespace, o.Raw)
	err = open.Add(part.Item{
		GVK: o.Kind, Resource: s.Resource, Preferred: true, Meta: o.Meta, Raw: o.Raw, Envelope: o.Envelope, HasTypeMeta: true, Spaced: o.Spaced,
		Live: s.live, Extra: plan.IsExtra(a.pool.Finder.Filter, s.GroupResource(), o.Meta), Cut: s.Cut, Actions: r.Applied, References: found,
	})
	if errors.Is(err, part.ErrInvalidItem) {
		return a.noteFailed(s, "object cannot be stored", err)
	}
	if err != nil {
		return itemset.Unknown, fmt.Errorf("store %s: %w", partwriter.ObjectKey(s.Namespace, s.Name), err)
	}
	a.pool.Progress.Acted()
	a.noteStored(s)
	if !complete {
		if err := a.out.Note(partwriter.ShortenedEntry(s.GroupResource(), s.Namespace, s.Name)); err != nil {
			return itemset.Unknown, err
		}
	}
	if a.pool.Again { // its remarks were noted before
		return itemset.Stored, nil
	}
	return itemset.Stored, a.noteRemarks(s.GroupResource(), o)
}

// noteStored hands on what follows of an object that was stored: its namespace, and for one that was
// not listed its resource.
func (a *objectProcessor) noteStored(s *processedObject) {
	var namespaces map[string]struct{}
	if s.Namespace != "" {
		namespaces = map[string]struct{}{s.Namespace: {}}
		a.out.Within(namespaces)
	}
	if !s.extra {
		return
	}
	a.pool.Facts.AddExtra(s.GroupResource(), namespaces)
	a.out.Record.Resources = appendSorted(a.out.Record.Resources, s.GroupResource().String())
}

// appendSorted adds a text that is not there yet.
func appendSorted(list []string, text string) []string {
	at, found := slices.BinarySearch(list, text)
	if found {
		return list
	}
	return slices.Insert(list, at, text)
}

// noteRemarks notes the messages about a stored object.
func (a *objectProcessor) noteRemarks(gr schema.GroupResource, o *actionset.Object) error {
	remarks, info := a.pool.Remarks.Of(gr, o.Meta, o.Raw)
	if info != nil {
		record := &a.out.Record
		record.Volumes = append(record.Volumes, *info)
		a.pool.Facts.Bind(record.Volumes[len(record.Volumes)-1:])
	}
	for _, e := range remarks {
		note := a.out.Fail
		if e.Level == joblog.Warning {
			note = a.out.Warn
		}
		if err := note(e); err != nil {
			return err
		}
	}
	return nil
}

// noteFailed notes that the object is not in the backup, which is an error.
func (a *objectProcessor) noteFailed(s *processedObject, message string, cause error) (itemset.Result, error) {
	open, err := a.out.Part()
	if err != nil {
		return itemset.Unknown, err
	}
	o, err := actionset.ParseObject(s.GroupVersionKind(), s.Raw)
	if err == nil {
		err = open.Fail(part.Item{GVK: s.GroupVersionKind(), Resource: s.Resource, Preferred: true, Meta: o.Meta})
	}
	switch {
	case err == nil:
		a.pool.Progress.Acted()
	case errors.Is(err, part.ErrInvalidItem), o.Meta == nil:
		// The resource list cannot name it.
	default:
		return itemset.Unknown, fmt.Errorf("note a failure: %w", err)
	}
	return itemset.Failed, a.out.Fail(partwriter.EntryAbout(s.GroupResource(), s.Namespace, s.Name, message, cause))
}

// recordLeftOut notes that an action keeps the object out of the backup.
func (a *objectProcessor) recordLeftOut(s *processedObject, by string) error {
	a.out.Record.LeftOut = append(a.out.Record.LeftOut, recordObject(&s.SpooledItem))
	return a.out.Inform(partwriter.EntryAbout(s.GroupResource(), s.Namespace, s.Name, "left out by action "+by, nil))
}
