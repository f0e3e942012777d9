package queue

import "testing"

// span is when a job ran, by revisions: from before until after it did anything.
type span struct{ from, begun, end int64 }

func (s span) meetsSpan(o span) bool { return s.from < o.end && o.from < s.end }

// runsTogether reports that both were in the middle of their work at one moment.
func (s span) runsTogether(o span) bool { return s.begun < o.end && o.begun < s.end }

// backupRan returns when a backup held its place: from ReadyToStart until past InProgress.
func (b *bed) backupRan(t *testing.T, name string) span {
	t.Helper()
	return span{
		from:  b.History.Reaches(t, "Backup", name, "ReadyToStart").Revision,
		begun: b.History.Reaches(t, "Backup", name, "InProgress").Revision,
		end:   b.History.Reaches(t, "Backup", name, "WaitingForPluginOperations", "Finalizing", "Completed", "PartiallyFailed", "Failed").Revision,
	}
}

// restoreRan returns when a restore was in progress.
func (b *bed) restoreRan(t *testing.T, name string) span {
	t.Helper()
	begun := b.History.Reaches(t, "Restore", name, "InProgress").Revision
	return span{from: begun, begun: begun, end: b.History.Reaches(t, "Restore", name, "WaitingForPluginOperations", "Finalizing", "Completed", "PartiallyFailed", "Failed").Revision}
}
