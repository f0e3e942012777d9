package backup

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/holdfast-io/holdfast/pkg/archive/storedplan"
	backupv1 "github.com/holdfast-io/holdfast/proto/gen/holdfast/backup/v1"
	"github.com/holdfast-io/holdfast/services/holdfast/internal/cli/job"
)

// Plan is what a backup would hold, as -o prints it.
type Plan struct {
	*storedplan.Header
	Unstored   string            `json:"unstored,omitempty"` // why it cannot be executed
	Kinds      []PlanCount       `json:"kinds"`
	Namespaces []PlanCount       `json:"namespaces"`
	Volumes    []PlanVolume      `json:"volumes"`
	HookedPods int64             `json:"hookedPods,omitempty"`
	NotCalled  []string          `json:"actionsNotCalled,omitempty"`
	SizesFrom  string            `json:"sizesFrom,omitempty"`
	Objects    []*storedplan.Row `json:"objects,omitempty"`
}

// PlanCount counts the objects of a kind or namespace.
type PlanCount struct {
	Name    string `json:"name"`
	Objects int64  `json:"objects"`
	LeftOut int64  `json:"leftOut,omitempty"`
	Bytes   *int64 `json:"bytes,omitempty"`
}

// PlanVolume is what becomes of the data of a volume.
type PlanVolume struct {
	Volume string `json:"volume,omitempty"`
	Claim  string `json:"claim,omitempty"`
	Taken  bool   `json:"taken"`
	Reason string `json:"reason"`
}

func newPlanCounts(counts []*backupv1.PlanCount) []PlanCount {
	out := make([]PlanCount, len(counts))
	for i, c := range counts {
		out[i] = PlanCount{Name: c.GetName(), Objects: c.GetObjects(), LeftOut: c.GetLeftOut(), Bytes: c.Bytes}
	}
	return out
}

func (p *Plan) takeSummary(s *backupv1.PlanSummary) (err error) {
	if p.Header, err = storedplan.HeaderOf(s.GetPlan()); err != nil {
		return err
	}
	p.Unstored, p.HookedPods, p.NotCalled, p.SizesFrom = s.GetPlan().GetUnstored(), s.GetHookedPods(), s.GetActionsNotCalled(), s.GetSizesFrom()
	p.Kinds, p.Namespaces = newPlanCounts(s.GetKinds()), newPlanCounts(s.GetNamespaces())
	p.Volumes = make([]PlanVolume, len(s.GetVolumes()))
	for i, v := range s.GetVolumes() {
		p.Volumes[i] = PlanVolume{Volume: v.GetVolume(), Claim: v.GetClaim(), Taken: v.GetTaken(), Reason: v.GetReason()}
	}
	return nil
}

// writeText writes the summary, then the tables.
func (p *Plan) writeText(o *PlanOptions) error {
	page := &job.Page{}
	stored := "<not stored>: " + p.Unstored
	if p.ID != "" {
		stored = fmt.Sprintf("%s until %s", p.ID, p.Expires.Format(time.RFC3339))
	}
	page.Field(0, "Plan", stored)
	page.Field(0, "Objects", p.Counts["store"])
	page.Field(0, "Sizes", orNone(p.SizesFrom, "unknown: no backup like this one has ended", "as in backup "+p.SizesFrom))
	page.Field(0, "Pods with hooks", p.HookedPods)
	page.Field(0, "Actions not called", orNone(strings.Join(p.NotCalled, ", "), "<none>", strings.Join(p.NotCalled, ", ")+": their effects are unknown"))
	if len(p.Messages) > 0 {
		page.Heading("Remarks")
		page.List(1, p.Messages)
	}
	page.Gap()
	if _, err := page.WriteTo(o.Global.Out); err != nil {
		return err
	}
	for _, table := range p.buildTables(o.All) {
		if len(table.rows) == 0 {
			continue
		}
		if err := o.Output.PrintTable(o.Global.Out, table.header, nil, table.rows); err != nil {
			return err
		}
		o.Printf("\n")
	}
	if p.ID != "" {
		o.Printf("`holdfast backup create NAME --from-plan %s` executes it.\n", p.ID)
	}
	return nil
}

func orNone(value, none, text string) string {
	if value == "" {
		return none
	}
	return text
}

type planTable struct {
	header []string
	rows   [][]string
}

func (p *Plan) buildTables(all bool) []planTable {
	kinds := planTable{header: []string{"KIND", "OBJECTS", "LEFT OUT", "SIZE"}}
	for _, c := range p.Kinds {
		size := "unknown"
		if c.Bytes != nil {
			size = strconv.FormatInt(*c.Bytes, 10)
		}
		kinds.rows = append(kinds.rows, []string{c.Name, strconv.FormatInt(c.Objects, 10), strconv.FormatInt(c.LeftOut, 10), size})
	}
	namespaces := planTable{header: []string{"NAMESPACE", "OBJECTS"}}
	for _, c := range p.Namespaces {
		namespaces.rows = append(namespaces.rows, []string{orNone(c.Name, "<cluster>", c.Name), strconv.FormatInt(c.Objects, 10)})
	}
	volumes := planTable{header: []string{"VOLUME", "CLAIM", "DATA", "REASON"}}
	for _, v := range p.Volumes {
		data := "left out"
		if v.Taken {
			data = "taken"
		}
		volumes.rows = append(volumes.rows, []string{v.Volume, v.Claim, data, v.Reason})
	}
	if !all {
		return []planTable{kinds, namespaces, volumes}
	}
	objects := planTable{header: []string{"NAMESPACE", "KIND", "NAME", "REMARKS"}}
	for _, r := range p.Objects {
		objects.rows = append(objects.rows, []string{r.Namespace, r.Kind, r.Name, strings.Join(slices.Concat(r.Reasons, r.Unknown), "; ")})
	}
	return []planTable{kinds, namespaces, volumes, objects}
}

var _ job.Creator = (*PlanOptions)(nil)
