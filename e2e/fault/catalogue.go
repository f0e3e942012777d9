package fault

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/layout"
)

// prepareDeletion makes a small backup and a restore of it.
func prepareDeletion(ctx context.Context, b *Bed, name string) error {
	if err := endedBackup(small)(ctx, b, name); err != nil {
		return err
	}
	if err := restoreOf(small, func(r *velerov1.RestoreSpec) { r.BackupName, r.IncludedNamespaces = name, nil })(ctx, b, name); err != nil {
		return err
	}
	_, err := b.apiClient.awaitRestored(ctx, name)
	return err
}

func beginDeletion(ctx context.Context, b *Bed, name string) error {
	return b.apiClient.createObject(ctx, &velerov1.DeleteBackupRequest{ObjectMeta: namedMeta(name), Spec: velerov1.DeleteBackupRequestSpec{BackupName: name}})
}

func observeDeletion(ctx context.Context, b *Bed, name string) (Facts, error) {
	err := errors.Join(b.apiClient.awaitGone(ctx, name, &velerov1.DeleteBackupRequest{}), b.apiClient.awaitGone(ctx, name, &velerov1.Restore{}))
	if err != nil {
		return nil, err
	}
	return observeGone(ctx, b, name)
}

// observeGone waits until neither the cluster nor the bucket has the backup.
func observeGone(ctx context.Context, b *Bed, name string) (Facts, error) {
	if err := b.apiClient.awaitGone(ctx, name, &velerov1.Backup{}); err != nil {
		return nil, err
	}
	f := Facts{}
	err := pollUntil(ctx, patience, "the bucket knows nothing of "+name, func() (bool, error) {
		clear(f)
		for _, dir := range []string{"backups", "restores"} {
			keys, err := b.bucket.listKeys(filepath.Join(dir, name))
			if err != nil {
				return false, err
			}
			f.addPrefixed(dir+"/", keys)
		}
		return len(f) == 0, nil
	})
	if err != nil {
		return nil, fmt.Errorf("%w: %v", err, f)
	}
	return f, nil
}

// plantBackup puts a copy of the prepared backup into the bucket, as another cluster would.
func plantBackup(ctx context.Context, b *Bed, name string) error {
	from, to := filepath.Join(b.bucket.path, "backups", prepared), filepath.Join(b.bucket.path, "backups", name)
	if err := os.MkdirAll(to, 0o700); err != nil {
		return err
	}
	entries, err := os.ReadDir(from)
	if err != nil {
		return err
	}
	var last []byte
	for _, entry := range entries {
		if entry.IsDir() {
			continue // parts that are being swept
		}
		data, err := os.ReadFile(filepath.Join(from, entry.Name()))
		if err != nil {
			return err
		}
		switch entry.Name() {
		case "holdfast-owner.json":
		case "velero-backup.json":
			last = data
		default:
			if err := os.WriteFile(filepath.Join(to, strings.Replace(entry.Name(), prepared, name, 1)), data, 0o600); err != nil {
				return err
			}
		}
	}
	var backup velerov1.Backup
	if err := json.Unmarshal(last, &backup); err != nil {
		return err
	}
	backup.Name, backup.UID = name, types.UID("of-another-cluster-"+name)
	if last, err = json.Marshal(backup); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(to, "velero-backup.json"), last, 0o600) // it makes the backup one, so it comes last
}

func unplantBackup(_ context.Context, b *Bed, name string) error {
	return os.RemoveAll(filepath.Join(b.bucket.path, "backups", name))
}

func prepareOrphan(ctx context.Context, b *Bed, name string) error {
	if err := plantBackup(ctx, b, name); err != nil {
		return err
	}
	_, err := b.awaitSynced(ctx, name)
	return err
}

// awaitSynced waits until the planted backup is in the cluster.
func (b *Bed) awaitSynced(ctx context.Context, name string) (*velerov1.Backup, error) {
	backup := &velerov1.Backup{}
	return backup, pollUntil(ctx, patience, "backup "+name+" is found", func() (bool, error) {
		found, err := b.apiClient.getObject(ctx, name, backup)
		return found && backup.Status.Phase.Terminal(), errors.Join(err, b.wakeSyncer(ctx))
	})
}

func observeOrphan(ctx context.Context, b *Bed, name string) (Facts, error) {
	err := pollUntil(ctx, patience, "backup "+name+" is forgotten", func() (bool, error) {
		found, err := b.apiClient.getObject(ctx, name, &velerov1.Backup{})
		return !found, errors.Join(err, b.wakeSyncer(ctx))
	})
	if err != nil {
		return nil, err
	}
	return observeGone(ctx, b, name)
}

// plantLeftovers puts what a backup of this cluster left whose object is gone.
func plantLeftovers(ctx context.Context, b *Bed, name string) error {
	var system corev1.Namespace
	if err := b.client.Get(ctx, client.ObjectKey{Name: "kube-system"}, &system); err != nil {
		return err
	}
	owner, err := layout.Owner{BackupUID: "gone-" + name, ClusterUID: string(system.UID)}.Encode()
	if err != nil {
		return err
	}
	for key, content := range map[string][]byte{
		layout.OwnerFile(name): owner, layout.BackupLog(name): []byte("log"), layout.Part(name, "gone-"+name, 1, "u", 0, 0): []byte("part"),
		layout.Checkpoint(name, "gone-"+name, 1, 1): []byte("record"),
	} {
		path := filepath.Join(b.bucket.path, key)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, content, 0o600)); err != nil {
			return err
		}
	}
	return nil
}

// wakeSyncer makes the syncer look at the location now, at most once in a second: it does so whenever the
// object changes, unless it just did.
func (b *Bed) wakeSyncer(ctx context.Context) error {
	if time.Since(b.woken) < time.Second {
		return nil
	}
	b.woken = time.Now()
	l := &velerov1.BackupStorageLocation{ObjectMeta: namedMeta(location)}
	b.wakes++
	patch := fmt.Appendf(nil, `{"metadata":{"annotations":{"example.com/look":"%d"}}}`, b.wakes)
	return b.client.Patch(ctx, l, client.RawPatch(types.MergePatchType, patch))
}

func observeSynced(ctx context.Context, b *Bed, name string) (Facts, error) {
	backup, err := b.awaitSynced(ctx, name)
	if err != nil {
		return nil, err
	}
	spec, err := json.Marshal(backup.Spec)
	if err != nil {
		return nil, err
	}
	status, err := json.Marshal(backup.Status)
	if err != nil {
		return nil, err
	}
	return Facts{"spec": string(spec), "status": string(status), "labels": fmt.Sprint(backup.Labels)}, nil
}

func beginDownload(ctx context.Context, b *Bed, name string) error {
	return b.apiClient.createObject(ctx, &velerov1.DownloadRequest{ObjectMeta: namedMeta(name), Spec: velerov1.DownloadRequestSpec{
		Target: velerov1.DownloadTarget{Kind: "BackupResourceList", Name: prepared},
	}})
}

func observeDownload(ctx context.Context, b *Bed, name string) (Facts, error) {
	request := &velerov1.DownloadRequest{}
	err := pollUntil(ctx, patience, "download request "+name+" is processed", func() (bool, error) {
		_, err := b.apiClient.getObject(ctx, name, request)
		return request.Status.Phase == velerov1.DownloadRequestPhaseProcessed, err
	})
	if err != nil {
		return nil, err
	}
	// The link may lead to the process that was killed: another request is another chance, as the
	// user's client does it.
	f := Facts{"phase": string(request.Status.Phase)}
	if data, err := fetchURL(ctx, request.Status.DownloadURL); err == nil {
		f["content"] = hashOf(data)
		return f, nil
	}
	again := name + "-again"
	if err := beginDownload(ctx, b, again); err != nil {
		return nil, err
	}
	err = pollUntil(ctx, patience, "download request "+again+" gives a link that works", func() (bool, error) {
		if _, err := b.apiClient.getObject(ctx, again, request); err != nil || request.Status.DownloadURL == "" {
			return false, err
		}
		data, err := fetchURL(ctx, request.Status.DownloadURL)
		f["content"] = hashOf(data)
		return true, err
	})
	return f, err
}

func fetchURL(ctx context.Context, url string) ([]byte, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return nil, err
	}
	answer, err := (&http.Client{Timeout: patience}).Do(request)
	if err != nil {
		return nil, err
	}
	defer func() { _ = answer.Body.Close() }()
	data, err := io.ReadAll(answer.Body)
	if err == nil && answer.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", answer.Status, data)
	}
	return data, err
}

func beginStatus(ctx context.Context, b *Bed, name string) error {
	return b.apiClient.createObject(ctx, &velerov1.ServerStatusRequest{ObjectMeta: namedMeta(name)})
}

func observeStatus(ctx context.Context, b *Bed, name string) (Facts, error) {
	request := &velerov1.ServerStatusRequest{}
	err := pollUntil(ctx, patience, "status request "+name+" is processed", func() (bool, error) {
		_, err := b.apiClient.getObject(ctx, name, request)
		return request.Status.Phase == velerov1.ServerStatusRequestPhaseProcessed, err
	})
	return Facts{"version": request.Status.ServerVersion, "plugins": fmt.Sprint(request.Status.Plugins)}, err
}
