// Package podvolume moves the data of Pod volumes with file-system backups: the action that a
// backup runs on Pods, the requests that it makes, and the progress of their operations. The
// requests are Velero 1.18's PodVolumeBackups and PodVolumeRestores, so that volume-mover or
// Velero's node-agent serves them. It answers about the operations of moved CSI snapshots, too, whose
// requests are DataUploads and DataDownloads.
//
// A request is named after the idempotency key of the call that makes it. A repetition of the call
// finds the existing request, and makes no second one.
package podvolume

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-io/holdfast/pkg/kube/retry"
)

// Names of the actions.
const (
	NameBackup  = "holdfast.io/pod-volume-backup"
	NameRestore = "holdfast.io/pod-volume-restore"
	// NameUpload and NameDownload are Velero 1.18's, of operations with one DataUpload or DataDownload.
	NameUpload   = "velero.io/csi-pvc-backupper"
	NameDownload = "velero.io/csi-pvc-restorer"
)

const (
	// LabelOperation on a request is the hash of the operation that it belongs to, see Hash.
	LabelOperation = "holdfast.io/volume-operation"
	// AnnotationCancelReason on a request is why Holdfast cancelled it.
	AnnotationCancelReason = "holdfast.io/cancel-reason"
)

// PrepareTimeout is how long a request may wait until a controller accepts it.
const PrepareTimeout = 30 * time.Minute

// API is the cluster's API server. Every field is required.
type API struct {
	// Reader is uncached.
	Reader client.Reader
	Client client.Client
	// Namespace is the server's, where the requests are.
	Namespace string
	Clock     clock.WithTicker
	Log       *slog.Logger
}

// Lengths, in characters: nameLength keeps a request's name usable as the value of a label.
const (
	nameLength   = 63
	digitsLength = 12
	hashLength   = 32
)

func hexDigits(text string, length int) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:])[:length]
}

// Hash returns the hash of an idempotency key that names an operation.
func Hash(key string) string { return hexDigits(key, hashLength) }

// RequestName names the request of one volume: job is the name of the Backup or Restore, identity
// tells the volume from all others of the job.
func RequestName(job, identity string) string {
	job = strings.TrimRight(job[:min(len(job), nameLength-1-digitsLength)], "-.")
	return job + "-" + hexDigits(identity, digitsLength)
}

// retryCall repeats a call of the API server while it is away.
func (a API) retryCall(ctx context.Context, what string, do func() error) error {
	err := retry.Loop{Clock: a.Clock, Log: a.Log}.Do(ctx, what, do)
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return context.Cause(ctx)
	}
	return fmt.Errorf("%s: %w", what, err)
}
