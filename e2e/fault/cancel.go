package fault

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"

	holdfast "github.com/holdfast-io/holdfast/pkg/apis/holdfast"
	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/claim"
)

// beginCancelWaiting makes a backup that is cancelled before anybody works on it.
func beginCancelWaiting(ctx context.Context, b *Bed, name string) error {
	backup := &velerov1.Backup{ObjectMeta: named(name), Spec: velerov1.BackupSpec{IncludedNamespaces: []string{small}}}
	backup.Annotations = map[string]string{holdfast.AnnotationCancel: "alice"}
	return b.create(ctx, backup)
}

// becomeHolder makes this process a living holder of claims, one that heeds no request: a dead one's job would be a runner's to take.
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
	return until(ctx, patience, "the holder is alive", func() (bool, error) { return holder.Ready(), nil })
}

func leaveClaim(_ context.Context, b *Bed, _ string) error {
	b.leave()
	return nil
}

func holderOf(job string) string { return "nobody-" + job }

// beginCancel makes a backup whose holder neither stops nor dies before the deadline is over.
func beginCancel(ctx context.Context, b *Bed, name string) error {
	backup := &velerov1.Backup{ObjectMeta: named(name), Spec: velerov1.BackupSpec{IncludedNamespaces: []string{small}, StorageLocation: location}}
	backup.Annotations = map[string]string{holdfast.AnnotationCancel: "alice"}
	start := metav1.Now()
	backup.Status = velerov1.BackupStatus{Phase: velerov1.BackupPhaseInProgress, StartTimestamp: &start}
	if err := claim.Set(backup, claim.Claim{Holder: holderOf(name), Epoch: 1}); err != nil {
		return err
	}
	return b.create(ctx, backup)
}

func observeCancelWaiting(ctx context.Context, b *Bed, name string) (Facts, error) {
	backup, err := b.ended(ctx, name)
	if err != nil {
		return nil, err
	}
	keys, err := b.keys(filepath.Join("backups", name))
	if err != nil {
		return nil, err
	}
	f := Facts{"phase": string(backup.Status.Phase), "reason": backup.Status.FailureReason}
	f.add("key ", keys)
	return f, b.released(ctx, backup)
}

func observeCancel(ctx context.Context, b *Bed, name string) (Facts, error) {
	backup, err := b.ended(ctx, name)
	if err != nil {
		return nil, err
	}
	dir := filepath.Join("backups", name)
	f := Facts{"phase": string(backup.Status.Phase), "reason": backup.Status.FailureReason, "errors": fmt.Sprint(backup.Status.Errors)}
	if err := b.swept(ctx, f, dir, strings.NewReplacer(name, "NAME", string(backup.UID), "UID")); err != nil {
		return nil, err
	}
	data, err := os.ReadFile(filepath.Join(b.bucket, dir, "velero-backup.json"))
	if err != nil {
		return nil, err
	}
	var committed velerov1.Backup
	if err := json.Unmarshal(data, &committed); err != nil {
		return nil, err
	}
	if committed.Status.Phase != backup.Status.Phase || !committed.Status.CompletionTimestamp.Equal(backup.Status.CompletionTimestamp) {
		return nil, fmt.Errorf("%w: the bucket says %+v, the object %+v", ErrDiffers, committed.Status, backup.Status)
	}
	return f, b.released(ctx, backup)
}
