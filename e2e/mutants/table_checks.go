package mutants

// Checks of a value, an answer or a time, which one service makes.
var checks = []Mutant{
	{
		Name: "a readiness probe is repeated at once",
		Edit: Edit{
			"services/restore-runner/internal/restore/actions/prober.go", "\tcase r.ready:\n\t\tp.finishProbe(ctx, q, nil)\n",
			"\tcase r.ready:\n\t\tp.finishProbe(ctx, q, nil)\n\tdefault:\n\t\tq.due = true\n",
		},
		Package: "./services/restore-runner/internal/restore/actions", Test: "TestAProbeIsRepeatedEachSecond",
	},
	{
		Name:    "a late answer ends a readiness probe that is over",
		Edit:    Edit{"services/restore-runner/internal/restore/actions/prober.go", "if !slices.Contains(p.open, q) {", "if false {"},
		Package: "./services/restore-runner/internal/restore/actions", Test: "TestALateAnswerDoesNotChangeAProbeThatIsOver",
	},
	{
		Name:    "a hook's timeout of zero is not the default",
		Edit:    Edit{"pkg/spec/hook/hook.go", "if d == 0 {", "if d < 0 {"},
		Package: "./pkg/spec/hook", Test: "TestATimeoutOfZeroIsTheDefault",
	},
	{
		Name:    "a location that changed gets the result of its former spec",
		Edit:    Edit{"services/manifest-indexer/internal/locations/validator.go", "if specFingerprint(l) != spec {", "if false {"},
		Package: "./services/manifest-indexer/internal/locations", Test: "TestALocationThatChangesDuringItsValidationIsValidatedAgain",
	},
	{
		Name:    "a key leaves the prefix of its store",
		Edit:    Edit{"pkg/objectstore/prefix.go", "	if err := CheckKey(key); err != nil {\n		return \"\", err\n	}\n", ""},
		Package: "./pkg/objectstore", Test: "TestAKeyCannotLeaveItsPrefix",
	},
}
