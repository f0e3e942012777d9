package backup

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/types/known/structpb"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-io/holdfast/e2e/harness/chart"
	"github.com/holdfast-io/holdfast/e2e/harness/seed"
	"github.com/holdfast-io/holdfast/pkg/apis/holdfast"
	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/archive/manifest"
	"github.com/holdfast-io/holdfast/pkg/archive/tarball"
	"github.com/holdfast-io/holdfast/pkg/job/jobtest"
	"github.com/holdfast-io/holdfast/pkg/job/ledger"
	"github.com/holdfast-io/holdfast/pkg/kube/rawlist"
	"github.com/holdfast-io/holdfast/pkg/objectstore/filestore"
	backupv1 "github.com/holdfast-io/holdfast/proto/gen/holdfast/backup/v1"
	"github.com/holdfast-io/holdfast/services/backup-runner/app"
)

// planBackup asks the runner for a plan, and returns its summary and the objects by kind, namespace and name.
func (b *bed) planBackup(t *testing.T, spec velerov1.BackupSpec, namespaces ...string) (*backupv1.PlanSummary, []string) {
	t.Helper()
	conn, err := grpc.NewClient(b.runner, grpc.WithTransportCredentials(insecure.NewCredentials()))
	require.NoError(t, err)
	defer conn.Close()
	spec.StorageLocation = "default"
	fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&velerov1.Backup{Spec: spec})
	require.NoError(t, err)
	in, err := structpb.NewStruct(fields)
	require.NoError(t, err)
	stream, err := backupv1.NewBackupServiceClient(conn).PlanBackup(t.Context(), &backupv1.PlanBackupRequest{Backup: in, Namespaces: namespaces, Objects: true})
	require.NoError(t, err)
	var objects []string
	for {
		m, err := stream.Recv()
		require.NoError(t, err)
		if o := m.GetObject(); o != nil {
			objects = append(objects, manifest.KindName(o.GetGroup(), o.GetVersion(), o.GetKind())+" "+o.GetNamespace()+"/"+o.GetName())
		}
		if m.GetSummary() != nil {
			slices.Sort(objects)
			return m.GetSummary(), objects
		}
	}
}

// storedObjects are the objects of a backup by its manifest.
func (b *bed) storedObjects(t *testing.T, name string) (objects []string) {
	t.Helper()
	store, err := filestore.Open(filepath.Join(b.bucket, "backups"))
	require.NoError(t, err)
	defer func() { require.NoError(t, store.Close()) }()
	m, err := tarball.OpenManifest(t.Context(), store, name)
	require.NoError(t, err)
	for i, err := range m.Items(t.Context(), manifest.Filter{}) {
		require.NoError(t, err)
		objects = append(objects, manifest.KindName(i.Group, i.Version, i.Kind)+" "+i.Namespace+"/"+i.Name)
	}
	slices.Sort(objects)
	return objects
}

func (b *bed) bucketFiles(t *testing.T) (files []string) {
	t.Helper()
	require.NoError(t, filepath.WalkDir(b.bucket, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		info, err := d.Info()
		files = append(files, fmt.Sprintf("%s, %d bytes of %s", path, info.Size(), info.ModTime()))
		return err
	}))
	return files
}

// requirePlanAlone expects that the bucket got the two files of a plan, and nothing else changed in it.
func (b *bed) requirePlanAlone(t *testing.T, before []string) {
	t.Helper()
	after := b.bucketFiles(t)
	require.Subset(t, after, before)
	require.Len(t, after, len(before)+2, "it stores the plan alone")
}

// clusterContent hashes everything in the cluster but leases, which their holders renew.
func (b *bed) clusterContent(t *testing.T) map[string]string {
	t.Helper()
	lists, err := rawlist.New(b.RestConfig(), rawlist.Options{Clock: clock.RealClock{}})
	require.NoError(t, err)
	revision, err := lists.Revision(t.Context())
	require.NoError(t, err)
	out := listEverything(t, b.RestConfig(), revision)
	maps.DeleteFunc(out, func(path, _ string) bool { return strings.Contains(path, "/leases.") })
	return out
}

// requireDryRun has a Backup planned by its annotation, as queue-scheduler leaves it to the runner, and compares
// the summary with a plan.
func (b *bed) requireDryRun(t *testing.T, audit *chart.Audit, spec velerov1.BackupSpec, planned []string, namespaces ...string) {
	t.Helper()
	mark := audit.Mark(t)
	content, files := b.clusterContent(t), b.bucketFiles(t)
	spec.StorageLocation = "default"
	dry := &velerov1.Backup{Spec: spec, ObjectMeta: metav1.ObjectMeta{Namespace: server, Name: "dry", Annotations: map[string]string{holdfast.AnnotationDryRun: "true"}}}
	b.createObject(t, dry)
	noted, err := json.Marshal(namespaces)
	require.NoError(t, err)
	dry.Annotations[holdfast.AnnotationNamespaces], dry.Annotations[holdfast.AnnotationValidated] = string(noted), string(dry.UID)
	require.NoError(t, b.client.Update(t.Context(), dry))
	require.Eventually(t, func() bool {
		return b.client.Get(t.Context(), client.ObjectKeyFromObject(dry), dry) == nil && dry.Status.Phase == velerov1.BackupPhaseFailedValidation
	}, time.Minute, 50*time.Millisecond)
	require.Contains(t, dry.Status.ValidationErrors, fmt.Sprintf("objects: %d store", len(planned)))
	require.Empty(t, dry.Finalizers)
	require.NoError(t, b.client.Delete(t.Context(), dry))
	require.Empty(t, differentKeys(content, b.clusterContent(t)))
	require.Empty(t, differentKeys(b.clusterContent(t), content), "nothing is reserved")
	b.requirePlanAlone(t, files)
	require.Equal(t, []string{"backup-runner: patch backups.velero.io/ " + server + "/dry"}, audit.Writes(t, mark), "it writes the end of the Backup alone")
}

// TestAPlanHoldsWhatTheBackupStores plans backups of a sample estate of a thousand objects, executes each plan and compares
// the two object by object.
func TestAPlanHoldsWhatTheBackupStores(t *testing.T) {
	audit := chart.NewAudit(t, server)
	b := newBed(t, audit.Configure)
	estate := seed.Options{}
	_, err := seed.Apply(t.Context(), b.RestConfig(), estate)
	require.NoError(t, err)
	account, err := b.KubeconfigFor(chart.User(server, app.Name), "system:masters")
	require.NoError(t, err)
	b.startRunner(t, func(c *app.Config) { c.Options.Kubeconfig = account })
	all, yes := estate.Namespaces(), true
	selector, err := metav1.ParseToLabelSelector(seed.Selector())
	require.NoError(t, err)
	// What a backup makes of its own, or the server all the time.
	moving := []string{"events", "events.events.k8s.io", "leases.coordination.k8s.io", "backups.velero.io"}
	b.planBackup(t, velerov1.BackupSpec{IncludeClusterResources: &yes}, "*") // the server answers for all kinds from now on
	book := ledger.New(b.client, b.client, server)                           // its ConfigMap is made with the first entry
	none := ledger.Entry{UID: "none", Kind: ledger.KindBackup, Namespace: server, Name: "none"}
	require.NoError(t, jobtest.Admit(t.Context(), book, none, ledger.Limits{}))
	require.NoError(t, book.Withdraw(t.Context(), none))
	for name, tt := range map[string]struct {
		spec       velerov1.BackupSpec
		namespaces []string
	}{
		"all":        {velerov1.BackupSpec{IncludeClusterResources: &yes, ExcludedResources: moving}, []string{"*"}},
		"labels":     {velerov1.BackupSpec{LabelSelector: selector, ExcludedResources: moving}, all},
		"one":        {velerov1.BackupSpec{IncludedNamespaces: all[:1], ExcludedNamespaceScopedResources: moving[:3]}, all[:1]},
		"excluded":   {velerov1.BackupSpec{ExcludedNamespaces: all[:1], ExcludedResources: moving}, append([]string{"default"}, all[1:]...)},
		"some-kinds": {velerov1.BackupSpec{IncludedResources: []string{"configmaps", "serviceaccounts", "persistentvolumeclaims"}}, all},
	} {
		t.Run(name, func(t *testing.T) {
			content, files, mark := b.clusterContent(t), b.bucketFiles(t), audit.Mark(t)
			plan, planned := b.planBackup(t, tt.spec, tt.namespaces...)
			require.Empty(t, differentKeys(content, b.clusterContent(t)), "a dry run changes no object")
			require.Empty(t, differentKeys(b.clusterContent(t), content), "and makes none")
			require.Empty(t, audit.Writes(t, mark), "nor does it ask for that")
			b.requirePlanAlone(t, files)
			require.Empty(t, plan.GetPlan().GetUnstored())
			require.EqualValues(t, len(planned), plan.GetPlan().GetCounts()["store"])
			if name == "all" {
				require.Greater(t, len(planned), 1000)
			}
			require.NotEmpty(t, planned)
			if name == "some-kinds" {
				b.requireDryRun(t, audit, tt.spec, planned, tt.namespaces...)
			}

			spec := tt.spec
			spec.StorageLocation = "default"
			backup := b.awaitFinished(t, b.admit(t, &velerov1.Backup{Spec: spec, ObjectMeta: metav1.ObjectMeta{Namespace: server, Name: name, Annotations: map[string]string{
				holdfast.AnnotationPlan: plan.GetPlan().GetId(), holdfast.AnnotationPlanStrict: "true"}}}, tt.namespaces...))
			require.Equal(t, velerov1.BackupPhaseCompleted, backup.Status.Phase, backup.Status.FailureReason)
			require.Equal(t, "none", backup.Annotations[holdfast.AnnotationPlanDifferences])
			require.Equal(t, planned, b.storedObjects(t, name))
			require.NotEmpty(t, audit.Writes(t, mark), "a backup does")
		})
	}
}
