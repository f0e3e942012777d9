package mutants

import "slices"

// Table is every mutant that a test of its own kills.
func Table() []Mutant {
	return slices.Concat(claims, engine, queue, ownership, backups, restores, deletions, checks)
}

// Processes are mistakes that only processes show which are killed or stopped in the middle of a
// job, by name. Package e2e/fault builds services with them, which its cases must notice.
var Processes = map[string][]Edit{
	// The woken process continues to the end of a job that is not its own any more.
	"nofence": {claimUnchecked, journalUnfenced, laterClaimUnseen},
	// The successor reads the record of a part that does not exist.
	"earlycheckpoint": {recordBeforePart, noRecordAfterPart},
	// The successor reads the outcome of an object that does not exist.
	"earlyack": {outcomeBeforeObject},
	// The successor does not know of a paused owner.
	"pauseunrecorded": {pauseUnrecorded},
	// The successor takes a snapshot that the dead process had announced.
	"snapshotagain": {announcedSnapshotTaken},
	// The successor makes a call that the dead process had announced.
	"callagain": {announcedCallMade},
}

var (
	claimUnchecked = Edit{
		"pkg/job/claim/annotation.go",
		"	switch c, ok, err := Parse(obj); {\n",
		"	switch c, ok, err := Parse(obj); {\n	case true:\n		return nil\n",
	}
	journalUnfenced = Edit{
		"pkg/job/journal/journal.go",
		"	if err != nil || bytes.Equal(stored, data)",
		"	if true || err != nil || bytes.Equal(stored, data)",
	}
	laterClaimUnseen = Edit{
		"pkg/job/engine/observe.go",
		"	if work == nil {\n		return\n	}\n	e.cfg.Log.WarnContext(",
		"	if true || work == nil {\n		return\n	}\n	e.cfg.Log.WarnContext(",
	}
	recordBeforePart = Edit{
		"services/backup-runner/internal/collect/partwriter/deliver.go",
		"\tif b.spool != nil {\n\t\tif err := c.createObject(",
		"\tif err := c.recordPart(ctx, &b.record); err != nil {\n\t\treturn err\n\t}\n\tif b.spool != nil {\n\t\tif err := c.createObject(",
	}
	noRecordAfterPart = Edit{
		"services/backup-runner/internal/collect/partwriter/deliver.go",
		"\terr := c.recordPart(ctx, &b.record)\n\tif errors.Is(err, journal.ErrFenced)",
		"	var err error\n	if errors.Is(err, journal.ErrFenced)",
	}
	pauseUnrecorded = Edit{
		"services/restore-runner/internal/outcome/paused.go",
		"	e := r.Begin(General)\n	e.record.Paused = p\n	e.Commit()\n",
		"\tr.mu.Lock()\n\tdefer r.mu.Unlock()\n\tputLazy(&r.paused, p.Target, p)\n",
	}
	announcedSnapshotTaken = Edit{
		"services/backup-runner/internal/collect/volumes/decide.go",
		"; begun {\n",
		"; begun && d.name == \"\" {\n",
	}
	announcedCallMade = Edit{
		"services/restore-runner/internal/restore/actions/once.go",
		"\tcase (announced || c.History.NoHistory) && !repeatable:\n",
		"\tcase announced && c.History.NoHistory && !repeatable:\n",
	}
	outcomeBeforeObject = Edit{
		"services/restore-runner/internal/restore/create.go",
		"	failpoint.Hit(\"restore-runner/before-create\")\n",
		"	early := c.creator.Recorder.Begin(o.Node)\n	early.Done(apply.Created, \"\")\n	early.Commit()\n	_ = c.creator.Recorder.Sync(ctx)\n" +
			"	failpoint.Hit(\"restore-runner/before-create\")\n",
	}
)
