// Package pausing pauses the objects of a restore whose operators allow it, and resumes them when the
// restore ends. plan.PauseRules are the rules.
//
// A Pauser marks an object before it is created. Objects.Resume brings the marks back that a recorder
// has. A Resumer does so from the records of a restore alone, without its Backup, plan or holder, and
// Task for restores that no runner works on any more.
package pausing
