package mutants

// Whose an object, a claim or an answer is, and what bytes are: what is compared before an effect.
var ownership = []Mutant{
	{
		Name:    "an end is written over a terminal phase",
		Edit:    Edit{"pkg/job/engine/finish.go", "if cfg.Kind.Terminal(o) {", "if cfg.Kind.Terminal(o) && cfg.Service == \"\" {"},
		Package: "./services/restore-runner/internal/job", Test: "TestATerminalPhaseIsNeverOverwritten",
	},
	{
		Name: "a job frees the claim of another holder",
		Edit: Edit{
			"pkg/job/engine/held.go", "if err := claim.Check(o, mine); err != nil {", "if err := claim.Check(o, mine); err != nil && o.GetName() == \"\" {",
		},
		Package: "./services/restore-runner/internal/job", Test: "TestAnInterruptedRestoreFreesItsOwnClaimAlone",
	},
	{
		Name: "a job frees the claim of another of its name",
		Edit: Edit{
			"pkg/job/engine/held.go", "	err := kube.Update(ctx, r, w, obj, mutate)",
			"	obj.SetUID(\"\")\n	err := kube.Update(ctx, r, w, obj, mutate)",
		},
		Package: "./services/restore-runner/internal/job", Test: "TestAnInterruptedRestoreFreesItsOwnClaimAlone",
	},
	{
		Name:    "a write does not compare the UID",
		Edit:    Edit{"pkg/kube/update.go", "if uid != \"\" && fresh.GetUID() != uid {", "if uid == \"?\" {"},
		Package: "./pkg/kube", Test: "TestUpdateNoticesReplacementAndAbsence",
	},
	{
		Name:    "a plugin answers with the object of another namespace",
		Edit:    Edit{"pkg/extension/pluginhost/convert.go", "&& is.Namespace == was.Namespace && is.Name", "&& is.Name"},
		Package: "./pkg/extension/pluginhost", Test: "TestAnAnswerIsTheObjectThatWasSent",
	},
	{
		Name:    "a plugin answers with a kind of another group",
		Edit:    Edit{"pkg/extension/pluginhost/convert.go", "is.Kind.GroupKind() == was.Kind.GroupKind()", "is.Kind.Kind == was.Kind.Kind"},
		Package: "./pkg/extension/pluginhost", Test: "TestAnAnswerIsTheObjectThatWasSent",
	},
	{
		Name:    "a restore item action changes the group",
		Edit:    Edit{"services/restore-runner/internal/restore/object/changed.go", "if gvk.GroupKind() == planned.GVK.GroupKind() {", "if gvk.Kind == planned.GVK.Kind {"},
		Package: "./services/restore-runner/internal/restore", Test: "TestAnActionsFailureCostsItsObject",
	},
	{
		Name:    "owner references are added without the UID of the child",
		Edit:    Edit{"services/restore-runner/internal/apply/owners.go", "{\"test\", \"/metadata/uid\", o.UID}, ", ""},
		Package: "./services/restore-runner/internal/apply", Test: "TestAnotherObjectOfTheNameGetsNoOwner",
	},
	{
		Name:    "a child is read again without comparing its UID",
		Edit:    Edit{"services/restore-runner/internal/apply/owners.go", "if types.UID(textOf(meta, \"uid\")) != o.UID {", "if false {"},
		Package: "./services/restore-runner/internal/apply", Test: "TestAnotherObjectOfTheNameGetsNoOwner",
	},
	{
		Name:    "a sidecar is merged whatever its hash",
		Edit:    Edit{"pkg/archive/assembly/sidecar.go", "p.SidecarSHA256 != \"\" && got != p.SidecarSHA256 {", "false {"},
		Package: "./pkg/archive/assembly", Test: "TestASidecarWithAnotherHashIsRefused",
	},
	{
		Name: "a successor reads a spool whatever its hash",
		Edit: Edit{
			"services/backup-runner/internal/itemset/fetch.go", "if n != size || hex.EncodeToString(hash.Sum(nil)) != sum {",
			"if n != size || hex.EncodeToString(hash.Sum(nil)) == \"\" {",
		},
		Package: "./services/backup-runner/internal/collect", Test: "TestHeldObjectsWithAnotherHashEndTheJob",
	},
	{
		Name: "an object that is longer is adopted",
		Edit: Edit{
			"pkg/archive/assembly/compose.go", "io.LimitReader(rc, 1)); err != nil || n > 0 {", "io.LimitReader(rc, 1)); err != nil && n == 0 {",
		},
		Package: "./pkg/archive/assembly", Test: "TestAnObjectThatIsLongerIsNotAdopted",
	},
	{
		Name:    "an object of other bytes is adopted",
		Edit:    Edit{"pkg/archive/assembly/compose.go", "if p.sha256 != \"\" && hex.EncodeToString(h.Sum(nil)) != p.sha256 {", "if hex.EncodeToString(h.Sum(nil)) == p.name {"},
		Package: "./pkg/archive/assembly", Test: "TestATarballWithOtherBytesOfAPartIsNotAdopted",
	},
	{
		Name:    "the log of a failed restore does not say why",
		Edit:    Edit{"services/restore-runner/internal/outcome/recorder.go", "\"restore failed: \"+finished.Reason", "\"restore failed\""},
		Package: "./services/restore-runner/internal/job", Test: "TestAFailedRestoreLeavesItsLog",
	},
	{
		Name:    "log and results of a failed backup do not say why",
		Edit:    Edit{"pkg/archive/commit/explain.go", "Message: \"Backup failed\", Err: failure.Reason,", "Message: \"Backup failed\","},
		Package: "./pkg/archive/commit", Test: "TestExplainLeavesLogAndResults",
	},
	{
		Name: "the owner file of a dead backup goes although its objects stay",
		Edit: Edit{
			"services/backup-runner/internal/job/reserve.go", "\tif err != nil {\n\t\treturn err\n\t}\n\towner, err := d.readOwner(ctx)",
			"\t_ = err\n\towner, err := d.readOwner(ctx)",
		},
		Package: "./services/backup-runner/internal/job", Test: "TestADirectoryThatCannotBeSweptKeepsItsOwnerFile",
	},
}
