package validate_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/pkg/apis/holdfast"
	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/archive/manifest"
	"github.com/holdfast-io/holdfast/pkg/job/mark"
	"github.com/holdfast-io/holdfast/pkg/job/validate"
	"github.com/holdfast-io/holdfast/pkg/kube/objmeta"
	"github.com/holdfast-io/holdfast/pkg/layout"
)

// shelf is a location in a directory.
type shelf struct {
	t    *testing.T
	root string
	bsl  *velerov1.BackupStorageLocation
}

func newShelf(t *testing.T) *shelf {
	t.Helper()
	dir := t.TempDir()
	return &shelf{t, filepath.Join(dir, "bucket"), newStorageLocation("main", func(b *velerov1.BackupStorageLocation) {
		b.Spec.Provider, b.Spec.Config = holdfast.ProviderFile, map[string]string{"path": dir}
		b.Spec.ObjectStorage = &velerov1.ObjectStorageLocation{Bucket: "bucket"}
	})}
}

func (s *shelf) putObject(key string, content []byte) {
	s.t.Helper()
	path := filepath.Join(s.root, filepath.FromSlash(key))
	require.NoError(s.t, os.MkdirAll(filepath.Dir(path), 0o700))
	require.NoError(s.t, os.WriteFile(path, content, 0o600))
}

// putTarball stores one with an empty body for every path, and returns its size.
func (s *shelf) putTarball(backup string, paths ...string) int64 {
	s.t.Helper()
	var out bytes.Buffer
	zip := gzip.NewWriter(&out)
	archive := tar.NewWriter(zip)
	for _, path := range paths {
		require.NoError(s.t, archive.WriteHeader(&tar.Header{Name: path, Typeflag: tar.TypeReg, Mode: 0o600}))
	}
	require.NoError(s.t, archive.Close())
	require.NoError(s.t, zip.Close())
	s.putObject(layout.BackupTarball(backup), out.Bytes())
	return int64(out.Len())
}

// putManifest stores one of a ConfigMap in every namespace and a Namespace of its own.
func (s *shelf) putManifest(backup string, size int64, own string, namespaces ...string) {
	s.t.Helper()
	var out bytes.Buffer
	w, err := manifest.NewWriter(&out, manifest.Header{Backup: backup}, s.t.TempDir())
	require.NoError(s.t, err)
	add := func(kind, resource, namespace, name string) {
		path := "resources/" + resource + "/cluster/" + name + ".json"
		if namespace != "" {
			path = "resources/" + resource + "/namespaces/" + namespace + "/" + name + ".json"
		}
		e := &manifest.Entry{Version: "v1", Kind: kind, Resource: resource, Preferred: true, Path: path, Meta: &objmeta.Meta{Namespace: namespace, Name: name}}
		require.NoError(s.t, w.Add(manifest.Record{
			Key: manifest.AppendKey(nil, "v1/"+kind, namespace, name), Path: []byte(path), Entry: manifest.AppendEntry(nil, e), Length: 10,
		}))
	}
	for _, namespace := range namespaces {
		add("ConfigMap", "configmaps", namespace, "c")
	}
	if own != "" {
		add("Namespace", "namespaces", "", own)
	}
	if backup == "shared" {
		add("PersistentVolume", "persistentvolumes", "", "pv")
	}
	require.NoError(s.t, w.Close(manifest.Trailer{TarballSize: size}))
	s.putObject(layout.BackupManifest(backup), out.Bytes())
}

// Namespaces that the spec does not list are read from the backup: a restore delays no job of
// others.
func TestTargetsComeFromTheBackup(t *testing.T) {
	s := newShelf(t)
	s.putManifest("whole", s.putTarball("whole", "resources/configmaps/namespaces/a/c.json"), "lone", "a", "b", "team-a", "team-b")
	s.putTarball("foreign", "metadata/version", "resources/configmaps/namespaces/b/c.json", "resources/deployments.apps/v1-preferredversion/namespaces/a/d.json",
		"resources/namespaces/cluster/lone.json", "resources/nodes/cluster/n.json", "../evil")
	s.putManifest("anew", 7, "", "of-another-tarball")
	s.putTarball("anew", "resources/configmaps/namespaces/a/c.json")
	s.putManifest("cluster", s.putTarball("cluster", "resources/nodes/cluster/n.json"), "")
	v := newValidator(t, s.bsl, storedBackup("whole", "", velerov1.BackupPhaseCompleted, 0), storedBackup("foreign", "", velerov1.BackupPhaseCompleted, 0),
		storedBackup("anew", "", velerov1.BackupPhaseCompleted, 0), storedBackup("cluster", "", velerov1.BackupPhaseCompleted, 0))
	mapping := map[string]string{"a": "x", "team-b": "x"}
	for name, tc := range map[string]struct {
		spec velerov1.RestoreSpec
		want []string
	}{
		"no filter":             {velerov1.RestoreSpec{BackupName: "whole"}, []string{"a", "b", "lone", "team-a", "team-b"}},
		"everything":            {velerov1.RestoreSpec{BackupName: "whole", IncludedNamespaces: []string{"*"}}, []string{"a", "b", "lone", "team-a", "team-b"}},
		"mapped":                {velerov1.RestoreSpec{BackupName: "whole", NamespaceMapping: mapping}, []string{"b", "lone", "team-a", "x"}},
		"less excluded":         {velerov1.RestoreSpec{BackupName: "whole", ExcludedNamespaces: []string{"b", "team-*"}}, []string{"a", "lone"}},
		"patterns":              {velerov1.RestoreSpec{BackupName: "whole", IncludedNamespaces: []string{"team-*", "b"}, NamespaceMapping: mapping}, []string{"b", "team-a", "x"}},
		"names ask nobody":      {velerov1.RestoreSpec{BackupName: "absent", IncludedNamespaces: []string{"q", "a"}, NamespaceMapping: mapping}, []string{"q", "x"}},
		"another's tarball":     {velerov1.RestoreSpec{BackupName: "foreign"}, []string{"a", "b", "lone"}},
		"written anew":          {velerov1.RestoreSpec{BackupName: "anew"}, []string{"a"}},
		"cluster-scoped only":   {velerov1.RestoreSpec{BackupName: "cluster"}, []string{}},
		"a pattern of nothing":  {velerov1.RestoreSpec{BackupName: "whole", IncludedNamespaces: []string{"none-*"}}, []string{}},
		"all that is there out": {velerov1.RestoreSpec{BackupName: "foreign", ExcludedNamespaces: []string{"a", "b", "lone"}}, []string{}},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := v.Targets(t.Context(), newRestore(tc.spec))
			require.NoError(t, err)
			require.Equal(t, tc.want, got)
		})
	}
}

func TestARestoreOfItemsAloneReservesTheirNamespaces(t *testing.T) {
	s := newShelf(t)
	s.putManifest("whole", s.putTarball("whole", "resources/configmaps/namespaces/a/c.json"), "a", "b", "c")
	v := newValidator(t, s.bsl, storedBackup("whole", "", velerov1.BackupPhaseCompleted, 0))
	for items, want := range map[string][]string{"deploy/b/x,cm/a/y, svc/b/z": {"b", "x"}, "clusterrole/r": {}, "ns/c,sc/fast": {"c"}} {
		r := newRestore(velerov1.RestoreSpec{BackupName: "whole", NamespaceMapping: map[string]string{"a": "x"}})
		r.Annotations = map[string]string{holdfast.AnnotationItems: items}
		got, err := v.Targets(t.Context(), r)
		require.NoError(t, err)
		require.Equal(t, want, got)
		r.Annotations[holdfast.AnnotationItemsWith] = "children"
		got, err = v.Targets(t.Context(), r)
		require.NoError(t, err)
		require.Equal(t, []string{"b", "c", "x"}, got, "what comes along may live anywhere")
	}
}

// Later restores wait for one only where the backup has something that they may depend on.
func TestARestoreOfNamespacesAloneIsMarked(t *testing.T) {
	s := newShelf(t)
	s.putManifest("alone", s.putTarball("alone", "resources/configmaps/namespaces/a/c.json"), "a", "a")
	s.putManifest("shared", s.putTarball("shared", "resources/configmaps/namespaces/a/c.json"), "a", "a")
	s.putTarball("unknown", "resources/configmaps/namespaces/a/c.json")
	v := newValidator(t, s.bsl, storedBackup("alone", "", velerov1.BackupPhaseCompleted, 0), storedBackup("shared", "", velerov1.BackupPhaseCompleted, 0),
		storedBackup("unknown", "", velerov1.BackupPhaseCompleted, 0))
	for backup, alone := range map[string]bool{"alone": true, "shared": false, "unknown": false} {
		r := newRestore(velerov1.RestoreSpec{BackupName: backup})
		r.UID = "uid-r"
		got, err := v.Targets(t.Context(), r)
		require.NoError(t, err)
		require.Equal(t, []string{"a"}, got)
		require.Equal(t, alone, mark.WaitsOf(r).SharedDone, backup)
	}
}

// A backup that is expensive to read may have any namespace.
func TestTargetsOfALargeForeignBackupAreAll(t *testing.T) {
	s := newShelf(t)
	s.putTarball("large", "resources/configmaps/namespaces/a/c.json")
	require.NoError(t, os.Truncate(filepath.Join(s.root, layout.BackupTarball("large")), 33<<20))
	v := newValidator(t, s.bsl, storedBackup("large", "", velerov1.BackupPhaseCompleted, 0))
	got, err := v.Targets(t.Context(), newRestore(velerov1.RestoreSpec{BackupName: "large"}))
	require.NoError(t, err)
	require.Equal(t, []string{"*"}, got)
}

// What cannot be read is an error, and the caller goes by the spec alone.
func TestTargetsOfAnUnreadableBackup(t *testing.T) {
	s := newShelf(t)
	size := s.putTarball("damaged", "resources/configmaps/namespaces/a/c.json")
	s.putObject(layout.BackupManifest("damaged"), []byte("no manifest"))
	s.putObject(layout.BackupTarball("cut"), []byte("no tarball"))
	require.Positive(t, size)
	v := newValidator(t, s.bsl, storedBackup("damaged", "", velerov1.BackupPhaseCompleted, 0), storedBackup("cut", "", velerov1.BackupPhaseCompleted, 0),
		storedBackup("empty", "", velerov1.BackupPhaseFailed, 0))
	for _, backup := range []string{"damaged", "cut", "empty"} {
		_, err := v.Targets(t.Context(), newRestore(velerov1.RestoreSpec{BackupName: backup}))
		require.ErrorContains(t, err, backup)
		require.NotErrorIs(t, err, validate.ErrClusterUnread)
	}
	_, err := v.Targets(t.Context(), newRestore(velerov1.RestoreSpec{BackupName: "absent"}))
	require.ErrorIs(t, err, validate.ErrClusterUnread)
	require.ErrorContains(t, err, "absent")
}
