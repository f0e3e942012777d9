package backup_test

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	queuev1 "github.com/holdfast-io/holdfast/proto/gen/holdfast/queue/v1"
	"github.com/holdfast-io/holdfast/services/holdfast/internal/cli/clitest"
)

func newBackup(name string, phase velerov1.BackupPhase) *velerov1.Backup {
	return &velerov1.Backup{
		ObjectMeta: metav1.ObjectMeta{Namespace: "velero", Name: name, UID: types.UID("uid-" + name)},
		Spec:       velerov1.BackupSpec{StorageLocation: "default"},
		Status:     velerov1.BackupStatus{Phase: phase},
	}
}

func readBackup(t *testing.T, c client.Client, name string) *velerov1.Backup {
	t.Helper()
	b := &velerov1.Backup{}
	require.NoError(t, c.Get(t.Context(), types.NamespacedName{Namespace: "velero", Name: name}, b))
	return b
}

func TestCreateSendsWhatTheFlagsSay(t *testing.T) {
	c := clitest.New(t, &velerov1.BackupStorageLocation{ObjectMeta: metav1.ObjectMeta{Namespace: "velero", Name: "eu"}})
	result := c.Run(t.Context(), "", "backup", "create", "b", "--include-namespaces", "a,b*", "--exclude-namespaces", "bad",
		"--include-cluster-scoped-resources", "*", "--exclude-namespace-scoped-resources", "secrets", "-l", "app=x",
		"--ttl", "48h", "--storage-location", "eu", "--labels", "team=a,tier=db", "--annotations", "note=hello world",
		"--snapshot-volumes=false", "--default-volumes-to-fs-backup", "--ordered-resources", "pods=ns/a;ns/b",
		"--csi-snapshot-timeout", "1m", "--item-operation-timeout", "2h", "--resource-policies-configmap", "rules",
		"--parallel-files-upload", "3", "--data-mover", "velero", "--snapshot-move-data", "--volume-group-snapshot-label-key", "k")
	require.Equal(t, 0, result.Code, result.Err)
	b := readBackup(t, c, "b")
	require.Equal(t, map[string]string{"team": "a", "tier": "db"}, b.Labels)
	require.Equal(t, map[string]string{"note": "hello world"}, b.Annotations)
	spec, err := json.Marshal(b.Spec)
	require.NoError(t, err)
	require.JSONEq(t, `{"metadata":{},"hooks":{},"includedNamespaces":["a","b*"],"excludedNamespaces":["bad"],"includedClusterScopedResources":["*"],
		"excludedNamespaceScopedResources":["secrets"],"labelSelector":{"matchLabels":{"app":"x"}},"ttl":"48h0m0s","storageLocation":"eu",
		"snapshotVolumes":false,"defaultVolumesToFsBackup":true,"orderedResources":{"pods":"ns/a,ns/b"},"csiSnapshotTimeout":"1m0s",
		"itemOperationTimeout":"2h0m0s","resourcePolicy":{"apiGroup":null,"kind":"ConfigMap","name":"rules"},"uploaderConfig":{"parallelFilesUpload":3},
		"datamover":"velero","snapshotMoveData":true,"volumeGroupSnapshotLabelKey":"k"}`, string(spec))
}

func TestCreateRefusesBadInput(t *testing.T) {
	cases := map[string]struct {
		args []string
		want string
	}{
		"no name":            {nil, "give the name of the backup"},
		"bad name":           {[]string{"Not_A_Name"}, "Not_A_Name"},
		"both filter styles": {[]string{"b", "--include-resources", "pods", "--include-cluster-scoped-resources", "*"}, "--include-resources"},
		"both selectors":     {[]string{"b", "-l", "a=b", "--or-selector", "a=b or c=d"}, "--or-selector"},
		"bad selector":       {[]string{"b", "-l", "a in"}, "--selector"},
		"bad namespace":      {[]string{"b", "--include-namespaces", "a,*"}, "namespaces"},
		"negative ttl":       {[]string{"b", "--ttl", "-1h"}, "--ttl"},
		"unknown location":   {[]string{"b", "--storage-location", "nowhere"}, "--storage-location"},
		"unknown vsl":        {[]string{"b", "--volume-snapshot-locations", "nowhere"}, "--volume-snapshot-locations"},
		"unknown schedule":   {[]string{"--from-schedule", "nowhere"}, "--from-schedule"},
		"bad label":          {[]string{"b", "--labels", "novalue"}, "--labels"},
		"label twice":        {[]string{"b", "--labels", "a=1,a=2"}, "twice"},
		"not a bool":         {[]string{"b", "--snapshot-volumes=maybe"}, "--snapshot-volumes"},
		"wait and print":     {[]string{"b", "--wait", "-o", "json"}, "--wait"},
		"bad format":         {[]string{"b", "-o", "xml"}, "xml"},
		"bad server name":    {[]string{"b", "-n", "Not/A"}, "--namespace"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			c := clitest.New(t)
			result := c.Run(t.Context(), "", append([]string{"backup", "create"}, tc.args...)...)
			require.Equal(t, 1, result.Code)
			require.Contains(t, result.Err, tc.want)
			list := &velerov1.BackupList{}
			require.NoError(t, c.List(t.Context(), list))
			require.Empty(t, list.Items)
		})
	}
}

func TestCreateFromSchedule(t *testing.T) {
	schedule := &velerov1.Schedule{
		ObjectMeta: metav1.ObjectMeta{Namespace: "velero", Name: "daily", Labels: map[string]string{"own": "1"}, Annotations: map[string]string{"n": "1"}},
		Spec:       velerov1.ScheduleSpec{Template: velerov1.BackupSpec{IncludedNamespaces: []string{"web"}, SnapshotVolumes: ptr.To(false)}},
	}
	c := clitest.New(t, schedule)
	require.Equal(t, 0, c.Run(t.Context(), "", "backup", "create", "--from-schedule", "daily").Code)
	list := &velerov1.BackupList{}
	require.NoError(t, c.List(t.Context(), list))
	require.Len(t, list.Items, 1)
	require.Regexp(t, `^daily-\d{14}$`, list.Items[0].Name)
	require.Equal(t, map[string]string{"own": "1", velerov1.LabelScheduleName: "daily"}, list.Items[0].Labels)
	require.Equal(t, map[string]string{"n": "1"}, list.Items[0].Annotations)
	require.Equal(t, []string{"web"}, list.Items[0].Spec.IncludedNamespaces)
}

// playServer plays the server: it moves the backup to a phase once it exists.
func playServer(t *testing.T, c client.Client, name string, status velerov1.BackupStatus) {
	t.Helper()
	ctx := t.Context()
	go func() {
		for ctx.Err() == nil {
			b := &velerov1.Backup{}
			if c.Get(ctx, types.NamespacedName{Namespace: "velero", Name: name}, b) == nil {
				b.Status = status
				if err := c.Update(ctx, b); err != nil {
					t.Error(err)
				}
				return
			}
		}
	}()
}

func TestCreateWaitsAndReportsTheEnd(t *testing.T) {
	cases := map[velerov1.BackupPhase]struct {
		status velerov1.BackupStatus
		code   int
		want   string
	}{
		velerov1.BackupPhaseCompleted:        {velerov1.BackupStatus{Progress: &velerov1.BackupProgress{TotalItems: 7, ItemsBackedUp: 7}}, 0, "Completed, 7 items, 0 warnings, 0 errors"},
		velerov1.BackupPhasePartiallyFailed:  {velerov1.BackupStatus{Errors: 2}, 2, "2 errors"},
		velerov1.BackupPhaseFailed:           {velerov1.BackupStatus{FailureReason: "the bucket burned"}, 1, "the bucket burned"},
		velerov1.BackupPhaseFailedValidation: {velerov1.BackupStatus{ValidationErrors: []string{"no such location"}}, 1, "no such location"},
	}
	for phase, tc := range cases {
		t.Run(string(phase), func(t *testing.T) {
			c := clitest.New(t)
			tc.status.Phase = phase
			playServer(t, c, "b", tc.status)
			result := c.Run(t.Context(), "", "backup", "create", "b", "--wait")
			require.Equal(t, tc.code, result.Code)
			require.Contains(t, result.Out+result.Err, tc.want)
		})
	}
}

func TestInterruptedWaitSaysWhatGoesOn(t *testing.T) {
	c := clitest.New(t)
	ctx := c.InterruptOnce(t, &velerov1.BackupList{})
	result := c.Run(ctx, "", "backup", "create", "b", "--wait")
	require.Equal(t, 130, result.Code)
	require.Contains(t, result.Err, `backup "b" keeps running`)
}

func TestWaitEndsWhenTheBackupVanishes(t *testing.T) {
	c := clitest.New(t)
	ctx := t.Context()
	go func() {
		for ctx.Err() == nil {
			if c.Delete(ctx, newBackup("b", "")) == nil {
				return
			}
		}
	}()
	result := c.Run(ctx, "", "backup", "create", "b", "--wait")
	require.Equal(t, 1, result.Code)
	require.Contains(t, result.Err, "not found")
}

func TestLogsAndDownload(t *testing.T) {
	c := clitest.New(t, newBackup("b", velerov1.BackupPhaseCompleted), newBackup("running", velerov1.BackupPhaseInProgress))
	c.Files["BackupLog/b"] = clitest.Zip(t, "level=info msg=done\n")
	c.Files["BackupContents/b"] = []byte("raw bytes of the tarball")

	result := c.Run(t.Context(), "", "backup", "logs", "b")
	require.Equal(t, 0, result.Code, result.Err)
	require.Equal(t, "level=info msg=done\n", result.Out)

	result = c.Run(t.Context(), "", "backup", "logs", "running")
	require.Equal(t, 1, result.Code)
	require.Contains(t, result.Err, "InProgress")

	path := filepath.Join(t.TempDir(), "b.tar.gz")
	result = c.Run(t.Context(), "", "backup", "download", "b", "-o", path)
	require.Equal(t, 0, result.Code, result.Err)
	saved, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, "raw bytes of the tarball", string(saved))

	result = c.Run(t.Context(), "", "backup", "download", "b", "-o", path)
	require.Equal(t, 1, result.Code)
	require.Contains(t, result.Err, "--force")
	require.Equal(t, 0, c.Run(t.Context(), "", "backup", "download", "b", "-o", path, "--force").Code)
	entries, err := os.ReadDir(filepath.Dir(path))
	require.NoError(t, err)
	require.Len(t, entries, 1, "no temporary file is left")
}

func TestDescribeARunningBackupAsksForNoFile(t *testing.T) {
	c := clitest.New(t, newBackup("b", velerov1.BackupPhaseInProgress))
	result := c.Run(t.Context(), "", "backup", "describe", "b")
	require.Equal(t, 0, result.Code, result.Err)
	list := &velerov1.DownloadRequestList{}
	require.NoError(t, c.List(t.Context(), list))
	require.Empty(t, list.Items)
}

// asked is a queue-scheduler with one backup.
type asked struct {
	queuev1.UnimplementedQueueServiceServer
	uid string
}

func (a asked) ExplainBackup(_ context.Context, req *queuev1.ExplainBackupRequest) (*queuev1.ExplainBackupResponse, error) {
	return &queuev1.ExplainBackupResponse{
		Entry: &queuev1.QueueEntry{Namespace: "velero", Name: req.GetName(), Uid: a.uid, Position: 3}, Message: "backup big runs on namespace a",
	}, nil
}

// The place in the queue is that of the service or, where it cannot be asked, the one in the
// status, which may be older.
func TestDescribeTellsThePlaceInTheQueue(t *testing.T) {
	queued := newBackup("b", velerov1.BackupPhaseQueued)
	queued.Status.QueuePosition = 7
	c := clitest.New(t, queued)
	page := func() string {
		result := c.Run(t.Context(), "", "backup", "describe", "b")
		require.Equal(t, 0, result.Code, result.Err)
		return result.Out
	}
	require.Contains(t, page(), "Queue position:               7\n")
	c.Serve(t, asked{uid: "another one of this name"})
	require.Contains(t, page(), "Queue position:               7\n")
	c.Serve(t, asked{uid: "uid-b"})
	require.Contains(t, page(), "Queue position:               3\nWaits because:                backup big runs on namespace a\n")
	require.Contains(t, c.Run(t.Context(), "", "backup", "describe", "b", "-o", "json").Out, `"position": 3`)
	require.Contains(t, c.Run(t.Context(), "", "backup", "describe", "b", "--queue-address", "here").Err, "--queue-address")
}

func listRequests(t *testing.T, c client.Client) []velerov1.DeleteBackupRequest {
	t.Helper()
	list := &velerov1.DeleteBackupRequestList{}
	require.NoError(t, c.List(t.Context(), list))
	return list.Items
}

func TestDeleteAsksFirst(t *testing.T) {
	for in, deleted := range map[string]int{"": 0, "n\n": 0, "y\n": 1, "YES\n": 1} {
		c := clitest.New(t, newBackup("b", velerov1.BackupPhaseCompleted))
		require.Equal(t, 0, c.Run(t.Context(), in, "backup", "delete", "b").Code)
		require.Len(t, listRequests(t, c), deleted, "%q", in)
	}
}

func TestDeleteRequestsWhatWasChosen(t *testing.T) {
	long := newBackup("long-name-0123456789012345678901234567890123456789012345678901234567890", velerov1.BackupPhaseCompleted)
	labelled := newBackup("x", velerov1.BackupPhaseCompleted)
	labelled.Labels = map[string]string{"a": "b"}
	for args, want := range map[string]int{"--all": 2, "--selector=a=b": 1, "--selector=a=c": 0} {
		c := clitest.New(t, long, labelled)
		result := c.Run(t.Context(), "", "backup", "delete", "--confirm", args)
		require.Equal(t, 0, result.Code, result.Err)
		require.Len(t, listRequests(t, c), want, args)
	}
	c := clitest.New(t, long)
	require.Equal(t, 0, c.Run(t.Context(), "", "backup", "delete", "--confirm", long.Name).Code)
	request := listRequests(t, c)[0]
	require.Equal(t, long.Name, request.Spec.BackupName)
	require.Equal(t, velerov1.LabelValue(long.Name), request.Labels[velerov1.LabelBackupName])
	require.Equal(t, string(long.UID), request.Labels[velerov1.LabelBackupUID])

	for _, args := range [][]string{{}, {"b", "--all"}} {
		result := c.Run(t.Context(), "", append([]string{"backup", "delete", "--confirm"}, args...)...)
		require.Equal(t, 1, result.Code)
	}
}

// playDeletion plays the deletion service.
func playDeletion(t *testing.T, c client.Client, problems ...string) {
	t.Helper()
	ctx := t.Context()
	go func() {
		for ctx.Err() == nil {
			list := &velerov1.DeleteBackupRequestList{}
			if c.List(ctx, list) != nil || len(list.Items) == 0 {
				continue
			}
			request := &list.Items[0]
			if len(problems) == 0 {
				assert.NoError(t, c.Delete(ctx, newBackup(request.Spec.BackupName, "")))
			}
			request.Status = velerov1.DeleteBackupRequestStatus{Phase: velerov1.DeleteBackupRequestPhaseProcessed, Errors: problems}
			assert.NoError(t, c.Update(ctx, request))
			return
		}
	}()
}

func TestDeleteWaits(t *testing.T) {
	c := clitest.New(t, newBackup("b", velerov1.BackupPhaseCompleted))
	playDeletion(t, c)
	result := c.Run(t.Context(), "", "backup", "delete", "b", "--confirm", "--wait")
	require.Equal(t, 0, result.Code, result.Err)
	require.Contains(t, result.Out, `Backup "b" is gone`)

	c = clitest.New(t, newBackup("b", velerov1.BackupPhaseCompleted))
	playDeletion(t, c, "location is read-only")
	result = c.Run(t.Context(), "", "backup", "delete", "b", "--confirm", "--wait")
	require.Equal(t, 1, result.Code)
	require.Contains(t, result.Err, "location is read-only")

	c = clitest.New(t, newBackup("b", velerov1.BackupPhaseCompleted))
	ctx := c.InterruptOnce(t, &velerov1.DeleteBackupRequestList{})
	result = c.Run(ctx, "", "backup", "delete", "b", "--confirm", "--wait")
	require.Equal(t, 130, result.Code)
	require.Contains(t, result.Err, "continues")
}
