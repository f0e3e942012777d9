package fault

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-io/holdfast/e2e/harness/fleet"
	"github.com/holdfast-io/holdfast/e2e/harness/seed"
	"github.com/holdfast-io/holdfast/e2e/harness/testbed"
	"github.com/holdfast-io/holdfast/pkg/apis/crds"
	holdfast "github.com/holdfast-io/holdfast/pkg/apis/holdfast"
	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/kube"
)

const (
	server   = "velero" // the server namespace
	location = "default"
	bucket   = "objects"
	prepared = "prepared" // the backup that restores start from
	// patience bounds every wait: long enough for a takeover on a machine with other work to do.
	patience = testbed.Patience
)

// Arguments make takeovers and sweeps quick, and parts small enough that a small backup has many.
var arguments = map[string][]string{
	"async-operation-monitor": {"--item-operation-sync-frequency=500ms"},
	"backup-runner":           {"--claim-timeout=2s", "--part-items=30", "--store-patience=2s"},
	"restore-runner":          {"--claim-timeout=2s"},
	"queue-scheduler":         {"--duty-timeout=2s", "--cancel-deadline=1s", "--claim-timeout=2s"},
	"manifest-indexer":        {"--backup-sync-period=1s", "--store-validation-frequency=1s", "--duty-timeout=2s"},
	"deletion":                {"--claim-timeout=2s", "--garbage-collection-frequency=1s", "--sweep-interval=1s", "--duty-timeout=2s"},
}

// withPlugins adds the directory of plugins to the arguments of the services that call them.
func withPlugins(dir string) map[string][]string {
	all := maps.Clone(arguments)
	for _, service := range []string{"backup-runner", "restore-runner", "deletion", "async-operation-monitor"} {
		all[service] = append(slices.Clone(all[service]), "--plugin-dir", dir)
	}
	return all
}

// Config is what to run.
type Config struct {
	Dir      string    // scratch space
	Binaries string    // directory of services with failpoints; bin/fault of the repository when empty
	Plugins  string    // directory of the plugins that are named by Plugins
	Log      io.Writer // progress
}

// Bed is a control plane with the sample estate, two replicas of every service whose points can be
// armed, and a backup of the estate. Its methods are for one goroutine.
type Bed struct {
	dir       string
	bucket    bucketDir
	called    string // directory in which plugins leave their calls
	log       io.Writer
	points    pointDir
	cluster   *testbed.Cluster
	fleet     *fleet.Fleet
	client    client.WithWatch
	apiClient apiClient
	former    []*fleet.Member // of the moment when the present case began
	// undisturbed is what each scenario gives when nothing happens.
	undisturbed map[string]Facts
	jobs        int
	hooks       hookNode
	wakes       int
	woken       time.Time
	leave       func() // ends the holder of a claim that this process plays
}

// apiClient reads and writes objects of the cluster.
type apiClient struct{ client client.WithWatch }

// bucketDir is the bucket of the location, a directory.
type bucketDir struct{ path string }

// Start starts everything and takes the backup. The caller calls Close.
func Start(ctx context.Context, config Config) (_ *Bed, err error) {
	b := &Bed{
		dir: config.Dir, bucket: bucketDir{filepath.Join(config.Dir, "location", bucket)}, called: filepath.Join(config.Dir, "calls"), log: config.Log,
		points: pointDir{dir: filepath.Join(config.Dir, "points")}, undisturbed: map[string]Facts{},
	}
	for _, dir := range []string{b.bucket.path, b.points.dir, b.called} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return nil, err
		}
	}
	defer func() {
		if err != nil {
			b.Close()
		}
	}()
	if b.cluster, err = testbed.Start(ctx, testbed.Config{Dir: filepath.Join(config.Dir, "cluster"), Log: config.Log, Env: []string{testbed.LessCollecting}}); err != nil {
		return nil, err
	}
	if b.client, err = client.NewWithWatch(b.cluster.RestConfig(), client.Options{Scheme: kube.Scheme()}); err != nil {
		return nil, err
	}
	b.apiClient = apiClient{b.client}
	if err := b.fillCluster(ctx); err != nil {
		return nil, err
	}
	if config.Binaries == "" {
		root, err := testbed.RepositoryRoot()
		if err != nil {
			return nil, err
		}
		config.Binaries = filepath.Join(root, "bin", "fault")
	}
	b.fleet, err = fleet.Start(ctx, fleet.Config{
		Dir: filepath.Join(config.Dir, "fleet"), Kubeconfig: b.cluster.Kubeconfig(), Rest: b.cluster.RestConfig(), Namespace: server,
		Replicas: 2, Args: withPlugins(config.Plugins), Env: []string{"FAILPOINT_DIR=" + b.points.dir}, Binaries: config.Binaries,
	})
	if err != nil {
		return nil, err
	}
	return b, b.prepareBackup(ctx)
}

// Close stops everything.
func (b *Bed) Close() {
	if b.hooks.node != nil {
		b.hooks.node.Close()
	}
	if b.fleet != nil {
		b.fleet.Stop()
	}
	if b.cluster != nil {
		b.cluster.Stop()
	}
}

// fillCluster makes the estate, the server's namespace and the location.
func (b *Bed) fillCluster(ctx context.Context) error {
	if _, err := seed.Apply(ctx, b.cluster.RestConfig(), seed.Options{}); err != nil {
		return err
	}
	if err := b.apiClient.defineKind(ctx); err != nil {
		return err
	}
	if err := crds.Install(ctx, b.cluster.RestConfig()); err != nil {
		return err
	}
	for _, name := range []string{server, small, paused, actions, long, volumes} {
		if err := b.client.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}); err != nil {
			return err
		}
	}
	if err := seed.Bulk(ctx, b.cluster.RestConfig(), seed.BulkOptions{Namespace: small, Count: 5, Size: 200}); err != nil {
		return err
	}
	for _, plant := range []func(context.Context) error{b.apiClient.plantOwned, b.apiClient.plantGrant, b.apiClient.plantAccount, b.apiClient.plantBound, b.apiClient.plantPaused, b.plantActed, b.plantHooked} {
		if err := plant(ctx); err != nil {
			return err
		}
	}
	return b.client.Create(ctx, newLocation(location, filepath.Dir(b.bucket.path), true))
}

func newLocation(name, dir string, main bool) *velerov1.BackupStorageLocation {
	l := &velerov1.BackupStorageLocation{
		ObjectMeta: metav1.ObjectMeta{Namespace: server, Name: name},
		Spec:       velerov1.BackupStorageLocationSpec{Provider: holdfast.ProviderFile, Default: main, Config: map[string]string{"path": dir}},
	}
	l.Spec.ObjectStorage = &velerov1.ObjectStorageLocation{Bucket: bucket}
	return l
}

// prepareBackup takes the backup that restores start from.
func (b *Bed) prepareBackup(ctx context.Context) error {
	if err := b.apiClient.awaitAvailable(ctx, location); err != nil {
		return err
	}
	spec := velerov1.BackupSpec{IncludedNamespaces: append(seed.Options{}.Namespaces(), kinds, small, paused, actions, long, hooked, freed, givenBack)}
	if err := b.client.Create(ctx, &velerov1.Backup{ObjectMeta: namedMeta(prepared), Spec: spec}); err != nil {
		return err
	}
	backup, err := b.apiClient.awaitEnded(ctx, prepared)
	if err == nil && backup.Status.Phase != velerov1.BackupPhaseCompleted {
		err = fmt.Errorf("backup %s is %s: %s", prepared, backup.Status.Phase, backup.Status.FailureReason)
	}
	return err
}

func namedMeta(name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: server, Name: name}
}

// getObject reads an object of the server's namespace; false when it is not there.
func (a *apiClient) getObject(ctx context.Context, name string, into client.Object) (bool, error) {
	err := a.client.Get(ctx, client.ObjectKey{Namespace: server, Name: name}, into)
	return err == nil, client.IgnoreNotFound(err)
}

// awaitGone waits until an object is not there any more.
func (a *apiClient) awaitGone(ctx context.Context, name string, kind client.Object) error {
	return pollUntil(ctx, patience, fmt.Sprintf("%T %s is gone", kind, name), func() (bool, error) {
		found, err := a.getObject(ctx, name, kind)
		return !found, err
	})
}

// awaitEnded waits for a backup's end.
func (a *apiClient) awaitEnded(ctx context.Context, name string) (*velerov1.Backup, error) {
	backup := &velerov1.Backup{}
	err := pollUntil(ctx, patience, "backup "+name+" ends", func() (bool, error) {
		found, err := a.getObject(ctx, name, backup)
		return found && backup.Status.Phase.Terminal(), err
	})
	if err != nil {
		err = fmt.Errorf("%w (phase %q, claim %s)", err, backup.Status.Phase, backup.Annotations[holdfast.AnnotationClaim])
	}
	return backup, err
}

func (a *apiClient) awaitAvailable(ctx context.Context, name string) error {
	l := &velerov1.BackupStorageLocation{}
	return pollUntil(ctx, patience, "location "+name+" is available", func() (bool, error) {
		_, err := a.getObject(ctx, name, l)
		return l.Status.Phase == velerov1.LocationPhaseAvailable, err
	})
}

// createObject creates an object; one that is there already is an error.
func (a *apiClient) createObject(ctx context.Context, o client.Object) error {
	if err := a.client.Create(ctx, o); err != nil {
		return fmt.Errorf("create %T %s: %w", o, o.GetName(), err)
	}
	return nil
}

// removeObject deletes an object that may be gone already.
func (a *apiClient) removeObject(ctx context.Context, o client.Object) error {
	if err := a.client.Delete(ctx, o, client.PropagationPolicy(metav1.DeletePropagationBackground)); err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("delete %T %s: %w", o, o.GetName(), err)
	}
	return nil
}

// logTails shows how the logs of the services end.
func (b *Bed) logTails(service string) string {
	var text string
	for _, m := range b.fleet.Of(service) {
		text += fmt.Sprintf("\n%s:\n%s", m.LogPath(), testbed.Tail(m.LogPath(), 12))
	}
	return text
}

var errNoMember = errors.New("the process that was hit is no member of the fleet")

// memberWithPID returns the member with a process id, also one that has a successor already.
func (b *Bed) memberWithPID(pid int) (*fleet.Member, error) {
	for _, m := range slices.Concat(b.fleet.Members, b.former) {
		if m.Pid() == pid {
			return m, nil
		}
	}
	return nil, fmt.Errorf("%w: %d", errNoMember, pid)
}
