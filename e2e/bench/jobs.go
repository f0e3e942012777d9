package bench

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	holdfast "github.com/holdfast-io/holdfast/pkg/apis/holdfast"
	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/kube"
)

const (
	serverNamespace = "velero"
	pollEvery       = 20 * time.Millisecond
	jobTimeout      = 20 * time.Minute
	bucket          = "backups"
	// locationTimeout covers a few validations.
	locationTimeout = time.Minute
)

// jobs creates backups and restores and waits for them.
type jobs struct{ client client.Client }

func newJobs(config *rest.Config) (*jobs, error) {
	c, err := client.New(config, client.Options{Scheme: kube.Scheme()})
	return &jobs{client: c}, err
}

func (j *jobs) namespace(ctx context.Context, name string) error {
	return client.IgnoreAlreadyExists(j.client.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}))
}

// location creates the default location in a directory and waits until it is available.
func (j *jobs) location(ctx context.Context, directory string) error {
	if err := os.MkdirAll(filepath.Join(directory, bucket), 0o755); err != nil {
		return err
	}
	location := &velerov1.BackupStorageLocation{
		ObjectMeta: metav1.ObjectMeta{Namespace: serverNamespace, Name: "default"},
		Spec: velerov1.BackupStorageLocationSpec{
			Provider: holdfast.ProviderFile, Default: true, Config: map[string]string{"path": directory},
		},
	}
	location.Spec.ObjectStorage = &velerov1.ObjectStorageLocation{Bucket: bucket}
	if err := j.client.Create(ctx, location); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, locationTimeout)
	defer cancel()
	err := j.wait(ctx, location, func() bool { return location.Status.Phase == velerov1.LocationPhaseAvailable })
	if err != nil {
		return fmt.Errorf("%w: %s", err, location.Status.Message)
	}
	return nil
}

// backupTimes are measured from the creation of the Backup, as a client sees it.
type backupTimes struct{ inProgress, done time.Duration }

func (j *jobs) backup(ctx context.Context, name, namespace string) (backupTimes, error) {
	backup := &velerov1.Backup{
		ObjectMeta: metav1.ObjectMeta{Namespace: serverNamespace, Name: name},
		Spec:       velerov1.BackupSpec{IncludedNamespaces: []string{namespace}},
	}
	var times backupTimes
	began := time.Now()
	if err := j.client.Create(ctx, backup); err != nil {
		return times, err
	}
	err := j.wait(ctx, backup, func() bool {
		if times.inProgress == 0 && backup.Status.StartTimestamp != nil {
			times.inProgress = time.Since(began)
		}
		return backup.Status.CompletionTimestamp != nil || backup.Status.Phase == velerov1.BackupPhaseFailedValidation
	})
	times.done = time.Since(began)
	if err == nil && backup.Status.Phase != velerov1.BackupPhaseCompleted {
		err = fmt.Errorf("backup %s is %s: %s %v", name, backup.Status.Phase, backup.Status.FailureReason, backup.Status.ValidationErrors)
	}
	return times, err
}

func (j *jobs) restore(ctx context.Context, name, backup string, mapping map[string]string) (time.Duration, error) {
	restore := &velerov1.Restore{
		ObjectMeta: metav1.ObjectMeta{Namespace: serverNamespace, Name: name},
		Spec:       velerov1.RestoreSpec{BackupName: backup, NamespaceMapping: mapping},
	}
	began := time.Now()
	if err := j.client.Create(ctx, restore); err != nil {
		return 0, err
	}
	err := j.wait(ctx, restore, func() bool {
		return restore.Status.CompletionTimestamp != nil || restore.Status.Phase == velerov1.RestorePhaseFailedValidation
	})
	if err == nil && restore.Status.Phase != velerov1.RestorePhaseCompleted {
		err = fmt.Errorf("restore %s is %s: %s %v", name, restore.Status.Phase, restore.Status.FailureReason, restore.Status.ValidationErrors)
	}
	return time.Since(began), err
}

// wait re-reads an object until it is as wanted.
func (j *jobs) wait(ctx context.Context, object client.Object, done func() bool) error {
	ctx, cancel := context.WithTimeout(ctx, jobTimeout)
	defer cancel()
	ticker := time.NewTicker(pollEvery)
	defer ticker.Stop()
	for {
		if err := j.client.Get(ctx, client.ObjectKeyFromObject(object), object); err != nil {
			return err
		}
		if done() {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("waiting for %s: %w", object.GetName(), ctx.Err())
		case <-ticker.C:
		}
	}
}
