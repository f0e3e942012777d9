package backup

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	backupv1 "github.com/holdfast-io/holdfast/proto/gen/holdfast/backup/v1"
)

// diffCluster returns what of a backup differs from the cluster, a line for each object and field, and the whole answer as text.
func (b *bed) diffCluster(t *testing.T, name string) (lines []string, text string) {
	t.Helper()
	conn, err := grpc.NewClient(b.runner, grpc.WithTransportCredentials(insecure.NewCredentials()))
	require.NoError(t, err)
	defer conn.Close()
	stream, err := backupv1.NewBackupServiceClient(conn).DiffCluster(t.Context(), &backupv1.DiffClusterRequest{Backup: name, WithFields: true})
	require.NoError(t, err)
	for {
		m, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return lines, text
		}
		require.NoError(t, err)
		text += m.String()
		lines = append(lines, m.GetMessages()...)
		for _, d := range m.GetDifferences() {
			lines = append(lines, fmt.Sprintf("%s %s/%s", strings.TrimPrefix(d.GetChange().String(), "CHANGE_"), d.GetKind(), d.GetName()))
			for _, f := range d.GetFields() {
				lines = append(lines, fmt.Sprintf("%s: %s -> %s, masked %v", f.GetPath(), f.GetFrom(), f.GetTo(), f.GetMasked()))
			}
		}
	}
}

// TestABackupIsComparedWithTheLiveCluster changes some objects after a backup: a comparison names them and nothing else, shows no
// value of a Secret, and writes nothing.
func TestABackupIsComparedWithTheLiveCluster(t *testing.T) {
	b := newBed(t)
	b.startRunner(t)
	meta := func(name string) metav1.ObjectMeta { return metav1.ObjectMeta{Namespace: "shop", Name: name} }
	b.createObject(t, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop"}})
	secret := &corev1.Secret{ObjectMeta: meta("db"), StringData: map[string]string{"password": "canary-1"}}
	page, gone := &corev1.ConfigMap{ObjectMeta: meta("page"), Data: map[string]string{"text": "open"}}, &corev1.ConfigMap{ObjectMeta: meta("gone")}
	service := &corev1.Service{ObjectMeta: meta("web"), Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80}}}}
	b.createObject(t, secret)
	b.createObject(t, page)
	b.createObject(t, gone)
	b.createObject(t, service)
	backup := b.awaitFinished(t, b.admitBackup(t, "before", velerov1.BackupSpec{IncludedNamespaces: []string{"sho?"}}, "shop"))
	require.Equal(t, velerov1.BackupPhaseCompleted, backup.Status.Phase, backup.Status.FailureReason)
	lines, _ := b.diffCluster(t, "before")
	require.Empty(t, lines)

	secret.StringData = map[string]string{"password": "canary-2"}
	require.NoError(t, b.client.Update(t.Context(), secret))
	page.Data["text"] = "closed"
	require.NoError(t, b.client.Update(t.Context(), page))
	service.Status.Conditions = []metav1.Condition{{Type: "Seen", Status: "True", Reason: "Seen", LastTransitionTime: metav1.Now()}}
	require.NoError(t, b.client.Status().Update(t.Context(), service))
	require.NoError(t, b.client.Delete(t.Context(), gone))
	b.createObject(t, &corev1.ConfigMap{ObjectMeta: meta("new")})
	b.createObject(t, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "elsewhere"}})
	content, files := b.clusterContent(t), b.bucketFiles(t)
	lines, text := b.diffCluster(t, "before")
	require.Equal(t, []string{
		"REMOVED ConfigMap/gone", "ADDED ConfigMap/new", "CHANGED ConfigMap/page", `data.text: "open" -> "closed", masked false`,
		"CHANGED Secret/db", "data.password:  -> , masked true",
	}, lines)
	require.NotContains(t, text, "canary")
	require.Equal(t, content, b.clusterContent(t))
	require.Equal(t, files, b.bucketFiles(t))
}
