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

	"github.com/holdfast-io/holdfast/e2e/harness/testbed"
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

// jobClient creates backups and restores and waits for them.
type jobClient struct{ client client.Client }

func newJobs(config *rest.Config) (*jobClient, error) {
	c, err := client.New(config, client.Options{Scheme: kube.Scheme()})
	return &jobClient{client: c}, err
}

func (j *jobClient) createNamespace(ctx context.Context, name string) error {
	return client.IgnoreAlreadyExists(j.client.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}))
}

// defaultLocation creates the default location in a directory and waits until it is available.
func (j *jobClient) defaultLocation(ctx context.Context, directory string) error {
	if err := os.MkdirAll(filepath.Join(directory, bucket), 0o755); err != nil {
		return err
	}
	return j.createLocation(ctx, "default", velerov1.BackupStorageLocationSpec{
		Provider: holdfast.ProviderFile, Default: true, Config: map[string]string{"path": directory},
	})
}

// meteredLocation creates a location for the bucket of an S3 server behind a meter.
func (j *jobClient) meteredLocation(ctx context.Context, name string, server *testbed.S3, meter *storeMeter) error {
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: serverNamespace, Name: name}, StringData: map[string]string{"cloud": server.CredentialsFile()},
	}
	if err := j.client.Create(ctx, secret); err != nil {
		return err
	}
	config := server.LocationConfig()
	config["s3Url"] = meter.URL
	return j.createLocation(ctx, name, velerov1.BackupStorageLocationSpec{
		Provider: "aws", Config: config,
		Credential: &corev1.SecretKeySelector{LocalObjectReference: corev1.LocalObjectReference{Name: secret.Name}, Key: "cloud"},
	})
}

// createLocation creates a location and waits until it is available.
func (j *jobClient) createLocation(ctx context.Context, name string, spec velerov1.BackupStorageLocationSpec) error {
	spec.ObjectStorage = &velerov1.ObjectStorageLocation{Bucket: bucket}
	location := &velerov1.BackupStorageLocation{ObjectMeta: metav1.ObjectMeta{Namespace: serverNamespace, Name: name}, Spec: spec}
	if err := j.client.Create(ctx, location); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, locationTimeout)
	defer cancel()
	err := j.awaitObject(ctx, location, func() bool { return location.Status.Phase == velerov1.LocationPhaseAvailable })
	if err != nil {
		return fmt.Errorf("%w: %s", err, location.Status.Message)
	}
	return nil
}

// backupTimes are measured from the creation of the Backup, as a client measures it.
type backupTimes struct{ inProgress, done time.Duration }

func (j *jobClient) runBackup(ctx context.Context, name, namespace string) (backupTimes, error) {
	var times backupTimes
	began := time.Now()
	backup, err := j.createBackup(ctx, name, namespace, "")
	if err != nil {
		return times, err
	}
	err = j.awaitObject(ctx, backup, func() bool {
		if times.inProgress == 0 && backup.Status.StartTimestamp != nil {
			times.inProgress = time.Since(began)
		}
		return backupEnded(backup)
	})
	times.done = time.Since(began)
	if err == nil {
		err = notCompleted(backup)
	}
	return times, err
}

// createBackup asks for a backup of a namespace into a location, the default one when location is
// empty.
func (j *jobClient) createBackup(ctx context.Context, name, namespace, location string) (*velerov1.Backup, error) {
	backup := &velerov1.Backup{
		ObjectMeta: metav1.ObjectMeta{Namespace: serverNamespace, Name: name},
		Spec:       velerov1.BackupSpec{IncludedNamespaces: []string{namespace}, StorageLocation: location},
	}
	return backup, j.client.Create(ctx, backup)
}

// awaitCompleted waits for the end of a backup; another end than Completed is an error.
func (j *jobClient) awaitCompleted(ctx context.Context, backup *velerov1.Backup) error {
	if err := j.awaitObject(ctx, backup, func() bool { return backupEnded(backup) }); err != nil {
		return err
	}
	return notCompleted(backup)
}

func backupEnded(b *velerov1.Backup) bool {
	return b.Status.CompletionTimestamp != nil || b.Status.Phase == velerov1.BackupPhaseFailedValidation
}

func notCompleted(b *velerov1.Backup) error {
	if b.Status.Phase == velerov1.BackupPhaseCompleted {
		return nil
	}
	return fmt.Errorf("backup %s is %s: %s %v", b.Name, b.Status.Phase, b.Status.FailureReason, b.Status.ValidationErrors)
}

func (j *jobClient) runRestore(ctx context.Context, name, backup string, mapping map[string]string) (time.Duration, error) {
	restore := &velerov1.Restore{
		ObjectMeta: metav1.ObjectMeta{Namespace: serverNamespace, Name: name},
		Spec:       velerov1.RestoreSpec{BackupName: backup, NamespaceMapping: mapping},
	}
	began := time.Now()
	if err := j.client.Create(ctx, restore); err != nil {
		return 0, err
	}
	err := j.awaitObject(ctx, restore, func() bool {
		return restore.Status.CompletionTimestamp != nil || restore.Status.Phase == velerov1.RestorePhaseFailedValidation
	})
	if err == nil && restore.Status.Phase != velerov1.RestorePhaseCompleted {
		err = fmt.Errorf("restore %s is %s: %s %v", name, restore.Status.Phase, restore.Status.FailureReason, restore.Status.ValidationErrors)
	}
	return time.Since(began), err
}

// awaitObject re-reads an object until it is as wanted.
func (j *jobClient) awaitObject(ctx context.Context, object client.Object, done func() bool) error {
	ctx, cancel := context.WithTimeout(ctx, jobTimeout)
	defer cancel()
	err := pollUntil(ctx, pollEvery, func() (bool, error) {
		err := j.readObject(ctx, object)
		return err == nil && done(), err
	})
	if err != nil {
		return fmt.Errorf("waiting for %s: %w", object.GetName(), err)
	}
	return nil
}

func (j *jobClient) readObject(ctx context.Context, object client.Object) error {
	return j.client.Get(ctx, client.ObjectKeyFromObject(object), object)
}

// pollUntil calls done repeatedly until it returns true.
func pollUntil(ctx context.Context, every time.Duration, done func() (bool, error)) error {
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	for {
		if ok, err := done(); ok || err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-ticker.C:
		}
	}
}
