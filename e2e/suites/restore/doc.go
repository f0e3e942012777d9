// Package restore holds scenarios of the restore-runner alone, on a real API server with its
// controllers: what Velero wrote comes back.
package restore
