package job

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/holdfast-io/holdfast/pkg/archive/storedplan"
	"github.com/holdfast-io/holdfast/pkg/extsort"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/outcome"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/plan"
)

// dryRunRows makes the rows of a plan of the records of a dry run. It implements outcome.Store; what
// does not fit into a little memory is in files.
type dryRunRows struct {
	plan     *plan.Plan
	sorter   *extsort.Sorter
	seq      int64
	messages []string
}

// maxMessages bounds the messages about the restore as a whole.
const maxMessages = 200

// partialRow is what one record says about an object.
type partialRow struct {
	Action  string   `json:"a,omitempty"`
	Order   int64    `json:"o,omitempty"`
	Reasons []string `json:"r,omitempty"`
	Fields  []string `json:"f,omitempty"`
	Unknown []string `json:"u,omitempty"`
}

func newDryRunRows(p *plan.Plan, dir string) *dryRunRows {
	return &dryRunRows{plan: p, sorter: extsort.New(extsort.Config{Dir: dir})}
}

func (r *dryRunRows) close() error { return r.sorter.Close() }

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
		row := partialRow{Action: rec.PlanAction(), Fields: rec.Fields, Unknown: rec.Unknown}
		for i := range rec.Log {
			row.Reasons = append(row.Reasons, rec.Log[i].Message)
		}
		if rec.Name == "" {
			r.messages = append(r.messages, row.Reasons[:min(len(row.Reasons), max(0, maxMessages-len(r.messages)))]...)
			return
		}
		node, ok := r.plan.Find(rec.Resource, rec.Namespace, rec.Name)
		if !ok || err != nil {
			return
		}
		if row.Action != "" {
			r.seq++
			row.Order = r.seq
		}
		err = r.addPart(node, &row)
	})
	return errors.Join(decodeErr, err)
}

func (r *dryRunRows) addPart(node int32, row *partialRow) error {
	text, err := json.Marshal(row)
	if err != nil {
		return fmt.Errorf("encode a row: %w", err)
	}
	return r.sorter.Add(fmt.Appendf(nil, "%010d", node), text)
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
		for _, to := range graph.Successors(from) {
			if int(to) >= r.plan.Len() || r.plan.Reserve(to) || listed[to] == maxBefore {
				continue
			}
			listed[to]++
			name := r.plan.Name(from)
			if ns := r.plan.Source(from); ns != "" {
				name = ns + "/" + name
			}
			if err := r.addPart(to, &partialRow{Reasons: []string{"after " + r.plan.Kind(from).GVK.Kind + " " + name}}); err != nil {
				return err
			}
		}
	}
	return nil
}

// finish returns the sorted rows.
func (r *dryRunRows) finish(dir string) (_ *storedplan.Writer, err error) {
	if err := r.addOrder(); err != nil {
		return nil, err
	}
	parts, err := r.sorter.Sort()
	if err != nil {
		return nil, err
	}
	w := storedplan.NewWriter(dir)
	defer func() {
		if err = errors.Join(err, parts.Close()); err != nil {
			err = errors.Join(err, w.Close())
		}
	}()
	if err := r.joinParts(parts, w); err != nil {
		return nil, err
	}
	return w, w.Sort()
}

// joinParts makes one row of the parts of each object that has an outcome.
func (r *dryRunRows) joinParts(parts extsort.Stream, w *storedplan.Writer) error {
	node, row := int32(-1), storedplan.Row{}
	for {
		key, text, err := parts.Next()
		if err != nil && !errors.Is(err, io.EOF) {
			return err
		}
		var next int32 = -1
		if err == nil {
			if _, err := fmt.Sscanf(string(key), "%d", &next); err != nil {
				return fmt.Errorf("key of a row: %w", err)
			}
		}
		if next != node && row.Action != "" {
			noteController(&row)
			if err := w.Add(row); err != nil {
				return err
			}
		}
		if err != nil {
			return nil
		}
		if next != node {
			node, row = next, r.beginRow(next)
		}
		var part partialRow
		if err := json.Unmarshal(text, &part); err != nil {
			return fmt.Errorf("decode a row: %w", err)
		}
		if part.Action != "" {
			row.Action, row.Order = part.Action, part.Order
		}
		row.Reasons, row.Fields, row.Unknown = append(row.Reasons, part.Reasons...), append(row.Fields, part.Fields...), append(row.Unknown, part.Unknown...)
	}
}

// noteController says which objects controllers make in every namespace that lacks them.
func noteController(row *storedplan.Row) {
	account := row.Kind == "ServiceAccount" && row.Name == "default"
	if row.Action == outcome.PlanCreate && row.Group == "" && (account || row.Kind == "ConfigMap" && row.Name == "kube-root-ca.crt") {
		row.Unknown = append(row.Unknown, "a controller makes it in every namespace, and may be first")
	}
}

func (r *dryRunRows) beginRow(node int32) storedplan.Row {
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
	if kind := r.plan.Kind(node).String(); r.plan.Class(node) == plan.Other {
		if _, defined := r.plan.Find("customresourcedefinitions.apiextensions.k8s.io", "", kind); defined {
			row.Reasons = append(row.Reasons, "after CustomResourceDefinition "+kind)
		}
	}
	return row
}
