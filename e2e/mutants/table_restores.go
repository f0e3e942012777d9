package mutants

// How a restore is made: restore-runner.
var restores = []Mutant{
	{
		Name: "an outcome is recorded before the object is in the cluster", Edit: outcomeBeforeObject,
		Package: "./services/restore-runner/internal/job", Test: "TestDeathAtEachWriteEndsAsIfNothingHadHappened",
	},
	{
		Name:    "a takeover without its backup ends before the records are open",
		Edit:    Edit{"services/restore-runner/internal/job/inputs.go", "err == nil || a.inputs.location == \"\" || ctx.Err() != nil {", "err == nil || a.inputs.location != \"\" || ctx.Err() != nil {"},
		Package: "./services/restore-runner/internal/job", Test: "TestATakeoverThatFailsResumesWhatADeadRunnerPaused",
	},
	{
		Name:    "a request ends a takeover before the records are open",
		Edit:    Edit{"services/restore-runner/internal/job/attempt.go", "records == nil && !a.paused.IsEmpty() &&", "records == nil && a.paused.IsEmpty() &&"},
		Package: "./services/restore-runner/internal/job", Test: "TestARequestWaitsForTheRecords",
	},
	{
		Name:    "the records of paused objects are swept",
		Edit:    Edit{"services/deletion/internal/sweep/inspector.go", "&& mark.PausedLocation(o) == \"\" {", "&& mark.PausedLocation(o) != \"?\" {"},
		Package: "./services/deletion/internal/sweep", Test: "TestRecordsOfARestoreThatLeftObjectsPausedStay",
	},
	{
		Name:    "a restore ends beside its operations",
		Edit:    Edit{"services/restore-runner/internal/job/operations.go", "if in.operations != nil && !in.operations.Ended() {", "if in.operations != nil && in.operations.Ended() {"},
		Package: "./services/restore-runner/internal/job", Test: "TestARestoreWaitsForItsOperations",
	},
	{
		Name:    "a restore that fails does not cancel its operations",
		Edit:    Edit{"services/restore-runner/internal/job/operations.go", "return a.cfg.Operations.CancelOpen(ctx, in.operations, a.restore, \"the restore failed: \"+a.failure.Error())", "return nil"},
		Package: "./services/restore-runner/internal/job", Test: "TestASuccessorThatFailsHasOperationsCancelled",
	},
	{
		Name:    "a call of a restore that carries a key is not made again",
		Edit:    Edit{"services/restore-runner/internal/restore/actions/once.go", "case (announced || c.History.NoHistory) && !repeatable:", "case announced || c.History.NoHistory:"},
		Package: "./services/restore-runner/internal/job", Test: "TestACallWithAKeyIsRepeatedWithTheSame",
	},
	{
		Name:    "a hook of a restored Pod that was announced runs again",
		Edit:    Edit{"services/restore-runner/internal/restore/podhook/pod.go", "\t\t\tr.endHook(p, i, \"\", errUnclear)\n", "			p.States[i] = outcome.HookOwed\n"},
		Package: "./services/restore-runner/internal/job", Test: "TestAHookThatIsCutOffIsNotRunAgain",
	},
	{
		Name:    "the outcome of a Pod lacks the operations that fill its volumes",
		Edit:    Edit{"services/restore-runner/internal/outcome/operations.go", "for i := range rec.Began {", "for i := range rec.Began[:0] {"},
		Package: "./services/restore-runner/internal/job", Test: "TestARestoreWaitsForTheDataOfItsPods",
	},
	{
		Name:    "each Pod that mounts a claim has a request",
		Edit:    Edit{"pkg/extension/podvolume/restore.go", "if v.Claim != \"\" {", "if v.Claim == \"?\" {"},
		Package: "./services/restore-runner/internal/restore", Test: "TestASharedClaimIsFilledOnce",
	},
	{
		Name:    "a Pod of the cluster is stopped for data of the backup",
		Edit:    Edit{"services/restore-runner/internal/restore/volumes/podrequest.go", "if result.Action != apply.Created {", "if result.Action == \"\" {"},
		Package: "./services/restore-runner/internal/restore", Test: "TestAPodThatTheClusterHasIsNotFilled",
	},
}
