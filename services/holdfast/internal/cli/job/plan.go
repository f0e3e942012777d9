package job

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/holdfast-io/holdfast/pkg/archive/storedplan"
	planv1 "github.com/holdfast-io/holdfast/proto/gen/holdfast/plan/v1"
	"github.com/holdfast-io/holdfast/services/holdfast/internal/cli/command"
)

// maxShown bounds the objects that a summary names.
const maxShown = 20

// PlanPrinter prints what a dry run found.
type PlanPrinter struct {
	*command.Global
	Output *command.Output
	// All has the table name all objects; -o wide does too.
	All bool
	// Execute is the command line that executes a plan, up to its id.
	Execute string

	head     *storedplan.Header
	unstored string
	rows     []*storedplan.Row
}

// PlanDocument is what -o prints.
type PlanDocument struct {
	*storedplan.Header
	Unstored string            `json:"unstored,omitempty"`
	Objects  []*storedplan.Row `json:"objects"`
}

// Begin takes the plan, before its objects.
func (p *PlanPrinter) Begin(plan *planv1.Plan) (err error) {
	p.unstored = plan.GetUnstored()
	p.head, err = storedplan.HeaderOf(plan)
	return err
}

// Add takes one object.
func (p *PlanPrinter) Add(o *planv1.PlannedObject) {
	row := storedplan.RowOf(o)
	if p.showsAll() || needsAttention(row) {
		p.rows = append(p.rows, row)
	}
}

func (p *PlanPrinter) showsAll() bool {
	return p.All || !p.Output.IsText() || p.Output.String() == "wide"
}

// needsAttention reports an object that would not be as in the backup.
func needsAttention(r *storedplan.Row) bool { return r.Action == "conflict" || r.Action == "error" }

// Print prints the plan, after the last object.
func (p *PlanPrinter) Print() error {
	if p.head == nil {
		return fmt.Errorf("the service sent no plan")
	}
	if !p.Output.IsText() {
		return p.Output.Print(p.Out, &PlanDocument{Header: p.head, Unstored: p.unstored, Objects: p.rows})
	}
	p.printSummary()
	if err := p.printRows(); err != nil {
		return err
	}
	if p.unstored != "" {
		p.Printf("\nThe plan is not stored and cannot be executed: %s\n", p.unstored)
		return nil
	}
	p.Printf("\n`%s %s` executes the plan until %s.\n", p.Execute, p.head.ID, p.head.Expires.Format("2006-01-02 15:04:05 MST"))
	return nil
}

func (p *PlanPrinter) printSummary() {
	total := int64(0)
	for _, n := range p.head.Counts {
		total += n
	}
	p.Printf("%s of backup %q would work on %d objects:\n", p.head.Kind, p.head.Backup, total)
	for _, action := range slices.Sorted(maps.Keys(p.head.Counts)) {
		p.Printf("  %-10s %d\n", action, p.head.Counts[action])
	}
	if len(p.head.LeftOut) > 0 {
		var kinds []string
		for _, resource := range slices.Sorted(maps.Keys(p.head.LeftOut)) {
			kinds = append(kinds, fmt.Sprintf("%d %s", p.head.LeftOut[resource], resource))
		}
		p.Printf("The filters leave out: %s\n", strings.Join(kinds, ", "))
	}
	for _, message := range p.head.Messages {
		p.Printf("- %s\n", command.FormatLine(message))
	}
}

func (p *PlanPrinter) printRows() error {
	shown := p.rows
	if !p.showsAll() {
		shown = shown[:min(len(shown), maxShown)]
	}
	if len(shown) == 0 {
		return nil
	}
	table := make([][]string, len(shown))
	for i, r := range shown {
		kind := r.Kind
		if r.Group != "" {
			kind += "." + r.Group
		}
		table[i] = []string{
			r.Action, kind, r.Namespace, r.Name, whyPlanned(r), r.TargetNamespace, strconv.FormatInt(r.Order, 10),
			strings.Join(r.Fields, ","), strings.Join(slices.Concat(r.Reasons, r.Unknown), "; "),
		}
	}
	p.Printf("\n")
	if err := p.Output.PrintTable(p.Out, []string{"ACTION", "KIND", "NAMESPACE", "NAME", "WHY"}, []string{"TARGET", "ORDER", "FIELDS", "ALL REASONS"}, table); err != nil {
		return err
	}
	if more := len(p.rows) - len(shown); more > 0 {
		p.Printf("and %d more; --all names all objects\n", more)
	}
	return nil
}

// whyPlanned is the first reason, which is not the order.
func whyPlanned(r *storedplan.Row) string {
	for _, reason := range r.Reasons {
		if !strings.HasPrefix(reason, "after ") {
			return reason
		}
	}
	if len(r.Unknown) > 0 {
		return r.Unknown[0]
	}
	return cmp.Or(strings.Join(r.Fields, ","), "")
}

// EncodeSpec is the spec of a job as services take it.
func EncodeSpec[S any](spec *S) (*structpb.Struct, error) {
	text, err := json.Marshal(spec)
	if err != nil {
		return nil, fmt.Errorf("encode the spec: %w", err)
	}
	out := &structpb.Struct{}
	return out, protojson.Unmarshal(text, out)
}
