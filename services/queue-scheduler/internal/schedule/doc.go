// Package schedule makes Backups when Schedules are due.
//
// No state is kept between passes: which slot is due follows from the Schedule alone
// (status.lastBackup, status.lastSkipped, its creation, and the annotation active-schedule, which
// tells a change of its spec from downtime), so a restart or a new leader neither
// misses nor repeats one. A slot is first reserved in the Schedule, by compare-and-swap, and its
// Backup is created afterwards under a name made of the slot's time. Any replica that finds a
// reservation completes it; a second creation is AlreadyExists. Any number of replicas may
// therefore pass at once, and one that was paused anywhere does no harm.
package schedule
