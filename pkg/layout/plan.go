package layout

// PlansDir holds one directory for each plan that a dry run stored.
const PlansDir = MetadataDir + "holdfast/plans/"

// PlanDir is the prefix of everything that belongs to a plan.
func PlanDir(id string) string { return PlansDir + id + "/" }

// PlanHeader says what a plan was made for. It is created last: its existence is the commit.
func PlanHeader(id string) string { return PlanDir(id) + "plan.json" }

// PlanRows has a line for each object of a plan.
func PlanRows(id string) string { return PlanDir(id) + "rows.jsonl.gz" }
