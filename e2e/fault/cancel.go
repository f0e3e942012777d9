package fault

import (
	"context"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"

	holdfast "github.com/holdfast-io/holdfast/pkg/apis/holdfast"
	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/job/claim"
)

// beginCancelWaiting makes a backup that is cancelled before a runner works on it.
func beginCancelWaiting(ctx context.Context, b *Bed, name string) error {
	backup := &velerov1.Backup{ObjectMeta: namedMeta(name), Spec: velerov1.BackupSpec{IncludedNamespaces: []string{small}}}
	backup.Annotations = map[string]string{holdfast.AnnotationCancel: "alice"}
	return b.apiClient.createObject(ctx, backup)
}

// becomeHolder makes this process a living holder of claims, one that obeys no request: a dead
// one's job would be a runner's to take.
func becomeHolder(ctx context.Context, b *Bed, name string) error {
	holder := claim.NewInstance(claim.Config{
		Reader: b.client, Client: b.client, Namespace: server, Name: holderOf(name), Timeout: 2 * time.Second,
		Clock: clock.RealClock{}, Log: slog.New(slog.DiscardHandler),
	})
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = holder.Run(ctx) // always nil
	}()
	b.leave = func() {
		cancel()
		<-ended
	}
	return pollUntil(ctx, patience, "the holder is alive", func() (bool, error) { return holder.Ready(), nil })
}

func leaveClaim(_ context.Context, b *Bed, _ string) error {
	b.leave()
	return nil
}

func holderOf(job string) string { return "nobody-" + job }

// beginCancel makes a backup whose holder neither stops nor dies before the deadline is over.
func beginCancel(ctx context.Context, b *Bed, name string) error {
	backup := &velerov1.Backup{ObjectMeta: namedMeta(name), Spec: velerov1.BackupSpec{IncludedNamespaces: []string{small}, StorageLocation: location}}
	backup.Annotations = map[string]string{holdfast.AnnotationCancel: "alice"}
	start := metav1.Now()
	backup.Status = velerov1.BackupStatus{Phase: velerov1.BackupPhaseInProgress, StartTimestamp: &start}
	if err := claim.Set(backup, claim.Claim{Owner: holderOf(name), Epoch: 1}); err != nil {
		return err
	}
	return b.apiClient.createObject(ctx, backup)
}

func observeCancelWaiting(ctx context.Context, b *Bed, name string) (Facts, error) {
	backup, err := b.apiClient.awaitEnded(ctx, name)
	if err != nil {
		return nil, err
	}
	keys, err := b.bucket.listKeys(filepath.Join("backups", name))
	if err != nil {
		return nil, err
	}
	f := Facts{"phase": string(backup.Status.Phase), "reason": backup.Status.FailureReason}
	f.addPrefixed("key ", keys)
	return f, b.apiClient.awaitReleased(ctx, backup)
}

func observeCancel(ctx context.Context, b *Bed, name string) (Facts, error) {
	backup, err := b.apiClient.awaitEnded(ctx, name)
	if err != nil {
		return nil, err
	}
	dir := filepath.Join("backups", name)
	f := Facts{"phase": string(backup.Status.Phase), "reason": backup.Status.FailureReason, "errors": fmt.Sprint(backup.Status.Errors)}
	keys, err := b.bucket.listKeys(dir)
	if err != nil {
		return nil, err
	}
	for key := range keys { // parts go with the sweep
		if !strings.HasPrefix(key, "parts/") {
			f["key "+strings.ReplaceAll(key, name, "NAME")] = "there"
		}
	}
	if err := b.bucket.checkCommitted(backup, dir); err != nil {
		return nil, err
	}
	return f, b.apiClient.awaitReleased(ctx, backup)
}
