// Package dryrun finds out what a backup would hold: it makes the lists of a real collection, by the same plan and
// the same filters, of metadata where that is enough, and stores nothing of the objects.
package dryrun

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/runtime/schema"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/archive/part"
	"github.com/holdfast-io/holdfast/pkg/archive/storedplan"
	"github.com/holdfast-io/holdfast/pkg/extension/action"
	"github.com/holdfast-io/holdfast/pkg/kube/resource"
	"github.com/holdfast-io/holdfast/pkg/spec/hook"
	"github.com/holdfast-io/holdfast/pkg/spec/selection"
	"github.com/holdfast-io/holdfast/services/backup-runner/internal/collect/actionset"
	"github.com/holdfast-io/holdfast/services/backup-runner/internal/collect/partwriter"
	"github.com/holdfast-io/holdfast/services/backup-runner/internal/collect/plan"
	"github.com/holdfast-io/holdfast/services/backup-runner/internal/collect/volumes"
	"github.com/holdfast-io/holdfast/services/backup-runner/internal/cut"
	"github.com/holdfast-io/holdfast/services/backup-runner/internal/itemset"
)

// Config is one dry run. Hooks, Snapshots, Rows, Body and Progress may be nil.
type Config struct {
	Backup  *velerov1.Backup
	Filter  *selection.Filter
	Catalog *resource.Catalog
	Lister  plan.FindLister
	Cut     *cut.Cut
	// LiveNamespaces counts the namespaces of the cluster.
	LiveNamespaces func(ctx context.Context) (int, error)
	// Actions are those of a real run. Only those that are action.DryRunSafe are called.
	Actions actionset.Actions
	// Hooks are those that would run; nil where none would.
	Hooks *hook.Backup
	// Snapshots decides on volumes.
	Snapshots *volumes.Taker
	// Rows gets a row for each object; nil gets none.
	Rows *storedplan.Writer
	// Body gets each object as a backup would store it, one call at a time. Without it objects are listed as metadata
	// where that is enough.
	Body func(part.Item) error
	// Workers is the number of lists read at once.
	Workers int
	// Progress gets the number of objects so far, one call at a time.
	Progress func(objects int64)
}

// Count counts objects of a kind.
type Count struct{ Objects, LeftOut int64 }

// Volume is what becomes of the data of a volume.
type Volume struct {
	Name, Claim string // the claim as "namespace/name"
	Taken       bool
	Reason      string
}

// Result is what a backup would hold.
type Result struct {
	Objects    int64
	Kinds      map[string]*Count // by name, as in the manifest
	Namespaces map[string]int64
	Volumes    []Volume
	HookedPods int64
	NotCalled  []string // actions that apply to objects of the backup, sorted
	Messages   []string
	// Gaps are those of the messages that are about objects which cannot be read, and Unlisted the resources of which
	// some may be missing.
	Gaps     []Gap
	Unlisted map[schema.GroupResource]bool
}

// Gap is a message about objects of a resource, or of a group.
type Gap struct {
	Resource schema.GroupResource
	Text     string
}

// planner is one dry run.
type planner struct {
	Config
	facts     *volumes.Facts
	rules     partwriter.VolumeRules
	safe      *actionset.Bound
	others    *actionset.Bound
	items     *itemset.Set
	finder    *plan.Finder
	notCalled map[string]struct{}

	bodies sync.Mutex // of Body
	mu     sync.Mutex
	result Result
	// messages counts remarks, also those that are not kept.
	messages int
	named    []namedItem // what actions named, and nobody looked for yet
}

// Run makes the dry run. An error means that nothing can be said; kinds and objects that cannot be read are messages.
func Run(ctx context.Context, cfg Config) (*Result, error) {
	p := &planner{Config: cfg, facts: volumes.NewFacts(cfg.Backup), items: itemset.New(), notCalled: map[string]struct{}{},
		finder: &plan.Finder{Lister: cfg.Lister, Cut: cfg.Cut, Catalog: cfg.Catalog, Filter: cfg.Filter},
		result: Result{Kinds: map[string]*Count{}, Namespaces: map[string]int64{}, Unlisted: map[schema.GroupResource]bool{}}}
	p.rules = partwriter.NewVolumeRules(cfg.Backup, cfg.Snapshots != nil && (cfg.Snapshots.Wanted() || cfg.Actions.PodVolumes != nil && !isOptedOut(cfg.Backup)))
	if err := p.bindActions(ctx); err != nil {
		return nil, err
	}
	live, err := cfg.LiveNamespaces(ctx)
	if err != nil {
		return nil, err
	}
	if _, err := cfg.Cut.Current(ctx); err != nil {
		return nil, err
	}
	p.noteMessages()
	if err := p.runPasses(ctx, live); err != nil {
		return nil, err
	}
	if err := p.decideVolumes(ctx); err != nil {
		return nil, err
	}
	for name := range p.notCalled {
		p.result.NotCalled = append(p.result.NotCalled, name)
	}
	slices.Sort(p.result.NotCalled)
	slices.SortFunc(p.result.Volumes, func(a, b Volume) int { return cmp.Or(cmp.Compare(a.Claim, b.Claim), cmp.Compare(a.Name, b.Name)) })
	p.boundResult()
	return &p.result, nil
}

// bindActions separates the actions that may be called from those that may not.
func (p *planner) bindActions(ctx context.Context) (err error) {
	safe, others := p.Actions, p.Actions
	isSafe := func(a action.BackupItem) bool { _, ok := a.(action.DryRunSafe); return ok }
	safe.Items = slices.DeleteFunc(slices.Clone(safe.Items), func(a action.BackupItem) bool { return !isSafe(a) })
	others.Items = slices.DeleteFunc(slices.Clone(others.Items), isSafe)
	safe.Blocks, others.Blocks = nil, nil // they add nothing that the items do not name
	var failures, more []actionset.Failure
	if p.safe, failures, err = safe.Bind(ctx, p.Backup, p.Catalog, nil); err != nil {
		return err
	}
	if p.others, more, err = others.Bind(ctx, p.Backup, p.Catalog, nil); err != nil {
		return err
	}
	for _, f := range append(failures, more...) {
		p.addMessage("action %s would not run: %v", f.Action, f.Err)
	}
	return nil
}

// noteMessages notes what is known before anything is listed.
func (p *planner) noteMessages() {
	for _, text := range slices.Concat(p.Actions.Errors, p.Actions.Warnings, p.Filter.Unmatched(p.Catalog.SilentVersions(), "the cluster serves no such resource")) {
		p.addMessage("%s", text)
	}
	for _, f := range p.Catalog.Failures() {
		if p.Filter.MayTakeFrom(f.GroupVersion) {
			p.addGap(schema.GroupResource{Group: f.GroupVersion.Group}, "API group %s does not answer, and its objects are left out: %v", f.GroupVersion, f.Err)
		}
	}
	if p.Filter.IsOfNamespaces() {
		p.addMessage("%s", plan.MessageOfNamespaces)
	}
}

// maxMessages is how many remarks a plan has, and maxVolumes how many volumes a summary lists: a message of gRPC has 4 MiB.
const (
	maxMessages = 200
	maxVolumes  = 5000
)

func (p *planner) addMessage(format string, args ...any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.messages++; p.messages <= maxMessages {
		p.result.Messages = append(p.result.Messages, fmt.Sprintf(format, args...))
	}
}

// addGap adds a message about objects that cannot be read.
func (p *planner) addGap(gr schema.GroupResource, format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	p.addMessage("%s", text)
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.result.Gaps) < maxMessages {
		p.result.Gaps = append(p.result.Gaps, Gap{gr, text})
	}
}

// boundResult cuts what would be too much for one message, and says so. The rows have all of it.
func (p *planner) boundResult() {
	if more := p.messages - maxMessages; more > 0 {
		p.result.Messages = append(p.result.Messages, fmt.Sprintf("and %d remarks more", more))
	}
	if more := len(p.result.Volumes) - maxVolumes; more > 0 {
		p.result.Volumes = p.result.Volumes[:maxVolumes]
		p.result.Messages = append(p.result.Messages, fmt.Sprintf("%d volumes more are not in the summary", more))
	}
}

// runPasses makes the passes of a real collection.
func (p *planner) runPasses(ctx context.Context, live int) error {
	if err := p.listUnits(ctx, plan.Units(plan.First(p.Filter, p.Catalog, live), p.Filter)); err != nil {
		return err
	}
	if err := p.addNamed(ctx); err != nil {
		return err
	}
	second := plan.Second{Filter: p.Filter, Catalog: p.Catalog}
	err := second.RunPasses(p.facts, p.items, func(units []plan.Unit) error {
		if err := p.listUnits(ctx, slices.Values(units)); err != nil {
			return err
		}
		return p.addNamed(ctx)
	})
	if err != nil {
		return err
	}
	for _, name := range p.facts.Absent() {
		p.addMessage("namespace %s is included by name and does not exist", name)
	}
	return nil
}

// listUnits lists units, several at once.
func (p *planner) listUnits(ctx context.Context, units iter.Seq[plan.Unit]) error {
	return plan.ForEach(ctx, p.Workers, units, func(ctx context.Context, _ int, u *plan.Unit) (more bool, err error) {
		if err := p.listUnit(ctx, u); err != nil {
			return false, fmt.Errorf("list %s: %w", u.ID(), err)
		}
		return true, nil
	})
}
