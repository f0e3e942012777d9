package job

import (
	"context"
	"errors"

	"github.com/holdfast-io/holdfast/pkg/archive/storedplan"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/outcome"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/plan"
)

// dryRunRows makes the rows of a plan of the records of a dry run. It implements outcome.Store.
type dryRunRows struct {
	*storedplan.Writer
	plan     *plan.Plan
	seq      int64
	messages []string
}

// maxMessages bounds the messages about the restore as a whole.
const maxMessages = 200

// collect stores records as they come, until done is closed.
func (r *dryRunRows) collect(ctx context.Context, cfg *Config, recorder *outcome.Recorder, progress func(outcome.Counts), done <-chan struct{}) error {
	ticker := cfg.Clock.NewTicker(progressEvery)
	defer ticker.Stop()
	for {
		select {
		case <-done:
			return recorder.Flush(ctx, r)
		case <-ticker.C():
			if progress != nil {
				progress(recorder.Counts())
			}
		case <-recorder.Wanted():
		}
		if err := recorder.Flush(ctx, r); err != nil {
			return err
		}
	}
}

// Add implements outcome.Store. Objects are ordered as they were done with.
func (r *dryRunRows) Add(_ context.Context, data []byte) (err error) {
	decodeErr := outcome.EachRecord(data, func(rec *outcome.Record) {
		var reasons []string
		for i := range rec.Log {
			reasons = append(reasons, rec.Log[i].Message)
		}
		if rec.Name == "" {
			r.messages = append(r.messages, reasons[:min(len(reasons), max(0, maxMessages-len(r.messages)))]...)
			return
		}
		node, ok := r.plan.Find(rec.Resource, rec.Namespace, rec.Name)
		if !ok || err != nil {
			return
		}
		row := r.newRow(node)
		row.Action, row.Reasons, row.Fields, row.Unknown = rec.PlanAction(), reasons, rec.Fields, rec.Unknown
		if row.Action != "" {
			r.seq++
			row.Order = r.seq
		}
		noteController(&row)
		err = r.Writer.Add(row)
	})
	return errors.Join(decodeErr, err)
}

// maxBefore bounds the objects that a row says it comes after.
const maxBefore = 3

// addOrder adds what the objects come after.
func (r *dryRunRows) addOrder() error {
	graph, listed := r.plan.Graph(), make([]uint8, r.plan.Len())
	for from := range int32(r.plan.Len()) {
		if r.plan.Reserve(from) {
			continue
		}
		if err := r.addDefinition(from); err != nil {
			return err
		}
		for _, to := range graph.Successors(from) {
			if int(to) >= r.plan.Len() || r.plan.Reserve(to) || listed[to] == maxBefore {
				continue
			}
			listed[to]++
			name := r.plan.Name(from)
			if ns := r.plan.Source(from); ns != "" {
				name = ns + "/" + name
			}
			if err := r.addReason(to, "after "+r.plan.Kind(from).GVK.Kind+" "+name); err != nil {
				return err
			}
		}
	}
	return nil
}

// addDefinition says that an object comes after the definition of its kind.
func (r *dryRunRows) addDefinition(node int32) error {
	kind := r.plan.Kind(node).String()
	if _, defined := r.plan.Find("customresourcedefinitions.apiextensions.k8s.io", "", kind); !defined || r.plan.Class(node) != plan.Other {
		return nil
	}
	return r.addReason(node, "after CustomResourceDefinition "+kind)
}

func (r *dryRunRows) addReason(node int32, text string) error {
	row := r.newRow(node)
	row.Reasons = []string{text}
	return r.Writer.Add(row)
}

// noteController says which objects controllers make in every namespace that lacks them.
func noteController(row *storedplan.Row) {
	account := row.Kind == "ServiceAccount" && row.Name == "default"
	if row.Action == outcome.PlanCreate && row.Group == "" && (account || row.Kind == "ConfigMap" && row.Name == "kube-root-ca.crt") {
		row.Unknown = append(row.Unknown, "a controller makes it in every namespace, and may be first")
	}
}

func (r *dryRunRows) newRow(node int32) storedplan.Row {
	gvk := r.plan.Kind(node).GVK
	row := storedplan.Row{Group: gvk.Group, Version: gvk.Version, Kind: gvk.Kind, Namespace: r.plan.Source(node), Name: r.plan.Name(node)}
	target := r.plan.Target(node)
	if r.plan.Class(node) == plan.NamespaceObject {
		target = r.plan.MapNamespace(row.Name)
		if target == row.Name {
			target = ""
		}
	}
	if target != row.Namespace {
		row.TargetNamespace = target
	}
	return row
}
