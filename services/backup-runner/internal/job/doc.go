// Package job takes Backups that are ready, claims them, and carries them from
// ReadyToStart to their terminal phase.
//
// The claim is written in the same patch as the phase. While it is held, the job
// runs under a context that ends when it is lost; then nothing more is written.
// Once the name is reserved in the bucket, the creation of velero-backup.json
// decides every terminal phase, and the custom resource is a copy of it.
package job
