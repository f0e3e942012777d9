package mutants

// Who works on a job: pkg/job.
var claims = []Mutant{
	{Name: "a lost claim passes the check", Edit: claimUnchecked, Package: "./pkg/job/claim", Test: "TestBadClaimsAreErrors"},
	{Name: "a record of a closed epoch is accepted", Edit: journalUnfenced, Package: "./pkg/job/journal", Test: "TestARecordOfSomebodyElseIsAFence"},
}
