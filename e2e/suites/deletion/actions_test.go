// Package deletion_test deletes backups with plugins on a real API server. (Goes to
// e2e/deletion/actions_test.go.)
package deletion_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-io/holdfast/e2e/harness/site"
	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/extension/pluginhost/selfplugin"
	"github.com/holdfast-io/holdfast/pkg/layout"
	"github.com/holdfast-io/holdfast/pkg/plugin"
	"github.com/holdfast-io/holdfast/pkg/plugin/serve"
)

const envDiary = "VENDOR_DIARY"

// TestMain is a plugin where a host starts it.
func TestMain(m *testing.M) {
	if os.Getenv("VELERO_PLUGIN") == "" {
		os.Exit(m.Run())
	}
	registry := &plugin.Registry{}
	for _, name := range []string{"a.io/x", "b.io/a", "a.io/b"} {
		registry.DeleteItemAction(name, []string{"configmaps"}, func(plugin.Env) (plugin.DeleteItemAction, error) { return vendor{name: name}, nil })
	}
	if err := serve.Run(registry); err != nil {
		os.Exit(1)
	}
	os.Exit(0)
}

type vendor struct {
	plugin.Everything
	name string
}

func (v vendor) Execute(_ context.Context, in *plugin.BackupInput) error {
	dir := os.Getenv(envDiary)
	f, err := os.OpenFile(filepath.Join(dir, "diary"), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = f.WriteString(v.name + " " + in.Backup.Name() + " " + in.Item.GetNamespace() + "/" + in.Item.GetName() + "\n")
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	if _, err := os.Stat(filepath.Join(dir, "refuse")); err == nil && v.name == "a.io/x" && strings.HasSuffix(in.Item.GetName(), "0") {
		return errors.New("the array is rebooting")
	}
	return nil
}

func requestDeletion(t *testing.T, s *site.Site, name string) client.ObjectKey {
	t.Helper()
	d := &velerov1.DeleteBackupRequest{ObjectMeta: metav1.ObjectMeta{Namespace: site.Server, Name: name}}
	d.Spec.BackupName = "b"
	require.NoError(t, s.Client.Create(t.Context(), d))
	return client.ObjectKeyFromObject(d)
}

func TestDeleteItemActionsOnAnAPIServer(t *testing.T) {
	diary, plugins := t.TempDir(), selfplugin.Directory(t, "vendor")
	t.Setenv(envDiary, diary) // inherited by the services and configured for plugins
	require.NoError(t, os.WriteFile(filepath.Join(diary, "refuse"), nil, 0o600))

	s := site.Start(t, site.Config{Args: map[string][]string{"deletion": {"--plugin-dir", plugins, "--plugin-env", envDiary}}})
	bucket, dir := site.FileBucket(t, "default")
	s.ReachFiles(t, dir, bucket)
	s.Estate(t, "shop", 5, 100)
	s.Backup(t, "b", bucket, "shop")
	require.Equal(t, velerov1.BackupPhaseCompleted, s.BackupEnds(t, "b").Status.Phase)
	var keys []string
	require.Eventually(t, func() bool {
		keys = bucket.Keys(t)
		return !slices.ContainsFunc(keys, func(key string) bool { return strings.HasPrefix(key, layout.PartsDir("b")) })
	}, site.Patience, site.Look, "the parts go after the backup has ended")

	first := requestDeletion(t, s, "first")
	d := &velerov1.DeleteBackupRequest{}
	require.Eventually(t, func() bool {
		return s.Client.Get(t.Context(), first, d) == nil && len(d.Status.Errors) > 0
	}, site.Patience, site.Look)
	require.Equal(t, velerov1.DeleteBackupRequestPhaseInProgress, d.Status.Phase, "it waits for its next try")
	for _, text := range d.Status.Errors {
		require.Contains(t, text, "delete item actions: plugin a.io/x: Execute of ConfigMap shop/")
		require.Contains(t, text, "the array is rebooting")
	}
	require.Subset(t, bucket.Keys(t), keys, "nothing is removed")
	require.Equal(t, velerov1.BackupPhaseDeleting, s.BackupEnds(t, "b").Status.Phase)
	calls := readLines(t, diary)
	byItem := map[string]string{}
	for _, line := range calls {
		fields := strings.Fields(line)
		byItem[fields[2]] += fields[0] + " "
	}
	for item, order := range byItem {
		want := "a.io/b a.io/x b.io/a "
		if strings.HasSuffix(item, "0") {
			want = "a.io/b a.io/x "
		}
		require.Equal(t, want, order, item)
	}

	require.NoError(t, os.Remove(filepath.Join(diary, "refuse")))
	require.Eventually(t, func() bool {
		return apierrors.IsNotFound(s.Client.Get(t.Context(), client.ObjectKey{Namespace: site.Server, Name: "b"}, &velerov1.Backup{}))
	}, site.Patience, site.Look)
	for _, line := range readLines(t, diary)[len(calls):] {
		require.Regexp(t, `^(a.io/x|b.io/a) b shop/.*0$`, line, "only what was left")
	}
	require.Len(t, readLines(t, diary)[len(calls):], 2*len(d.Status.Errors))
	bucket.Settles(t, nil)
}

func readLines(t *testing.T, dir string) []string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(dir, "diary"))
	require.NoError(t, err)
	return strings.FieldsFunc(string(text), func(r rune) bool { return r == '\n' })
}
