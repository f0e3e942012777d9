// Package job carries Backups that are admitted from ReadyToStart to their terminal phase, as a
// kind of package engine.
//
// Kind decides which backups are taken up and when; an attempt is one run of one backup. It opens
// the bucket, reserves the backup's name there, and takes the steps of package finalize, of which
// the first one collects. From the reservation on the creation of velero-backup.json decides every
// terminal phase, and the custom resource is a copy of it.
package job
