// Package queue tests on a real cluster, with the services as separate processes, when backups and
// restores start: in their order, beside what they have nothing to do with, and never beside what
// they overlap with.
package queue
