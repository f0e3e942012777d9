package mutants

// How a backup is deleted: deletion.
var deletions = []Mutant{
	{
		Name: "other requests are left behind by a deletion that succeeded",
		Edit: Edit{
			"services/deletion/internal/remove/requests.go", "if o := &others[i]; o.Labels[velerov1.LabelBackupUID] == uid {",
			"if o := &others[i]; o.Name == uid {",
		},
		Package: "./services/deletion/internal/remove", Test: "TestOtherRequestsGoWithTheBackup",
	},
	{
		Name: "requests for another backup of the name go too",
		Edit: Edit{
			"services/deletion/internal/remove/requests.go", "if o := &others[i]; o.Labels[velerov1.LabelBackupUID] == uid {",
			"if o := &others[i]; o.Name != uid {",
		},
		Package: "./services/deletion/internal/remove", Test: "TestOtherRequestsGoWithTheBackup",
	},
	{
		Name: "failures of an earlier request stay beside those of the new one",
		Edit: Edit{
			"services/deletion/internal/remove/requests.go", "o.Status.Phase == velerov1.DeleteBackupRequestPhaseProcessed {", "o.Status.Phase == \"\" {",
		},
		Package: "./services/deletion/internal/remove", Test: "TestARequestReplacesTheFailuresBeforeIt",
	},
}
