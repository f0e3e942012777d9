package mutants

// The engine of jobs: pkg/job/engine.
var engine = []Mutant{
	{
		Name:    "a job that is interrupted frees the claim of another",
		Edit:    Edit{"pkg/job/engine/held.go", "if err := claim.Check(o, mine); err != nil {", "if err := claim.Check(o, mine); false {"},
		Package: "./services/deletion/internal/remove", Test: "TestAnInterruptedDeletionLeavesTheClaimOfAnother",
	},
	{
		Name:    "the end of a job is written by somebody who lost its claim",
		Edit:    Edit{"pkg/job/engine/held.go", "if err := claim.Check(o, mine); err != nil {", "if err := claim.Check(o, mine); false {"},
		Package: "./pkg/job/engine", Test: "TestAHolderStopsOnceItsClaimIsAnothers",
	},
	{
		Name:    "an end is written over another",
		Edit:    Edit{"pkg/job/engine/finish.go", "if cfg.Kind.Terminal(o) {", "if false {"},
		Package: "./pkg/job/engine", Test: "TestNothingIsWrittenOverAnEnd",
	},
	{
		Name:    "a job that ended is released",
		Edit:    Edit{"pkg/job/engine/release.go", "if e.cfg.Kind.Terminal(o) {", "if false {"},
		Package: "./pkg/job/engine", Test: "TestNothingIsWrittenOverAnEnd",
	},
	{
		Name:    "an end whose answer was lost is taken for another's",
		Edit:    Edit{"pkg/job/engine/finish.go", "	case sent[text]:\n", "	case sent[text] && len(sent) == 0:\n"},
		Package: "./pkg/job/engine", Test: "TestAnEndWhoseAnswerWasLostIsOurs",
	},
	{
		Name:    "a job whose holder lives counts as free",
		Edit:    Edit{"pkg/job/engine/observe.go", "	return e.cfg.Instance.Held(obj) == nil\n", "	return true || e.cfg.Instance.Held(obj) == nil\n"},
		Package: "./pkg/job/engine", Test: "TestFreeIsOnlyWhatIsCertainlyFree",
	},
	{
		Name:    "a claim is taken while the Lease declares more than the timeout",
		Edit:    Edit{"pkg/job/claim/instance.go", "\tif err := i.wakeLease(ctx); err != nil {\n", "\tif err := i.wakeLease(ctx); false && err != nil {\n"},
		Package: "./pkg/job/claim", Test: "TestTheLeaseIsRewrittenBeforeAClaim",
	},
	{
		Name:    "a holder is dead after the watcher's timeout, whatever its Lease declares",
		Edit:    Edit{"pkg/job/claim/watch.go", "w.answer.Sub(h.since) >= h.duration {\n", "w.answer.Sub(h.since) >= w.timeout {\n"},
		Package: "./pkg/job/claim", Test: "TestTheDeclaredDurationCounts",
	},
	{
		Name:    "a job that fails is begun again at once",
		Edit:    Edit{"pkg/job/engine/tracker.go", "	w.failed[uid] = w.clock.Now()\n", "	_ = w.failed\n"},
		Package: "./pkg/job/engine", Test: "TestAJobThatFailsRestsBeforeItIsBegunAgain",
	},
	{
		Name:    "the mark of the commit stays beside the phase",
		Edit:    Edit{"pkg/job/engine/finish.go", "			mark.ClearCommitting(o)\n", "			_ = mark.ClearCommitting\n"},
		Package: "./pkg/job/engine", Test: "TestAfterTheMarkOfTheCommitNobodyCancels",
	},
	{
		Name:    "a stopped job has no grace period",
		Edit:    Edit{"pkg/job/engine/context.go", "if grace > 0 {", "if false {"},
		Package: "./pkg/job/engine", Test: "TestAJobThatEndsInItsGracePeriodIsNotReleased",
	},
	{
		Name:    "a dead holder's job is not looked for",
		Edit:    Edit{"pkg/job/engine/takeover.go", "held.Owner != holder ||", "held.Owner == holder ||"},
		Package: "./pkg/job/engine", Test: "TestADeadHoldersJobsAreTakenOver",
	},
	{
		Name:    "an instance without a Lease ends the job of another",
		Edit:    Edit{"pkg/job/engine/claim.go", "if acquireErr != nil && !hasUnreadableClaim(o) {", "if held := new(claim.HeldError); errors.As(acquireErr, &held) {"},
		Package: "./pkg/job/engine", Test: "TestAnInstanceWithoutALeaseEndsNoJob",
	},
	{
		Name:    "a claim that was released is still confirmed",
		Edit:    Edit{"pkg/job/engine/release.go", "	h.over.Store(true)\n", ""},
		Package: "./pkg/job/engine", Test: "TestAHoldingThatEndedIsNotTheNextOne",
	},
	{
		Name:    "a claim is confirmed after the work ended",
		Edit:    Edit{"pkg/job/engine/hold.go", "	h.over.Store(true)\n", ""},
		Package: "./pkg/job/engine", Test: "TestAfterTheWorkNothingIsConfirmed",
	},
	{
		Name:    "a question about an old version makes an earlier holding of a job certain",
		Edit:    Edit{"pkg/job/claim/certainty.go", "	if t.acquired[uid].epoch >= epoch {", "	if false {"},
		Package: "./pkg/job/claim", Test: "TestTwoHoldingsOfAJobAreTwoClaims",
	},
	{
		Name:    "an end that another wrote is taken for the own one",
		Edit:    Edit{"pkg/job/engine/finish.go", "	case sent[text]:\n", "	case sent[text] || len(sent) > 0:\n"},
		Package: "./pkg/job/engine", Test: "TestAnEndThatDidNotArriveIsNotOurs",
	},
	{
		Name:    "only the latest attempt to end a job is recognized",
		Edit:    Edit{"pkg/job/engine/finish.go", "			sent[text] = true\n", "			clear(sent)\n			sent[text] = true\n"},
		Package: "./pkg/job/engine", Test: "TestAnEndThatArrivesLateIsOurs",
	},
	{
		Name: "a claim is released by one call or none",
		Edit: Edit{
			"pkg/job/engine/release.go", "	err = loop.Do(ctx, \"release the claim\", func() error {",
			"	_ = loop\n	err = (func(do func() error) error { return do() })(func() error {",
		},
		Package: "./pkg/job/engine", Test: "TestAReleaseIsTriedAgain",
	},
	{
		Name:    "a release whose answer was lost is taken for a lost claim",
		Edit:    Edit{"pkg/job/engine/release.go", "released = sent && isReleased(o, free); released {", "released = sent && isReleased(o, claim.Claim{}); released {"},
		Package: "./pkg/job/engine", Test: "TestAReleaseIsTriedAgain",
	},
	{
		Name:    "the claim of a job that ended is reported as released",
		Edit:    Edit{"pkg/job/engine/release.go", "	case !released:\n", "	case !released && e == nil:\n"},
		Package: "./pkg/job/engine", Test: "TestTheClaimOfAJobThatEndedIsNotLoggedAsReleased",
	},
	{
		Name:    "a job whose attempts panic never ends",
		Edit:    Edit{"pkg/job/engine/panic.go", "if c.Panics >= panicLimit {", "if c.Panics < 0 {"},
		Package: "./pkg/job/engine", Test: "TestAJobIsGivenUpAfterThreePanics",
	},
	{
		Name:    "a job that panics is given up although it progresses",
		Edit:    Edit{"pkg/job/engine/release.go", "if h.progressed.Load() {", "if false {"},
		Package: "./pkg/job/engine", Test: "TestProgressBetweenPanicsKeepsAJob",
	},
	{
		Name:    "work that hangs keeps its place after its claim was taken",
		Edit:    Edit{"pkg/job/engine/observe.go", "	e.abandonSuperseded(ctx, obj)\n", ""},
		Package: "./pkg/job/engine", Test: "TestAHungJobWithoutItsClaimIsBegunAgainHere",
	},
	{
		Name:    "a takeover that waits for a place is not reported",
		Edit:    Edit{"pkg/job/engine/waiting.go", "		e.reportWait(ctx, i)\n", "		_ = i\n"},
		Package: "./pkg/job/engine", Test: "TestATakeoverThatWaitsForAPlaceIsReported",
	},
}
