package references

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-io/holdfast/e2e/harness/site"
	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
)

// foreign is the backup in Velero's layout: metadata, a tarball of one gzip member, the resource list, and nothing
// else.
const foreign = "foreign"

// showForeign runs every command that looks into a backup on the one in Velero's layout.
func (b *bed) showForeign(t *testing.T) {
	b.storeForeign(t)
	cli := b.CLI(t)
	manifests := []string{"--manifest-address", b.Fleet.Of("manifest-indexer")[0].GRPC}
	addresses := map[string][]string{
		"backup": manifests, "search": manifests, "history": manifests,
		"restore": {"--restore-address", b.Fleet.Of("restore-runner")[0].GRPC},
	}
	for _, command := range []struct {
		line string
		says []string
	}{
		{"backup items foreign --kind machines -n machines -o name", []string{"machine.cluster.x-k8s.io/blue-1", "machine.cluster.x-k8s.io/red-0"}},
		{"backup items foreign --owner cluster.cluster.x-k8s.io/red -n machines", []string{"KubeadmControlPlane", "red-kubeconfig"}},
		{"backup tree foreign cluster.cluster.x-k8s.io/red -n machines", []string{"KubeadmControlPlane/red", "Machine/red-0", "DockerMachine/red-0"}},
		{"backup cat foreign secret/root -n certificates", []string{"name: root", "'***'"}},
		{"backup related foreign certificate/web -n certificates", []string{"Issuer", "authority", "Secret", "root"}},
		{"backup verify foreign", []string{" 0 faults"}},
		{"backup diff estate foreign", nil},
		{"search *-kubeconfig --backup foreign", []string{"red-kubeconfig", "blue-kubeconfig", "foreign"}},
		{"history secret/root -n certificates --backup foreign", []string{"foreign"}},
		{"restore plan --from-backup foreign --include-namespaces machines --all", []string{"red-kubeconfig", "unchanged"}},
	} {
		words := strings.Fields(command.line)
		require.Eventually(t, func() bool { // backups are indexed one after the other
			out, err := cli.Run(t.Context(), append(words, addresses[words[0]]...)...)
			return err == nil && !slices.ContainsFunc(command.says, func(text string) bool { return !strings.Contains(out, text) })
		}, site.Patience, time.Second, "%s", command.line)
	}
}

// storeForeign stores the backup once more, as Velero does, and waits until it is found in the bucket.
func (b *bed) storeForeign(t *testing.T) {
	t.Helper()
	dir := filepath.Join(b.path, backup, "backups", foreign)
	require.NoError(t, os.Mkdir(dir, 0o700))
	var packed bytes.Buffer
	zip := gzip.NewWriter(&packed)
	_, err := zip.Write(b.bucket.ReadZipped(t, "backups/"+backup+"/"+backup+".tar.gz"))
	require.NoError(t, err)
	require.NoError(t, zip.Close())
	require.NoError(t, os.WriteFile(filepath.Join(dir, foreign+".tar.gz"), packed.Bytes(), 0o600))

	list := b.bucket.Read(t, "backups/"+backup+"/"+backup+"-resource-list.json.gz")
	require.NoError(t, os.WriteFile(filepath.Join(dir, foreign+"-resource-list.json.gz"), list, 0o600))

	var stored velerov1.Backup
	require.NoError(t, json.Unmarshal(b.bucket.Read(t, "backups/"+backup+"/velero-backup.json"), &stored))
	stored.Name, stored.UID, stored.Annotations = foreign, "", nil
	text, err := json.Marshal(&stored)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "velero-backup.json"), text, 0o600))
	require.Eventually(t, func() bool {
		return b.Client.Get(t.Context(), client.ObjectKey{Namespace: site.Server, Name: foreign}, &velerov1.Backup{}) == nil
	}, site.Patience, site.Look, "the backup is found")
}
