package cli_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-io/holdfast/pkg/apis/holdfast"
	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/job/mark"
	"github.com/holdfast-io/holdfast/services/holdfast/internal/cli/clitest"
)

var now = time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC)

// TestEveryByteStays compares what the commands about backups and restores print, and their exit
// codes, with testdata. UPDATE_GOLDEN=1 writes the files anew.
func TestEveryByteStays(t *testing.T) {
	for _, kind := range []string{"backup", "restore"} {
		t.Run(kind, func(t *testing.T) {
			var got strings.Builder
			for _, line := range append(helpLines(kind), commandLines(kind)...) {
				in, command, _ := strings.Cut(line, "|")
				result := newTestCluster(t, kind).Run(t.Context(), in, append([]string{kind}, strings.Fields(command)...)...)
				fmt.Fprintf(&got, "$ %s %s\n%s--- stderr\n%s--- exit %d\n\n", kind, line, result.Out, result.Err, result.Code)
			}
			path := filepath.Join("testdata", kind+".golden")
			if os.Getenv("UPDATE_GOLDEN") != "" {
				require.NoError(t, os.WriteFile(path, []byte(got.String()), 0o644))
			}
			want, err := os.ReadFile(path)
			require.NoError(t, err)
			require.Equal(t, string(want), got.String())
		})
	}
}

func helpLines(kind string) []string {
	out := []string{"|--help", "|nonsense"}
	verbs := []string{"create", "get", "describe", "logs", "cancel", "delete"}
	if kind == "backup" {
		verbs = append(verbs, "plan", "download", "items", "cat", "tree", "diff", "related", "verify")
	}
	for _, verb := range verbs {
		out = append(out, "|"+verb+" --help")
	}
	return out
}

// commandLines are command lines, after what a person types and a bar.
func commandLines(kind string) []string {
	out := []string{
		"|get", "|get done", "|get done partly", "|get absent", "|get -l team=a", "|get -l team=none", "|get -l !!", "|get -l team=a -o json", "|get done -o yaml", "|get done partly -o yaml",
		"|get -o wide", "|get -o name", "|get done -o name", "|get absent -o name", "|get -l team=none -o json", "|get -o xml", "|get partly -o jsonpath={.metadata.name}/{.status.phase}",
		"|get -o jsonpath={.items[*].metadata.name}", "|get -o custom-columns=NAME:.metadata.name,ERRORS:{.status.errors},NONE:.spec.absent", "|get done -o custom-columns=UID:metadata.uid",
		"|get -o custom-columns=NAME", "|get -o custom-columns=NAME:.a[", "|get -o jsonpath={", "|get --output=table done",
		"|describe", "|describe done", "|describe partly", "|describe partly --details", "|describe partly --details -o json", "|describe done fresh -o yaml",
		"|describe partly -o jsonpath={.results.errors.namespaces.web[0]}", "|describe done fresh -o jsonpath={[*].volumes}", "|describe done -o name", "|describe done -o wide", "|describe done -o plaintext",
		"|describe done fresh", "|describe queued", "|describe running", "|describe failed", "|describe invalid", "|describe leaving", "|describe absent",
		"|describe done absent",
		"|logs", "|logs done", "|logs running", "|logs fresh", "|logs partly", "|logs absent",
		"|cancel", "|cancel running", "|cancel running done closing cancelled absent", "|cancel cancelled --wait", "|cancel done --wait",
		"|delete", "|delete done --all", "|delete done --confirm", "y\n|delete done partly", "n\n|delete done", "|delete done", "|delete absent --confirm",
		"|delete -l team=a --confirm", "|delete -l team=none --confirm", "|delete -l !! --confirm", "|delete done absent partly --confirm",
		"|create", "|create Not_A_Name", "|create n -o yaml", "|create n -o json", "|create n -o name", "|create n --wait -o yaml", "|create n -l a=b --or-selector c=d", "|create done",
	}
	if kind == "restore" {
		for i, line := range out {
			if strings.HasPrefix(line, "|create ") {
				out[i] = line + " --from-backup first"
			}
		}
		return append(out, "|create r --from-backup first --item deploy/web,secret/other/db -n shop --with-children --with-dependencies -o yaml", "|create r --from-backup first --item clusterrole/system:x -o yaml",
			"|create r --from-backup first -n elsewhere -o yaml", "|create r --from-backup first --item web", "|create r --from-backup first --with-children",
			"|create r --from-backup first --files data:/etc/app.conf,other/b:uploads/,data:a$b:c -n shop -o yaml", "|create r --from-backup first --files data:etc", "|create r --from-backup first --files etc -n shop",
			"|create r --from-backup first --files data:etc,data:etc/app.conf -n shop", "|create r --from-backup first --files data:etc --item deploy/web -n shop",
			"|create --from-backup first", "|create r --from-backup first", "|delete done --confirm --wait")
	}
	return append(out, "|create n", "|create n --strict", "|create p --from-plan 20260304-1 --include-namespaces a", "|create p --from-plan 20260304-1 --strict --storage-location eu -o yaml", "|create p --from-plan 20260304-1 --strict -o yaml", "|download", "|download absent -o .absent")
}

// newTestCluster holds a job of each sort.
func newTestCluster(t *testing.T, kind string) *clitest.Cluster {
	t.Helper()
	c := clitest.New(t, testObjects(t, kind)...)
	c.Clock = clocktesting.NewFakeClock(now)
	title := strings.ToUpper(kind[:1]) + kind[1:]
	volumes := map[string]string{"backup": "BackupVolumeInfos", "restore": "RestoreVolumeInfo"}[kind]
	podVolume := map[string]string{"backup": "pvbInfo", "restore": "pvrInfo"}[kind]
	c.Files[title+"Log/done"] = clitest.Zip(t, "level=info msg=done\n")
	c.Files[title+"Results/partly"] = clitest.Zip(t, `{"warnings":{"velero":["slow"],"cluster":["a warning"]},"errors":{"namespaces":{"web":["an error"],"db":["1","2"]}}}`)
	c.Files[volumes+"/partly"] = clitest.Zip(t, `[{"pvcName":"data","pvcNamespace":"web","skipped":true,"skippedReason":"not supported"},{"pvName":"pv2","backupMethod":"NativeSnapshot","result":"succeeded"},{"`+podVolume+`":{"podNamespace":"web","podName":"a","volumeName":"cache"}}]`)
	c.Files[volumes+"/done"] = clitest.Zip(t, `[]`)
	c.Files[volumes+"/failed"] = []byte("not gzip")
	c.Files[title+"ResourceList/partly"] = clitest.Zip(t, `{"v1/Pod":["web/a","web/b"],"apps/v1/Deployment":["web/d"]}`)
	return c
}

func minutesAfter(minutes int) *metav1.Time {
	return ptr.To(metav1.NewTime(now.Add(time.Duration(minutes) * time.Minute)))
}

// jobSort is one sort of job, in what backups and restores have alike.
type jobSort struct {
	name, phase, failure string
	validation           []string
	errors, warnings     int
	done, total          int
	ended                bool
	detailed             bool
}

func testObjects(t *testing.T, kind string) []client.Object {
	t.Helper()
	out := []client.Object{
		&velerov1.Backup{ObjectMeta: metav1.ObjectMeta{Namespace: "velero", Name: "first"}, Spec: velerov1.BackupSpec{StorageLocation: "eu"}},
		&velerov1.DeleteBackupRequest{
			ObjectMeta: metav1.ObjectMeta{Namespace: "velero", Name: "partly-1", CreationTimestamp: *minutesAfter(1), Labels: map[string]string{
				velerov1.LabelBackupName: "partly", velerov1.LabelBackupUID: "uid-partly"}},
			Status: velerov1.DeleteBackupRequestStatus{Phase: "Processed", Errors: []string{"location is read-only"}},
		},
	}
	if kind == "restore" {
		out[0].(*velerov1.Backup).Labels = map[string]string{velerov1.LabelScheduleName: "daily"}
	}
	for _, s := range []jobSort{
		{name: "done", phase: "Completed", done: 7, total: 7, ended: true},
		{name: "partly", phase: "PartiallyFailed", errors: 3, warnings: 2, done: 8, total: 9, ended: true, detailed: true},
		{name: "failed", phase: "Failed", failure: "the bucket burned", ended: true},
		{name: "cancelled", phase: "Failed", failure: "cancelled by bob", ended: true},
		{name: "invalid", phase: "FailedValidation", validation: []string{"no such location", "no such thing"}},
		{name: "running", phase: "InProgress", done: 1, total: 5},
		{name: "closing", phase: "InProgress"},
		{name: "fresh"},
		{name: "leaving", phase: "Completed", ended: true},
		{name: "queued", phase: map[string]string{"backup": "Queued", "restore": "New"}[kind]},
		{name: "daily-20260102030405", phase: "Completed", ended: true},
		{name: "daily-20260103030405", phase: "Completed", ended: true},
	} {
		obj := s.newBackup()
		if kind == "restore" {
			obj = s.newRestore()
		}
		if s.name == "partly" && kind == "backup" {
			noted := obj.GetAnnotations()
			noted[holdfast.AnnotationPlan], noted[holdfast.AnnotationPlanDifferences] = "20260304-1", "2 objects were added since, 1 are gone"
		}
		if s.name == "closing" {
			require.NoError(t, mark.SetCommitting(obj, 1))
		}
		out = append(out, obj)
	}
	return out
}

func (s *jobSort) objectMeta() metav1.ObjectMeta {
	meta := metav1.ObjectMeta{Namespace: "velero", Name: s.name, UID: types.UID("uid-" + s.name), CreationTimestamp: *minutesAfter(-60)}
	if s.detailed {
		meta.Labels, meta.Annotations = map[string]string{"team": "a"}, map[string]string{"note": "hello"}
	}
	if s.name == "leaving" {
		meta.DeletionTimestamp, meta.Finalizers = minutesAfter(-1), []string{"holdfast.io/test"}
	}
	return meta
}

func (s *jobSort) newBackup() client.Object {
	b := &velerov1.Backup{ObjectMeta: s.objectMeta(), Spec: velerov1.BackupSpec{StorageLocation: "eu", TTL: metav1.Duration{Duration: 48 * time.Hour}}}
	b.Status = velerov1.BackupStatus{Phase: velerov1.BackupPhase(s.phase), FailureReason: s.failure, ValidationErrors: s.validation, Errors: s.errors, Warnings: s.warnings}
	if s.total > 0 {
		b.Status.Progress = &velerov1.BackupProgress{TotalItems: s.total, ItemsBackedUp: s.done}
	}
	if s.ended {
		b.Status.StartTimestamp, b.Status.CompletionTimestamp, b.Status.Expiration = minutesAfter(-50), minutesAfter(-40), minutesAfter(60*30)
	}
	if s.phase == "Queued" {
		b.Status.QueuePosition = 2
	}
	if s.detailed {
		b.Spec.LabelSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"app": "x"}}
		b.Spec.IncludedClusterScopedResources, b.Spec.IncludedNamespaces = []string{"nodes"}, []string{"a", "b"}
		b.Spec.SnapshotVolumes = ptr.To(false)
		b.Status.BackupItemOperationsAttempted, b.Status.BackupItemOperationsCompleted = 2, 1
		b.Status.HookStatus = &velerov1.HookStatus{HooksAttempted: 3, HooksFailed: 1}
		b.Status.FormatVersion = "1.1.0"
	}
	return b
}

func (s *jobSort) newRestore() client.Object {
	r := &velerov1.Restore{ObjectMeta: s.objectMeta(), Spec: velerov1.RestoreSpec{BackupName: "first"}}
	r.Status = velerov1.RestoreStatus{Phase: velerov1.RestorePhase(s.phase), FailureReason: s.failure, ValidationErrors: s.validation, Errors: s.errors, Warnings: s.warnings}
	if s.total > 0 {
		r.Status.Progress = &velerov1.RestoreProgress{TotalItems: s.total, ItemsRestored: s.done}
	}
	if s.ended {
		r.Status.StartTimestamp, r.Status.CompletionTimestamp = minutesAfter(-50), minutesAfter(-40)
	}
	if s.detailed {
		r.Spec.BackupName, r.Spec.ScheduleName = "vanished", "daily"
		r.Spec.OrLabelSelectors = []*metav1.LabelSelector{{MatchLabels: map[string]string{"a": "b"}}, {MatchLabels: map[string]string{"c": "d"}}}
		r.Spec.NamespaceMapping = map[string]string{"a": "b"}
		r.Spec.RestorePVs = ptr.To(true)
	}
	return r
}
