// Package schedule tests on a real cluster that a Schedule makes Backups, which run.
package schedule
