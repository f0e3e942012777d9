package mutants

// How a restore is made: restore-runner.
var restores = []Mutant{
	{
		Name: "an outcome is recorded before the object is in the cluster", Edit: outcomeBeforeObject,
		Package: "./services/restore-runner/internal/job", Test: "TestDeathAtEachWriteEndsAsIfNothingHadHappened",
	},
}
