package mutants

// How a backup is made: backup-runner and pkg/archive.
var backups = []Mutant{
	{
		Name: "a part is recorded before it is in the bucket", Edit: recordBeforePart, Also: []Edit{noRecordAfterPart},
		Package: "./services/backup-runner/internal/collect", Test: "TestDeathAtEachWrite",
	},
	{
		Name: "a new backup goes on with the cut of nothing", Edit: Edit{
			"services/backup-runner/internal/collect/resume.go",
			"if len(keys) > 0 {",
			"if true {",
		},
		Package: "./services/backup-runner/internal/collect", Test: "TestAKindInAStorageOfItsOwn",
	},
	{
		Name: "a successor takes a cut of its own", Edit: Edit{
			"services/backup-runner/internal/collect/resume.go",
			"r.job.Cut.Restore(r.past.Revisions)",
			"",
		},
		Package: "./services/backup-runner/internal/collect", Test: "TestASuccessorKeepsTheRecordedCut",
	},
	{
		Name: "a cut restored from nothing is taken", Edit: Edit{
			"services/backup-runner/internal/cut/cut.go",
			`c.off, c.current, c.previous = len(revisions) == 0, "", nil`,
			`c.off, c.current, c.previous = false, "", nil`,
		},
		Package: "./services/backup-runner/internal/cut", Test: "TestACutRestoredFromNothingStaysOff",
	},
	{
		Name: "the cut of a namespace does not say where it begins", Edit: Edit{
			"services/backup-runner/internal/finalize/cuts.go",
			`if c.From == "" && r.Namespace != "" {`,
			"if false {",
		},
		Package: "./services/backup-runner/internal/finalize", Test: "TestTheCutOfANamespaceBeginsWithIt",
	},
	{
		Name: "an action returns an object of another group", Edit: Edit{
			"services/backup-runner/internal/collect/actionset/object.go",
			"id.Kind.GroupKind() != was.Kind.GroupKind()",
			"id.Kind.Kind != was.Kind.Kind",
		},
		Package: "./services/backup-runner/internal/collect/actionset", Test: "TestWhatFailsAnObject/another_group",
	},
	{
		Name: "an action returns an object of another namespace", Edit: Edit{
			"services/backup-runner/internal/collect/actionset/object.go",
			"id.Namespace != was.Meta.Namespace ||",
			"false ||",
		},
		Package: "./services/backup-runner/internal/collect/actionset", Test: "TestWhatFailsAnObject/another_namespace",
	},
	{
		Name: "a terminal phase is overwritten", Edit: Edit{
			"pkg/job/engine/finish.go",
			"if cfg.Kind.Terminal(o) {",
			"if false {",
		},
		Package: "./services/backup-runner/internal/job", Test: "TestATerminalPhaseIsNeverOverwritten",
	},
	{
		Name: "the expiration is dropped at the end", Edit: Edit{
			"services/backup-runner/internal/job/holder.go",
			"b.Status.Expiration = expiration",
			"_ = expiration",
		},
		Package: "./services/backup-runner/internal/job", Test: "TestTheExpirationOutlivesTheEnd",
	},
	{
		Name: "what a holder writes is not checked against the claim", Edit: Edit{
			"pkg/job/engine/held.go",
			"if err := claim.Check(o, mine); err != nil {\n\t\t\treturn err\n\t\t}",
			"_ = claim.Check",
		},
		Package: "./services/backup-runner/internal/job", Test: "TestTheCommitIsNotMarkedOverAnothersClaim",
	},
	{
		Name: "a backup without an entry in the ledger is claimed", Edit: Edit{
			"services/backup-runner/internal/job/admit.go",
			"if !admitted {",
			"if !admitted && false {",
		},
		Package: "./services/backup-runner/internal/job", Test: "TestNothingToDo",
	},
	{
		Name: "post hooks wait for a bucket that is away", Edit: Edit{
			"services/backup-runner/internal/job/hooks.go",
			"				a.runHooksEarly(ctx)\n",
			"				_ = a.runHooksEarly\n",
		},
		Package: "./services/backup-runner/internal/job", Test: "TestABucketThatIsAwayLeavesNoPodFrozen",
	},
	{
		Name: "the post hooks of a deleted backup do not run", Edit: Edit{
			"services/backup-runner/internal/job/lost.go",
			"if why == lossTaken {",
			"if why != lossEnded {",
		},
		Package: "./services/backup-runner/internal/job", Test: "TestALostBackupLeavesNoPodFrozen",
	},
	{
		Name: "a Pod whose post hooks ran early is taken for one between its hooks", Edit: Edit{
			"services/backup-runner/internal/collect/podhook/run.go",
			"if !p.owed && o.ranEarly() {",
			"if false {",
		},
		Package: "./services/backup-runner/internal/collect/podhook", Test: "TestPostHooksThatRunEarly",
	},
	{
		Name: "the records of owed post hooks are swept", Edit: Edit{
			"services/deletion/internal/sweep/inspector.go",
			"&& !mark.PostHooksOf(b).Owed {",
			"&& mark.PostHooksOf(b).UID != \"?\" {",
		},
		Package: "./services/deletion/internal/sweep", Test: "TestRecordsOfABackupThatOwesPostHooksStay",
	},
	{
		Name: "a Pod without hooks has a claim cut that others share", Edit: Edit{
			"services/backup-runner/internal/collect/acting/hooked.go",
			"if a.Items.Result(claim) == itemset.Unknown {",
			"if false {",
		},
		Package: "./services/backup-runner/internal/collect", Test: "TestAnUnselectedClaimIsBackedUpBetweenHooks",
	},
	{
		Name: "a busy volume holds up the claims behind it", Edit: Edit{
			"pkg/extension/csisnapshot/lock.go",
			"s.beginSnapshot(ctx, of, places)",
			"s.beginSnapshot(ctx, of, places); s.Wait()",
		},
		Package: "./pkg/extension/csisnapshot", Test: "TestABusyVolumeDelaysNoOtherClaim",
	},
	{
		Name: "the content of a CSI snapshot is removed before its VolumeSnapshot", Edit: Edit{
			"pkg/extension/csisnapshot/cleanup.go",
			"a.markDeleted(ctx, p, policy); err != nil",
			"errors.Join(a.markDeleted(ctx, p, policy), a.deleteObject(ctx, p.content)); err != nil",
		},
		Package: "./pkg/extension/csisnapshot", Test: "TestASnapshotThatABackupNamesOutlivesTheSlowRemovalOfItsObjects",
	},
	{
		Name: "a content that is removed before it was labelled cannot be found by labels", Edit: Edit{
			"pkg/extension/csisnapshot/cleanup.go",
			"inheritLabels(changed, p.snapshot.Labels)",
			"inheritLabels(changed, nil)",
		},
		Package: "./pkg/extension/csisnapshot", Test: "TestAContentThatWasNotDescribedIsFoundAfterItsMarkWasOverwritten",
	},
	{
		Name: "a CSI snapshot is ready before its VolumeSnapshot is", Edit: Edit{
			"pkg/extension/csisnapshot/begin.go",
			"return s != nil && ptr.Deref(s.ReadyToUse, false) && p.content",
			"return s != nil && p.content",
		},
		Package: "./pkg/extension/csisnapshot", Test: "TestASnapshotIsReadyOnceBothItsObjectsAre",
	},
	{
		Name: "a successor forgets which claims have a request", Edit: Edit{
			"pkg/extension/podvolume/survey.go",
			"b.taken[client.ObjectKey{Namespace: pvb.Spec.Pod.Namespace, Name: claim}] = pvb.Spec.Pod.Name",
			"_ = claim",
		},
		Package: "./pkg/extension/podvolume", Test: "TestARepeatedCallMakesNoSecondRequest",
	},
	{
		Name: "a request that was removed is no failure", Edit: Edit{
			"pkg/extension/podvolume/operations.go",
			"missing := begun - len(all); missing > 0",
			"missing := 0; missing > 0",
		},
		Package: "./pkg/extension/podvolume", Test: "TestARemovedRequestFailsItsOperation",
	},
	{
		Name: "post hooks do not wait for the data of their Pods", Edit: Edit{
			"services/backup-runner/internal/collect/acting/lanes.go",
			"if l.pool.PodVolumes == nil || len(pods) == 0 {",
			"if true {",
		},
		Package: "./services/backup-runner/internal/collect", Test: "TestAStoppedWaitLeavesThePostHooks",
	},
	{
		Name: "a volume that is taken with its Pod gets a snapshot too", Edit: Edit{
			"services/backup-runner/internal/collect/volumes/decide.go",
			"	case taken:\n",
			"	case taken && d.name == \"\":\n",
		},
		Package: "./services/backup-runner/internal/collect", Test: "TestAClaimIsTakenWithItsPodOrByASnapshot",
	},
	{
		Name: "messages of an action are lost with its process", Edit: Edit{
			"services/backup-runner/internal/collect/acting/calls.go",
			"r.Additional, r.Notes = effect.Items(out.Additional), out.Notes",
			"r.Additional = effect.Items(out.Additional)",
		},
		Package: "./services/backup-runner/internal/collect", Test: "TestATakeoverMakesNoSecondRequest",
	},
	{
		Name: "a successor lists the requests as they are by now", Edit: Edit{
			"services/backup-runner/internal/finalize/podvolumes.go",
			"if !errors.Is(err, objectstore.ErrNotFound) {",
			"if false {",
		},
		Package: "./services/backup-runner/internal/finalize", Test: "TestASuccessorFollowsTheListOfRequests",
	},
}
