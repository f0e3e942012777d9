package mutants

// Which jobs may run, and for which namespaces: queue-scheduler and the ledger.
var queue = []Mutant{
	{
		Name: "a pattern admits an excluded namespace", Edit: Edit{
			"services/queue-scheduler/internal/queue/resolve.go",
			"excludes = slices.Concat(excludes, l.excluded)",
			"_ = excludes",
		},
		Package: "./services/queue-scheduler/internal/queue", Test: "TestANamespaceThatIsExcludedIsNotAdmitted",
	},
	{
		Name: "all namespaces include an excluded one", Edit: Edit{
			"services/queue-scheduler/internal/queue/resolve.go",
			"return ledger.AllBut(l.excluded)",
			"return []string{ledger.All}",
		},
		Package: "./services/queue-scheduler/internal/queue", Test: "TestANamespaceThatIsExcludedIsNotAdmitted",
	},
	{
		Name: "the entry of a restore stays while another has its name", Edit: Edit{
			"services/queue-scheduler/internal/queue/release.go",
			"r.Status.Phase != velerov1.RestorePhaseInProgress, r.UID != e.UID, nil",
			"r.Status.Phase != velerov1.RestorePhaseInProgress, false, nil",
		},
		Package: "./services/queue-scheduler/internal/queue", Test: "TestAnEntryWhoseNameBelongsToAnotherObjectIsReleased",
	},
	{
		Name: "the entry of a backup stays while another has its name", Edit: Edit{
			"services/queue-scheduler/internal/queue/release.go",
			"b.UID != e.UID, nil",
			"false, nil",
		},
		Package: "./services/queue-scheduler/internal/queue", Test: "TestAnEntryWhoseNameBelongsToAnotherObjectIsReleased",
	},
	{
		Name: "a backup becomes ready without an entry in the ledger", Edit: Edit{
			"services/queue-scheduler/internal/queue/backups.go",
			"if !admitted {\n\t\t\treturn kube.ErrSkip",
			"if false {\n\t\t\treturn kube.ErrSkip",
		},
		Package: "./services/queue-scheduler/internal/queue", Test: "TestABackupWithoutAnEntryDoesNotBecomeReady",
	},
	{
		Name: "a pass goes by a cache that is older than the writes of its process", Edit: Edit{
			"services/queue-scheduler/internal/queue/ownwrites.go",
			"ok && isOlder(listed, own)",
			"ok && false",
		},
		Package: "./services/queue-scheduler/internal/queue", Test: "TestAPassIsAtLeastAsNewAsItsOwnWrites",
	},
	{
		Name: "a restore that another replica validated is judged by its computed spec", Edit: Edit{
			"services/queue-scheduler/internal/queue/restorevalidation.go",
			"if again {\n\t\t\tjudge",
			"if false {\n\t\t\tjudge",
		},
		Package: "./services/queue-scheduler/internal/queue", Test: "TestARestoreThatAnotherReplicaValidatedIsNotJudgedAgain",
	},
	{
		Name: "an ended backup stays whole in the cache", Edit: Edit{
			"services/queue-scheduler/internal/queue/jobcache.go",
			"stripped := &velerov1.Backup{ObjectMeta: stripMeta(&o.ObjectMeta)}",
			"stripped := &velerov1.Backup{ObjectMeta: stripMeta(&o.ObjectMeta), Spec: o.Spec}",
		},
		Package: "./services/queue-scheduler/internal/metrics", Test: "TestGaugesReadStrippedJobs",
	},
	{
		Name: "a backup expires by the default ttl", Edit: Edit{
			"pkg/job/validate/defaults.go",
			"ExpirationAt(v.Clock.Now(), spec.TTL.Duration)",
			"ExpirationAt(v.Clock.Now(), v.Defaults.TTL)",
		},
		Package: "./pkg/job/validate", Test: "TestABackupExpiresByItsOwnTTL",
	},
	{
		Name: "spec.ttl is ignored", Edit: Edit{
			"pkg/job/validate/defaults.go",
			"orDefault(&spec.TTL, v.Defaults.TTL)",
			"spec.TTL.Duration = v.Defaults.TTL",
		},
		Package: "./pkg/job/validate", Test: "TestABackupExpiresByItsOwnTTL",
	},
	{
		Name: "the exclude label counts with any value", Edit: Edit{
			"pkg/job/validate/cache.go",
			`Labels[velerov1.LabelExcludeFromBackup] == "true" {`,
			`Labels[velerov1.LabelExcludeFromBackup] != "" {`,
		},
		Package: "./pkg/job/validate", Test: "TestANamespaceLabelledFalseIsNotExcluded",
	},
	{
		Name: "a later admission is withdrawn", Edit: Edit{
			"pkg/job/ledger/ledger.go",
			"!found || !stored.Since.Equal(e.Since) {",
			"!found || stored.Since.IsZero() {",
		},
		Package: "./pkg/job/ledger", Test: "TestWithdrawLeavesALaterAdmission",
	},
	{
		Name: "the locks of other jobs go with an entry", Edit: Edit{
			"pkg/job/ledger/volume.go",
			"strings.HasPrefix(key, volumePrefix) && holder == string(uid)",
			`strings.HasPrefix(key, volumePrefix) && holder != ""`,
		},
		Package: "./pkg/job/ledger", Test: "TestAJobThatLeavesKeepsTheVolumesOfOthersLocked",
	},
	{
		Name: "a lock outlives its job", Edit: Edit{
			"pkg/job/ledger/volume.go",
			"case holder != \"\" && b.hasEntry(holder):",
			`case holder != "":`,
		},
		Package: "./pkg/job/ledger", Test: "TestALockWithoutItsJobIsNone",
	},
	{
		Name: "a backup that waits reserves nothing", Edit: Edit{
			"services/queue-scheduler/internal/queue/reservations.go",
			"func (r *namespaceReservations) addReservation(name string, namespaces []string) {",
			"func (r *namespaceReservations) addReservation(name string, namespaces []string) {\n\tnamespaces = nil",
		},
		Package: "./services/queue-scheduler/internal/queue", Test: "TestModel",
	},
	{
		Name: "priority counts past an overlap", Edit: Edit{
			"services/queue-scheduler/internal/queue/order.go",
			"l.inheritClass(&waiting[i])",
			"_, _ = l, i",
		},
		Package: "./services/queue-scheduler/internal/queue", Test: "TestModel",
	},
	{
		Name: "a backup that is ready to start loses its entry", Edit: Edit{
			"services/queue-scheduler/internal/queue/release.go",
			"velerov1.BackupPhaseReadyToStart, velerov1.BackupPhaseInProgress:",
			"velerov1.BackupPhaseInProgress:",
		},
		Package: "./services/queue-scheduler/internal/queue", Test: "TestModel",
	},
	{
		Name: "a backup that finalizes keeps its entry", Edit: Edit{
			"services/queue-scheduler/internal/queue/release.go",
			"velerov1.BackupPhaseReadyToStart, velerov1.BackupPhaseInProgress:",
			"velerov1.BackupPhaseReadyToStart, velerov1.BackupPhaseInProgress, velerov1.BackupPhaseFinalizing:",
		},
		Package: "./services/queue-scheduler/internal/queue", Test: "TestModel",
	},
	{
		Name: "the entry of a job goes with its object at once", Edit: Edit{
			"services/queue-scheduler/internal/queue/release.go",
			">= s.ClaimTimeout",
			">= 0",
		},
		Package: "./services/queue-scheduler/internal/queue", Test: "TestModel",
	},
	{
		Name:    "a cancelled job is taken over although the request was withdrawn",
		Edit:    Edit{"services/queue-scheduler/internal/cancellation/deadline.go", "!asked || k.stage(o)", "!asked && c == nil || k.stage(o)"},
		Package: "./services/queue-scheduler/internal/cancellation", Test: "TestAWithdrawnRequest",
	},
}
