package finalize

import (
	"compress/gzip"
	"io"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/services/backup-runner/internal/checkpoint"
)

func volumesFile(t *testing.T, infos ...checkpoint.VolumeInfo) string {
	t.Helper()
	v := newVolumes(filepath.Join(t.TempDir(), "volumeinfo.json.gz"), "[]\n")
	defer v.close()
	for i := range infos {
		require.NoError(t, v.addInfos(infos[i:i+1]))
	}
	f, err := v.createFile()
	require.NoError(t, err)
	file, err := os.Open(f.Path)
	require.NoError(t, err)
	defer func() { require.NoError(t, file.Close()) }()
	zip, err := gzip.NewReader(file)
	require.NoError(t, err)
	text, err := io.ReadAll(zip)
	require.NoError(t, err)
	return string(text)
}

// Workers process claims in any order; a runner that takes over must publish what the first one
// would have.
func TestVolumesHaveAnOrderOfTheirOwn(t *testing.T) {
	t.Parallel()
	infos := []checkpoint.VolumeInfo{{PVCNamespace: "a", PVCName: "one"}, {PVCNamespace: "a", PVCName: "two", PVName: "v"}, {PVCNamespace: "b", PVCName: "one"}}
	want := volumesFile(t, infos...)
	require.Regexp(t, `^\[\{"pvcName":"one","pvcNamespace":"a",.*\},\{"pvcName":"two","pvcNamespace":"a",.*\},\{"pvcName":"one","pvcNamespace":"b",.*\}\]\n$`, want)
	slices.Reverse(infos)
	require.Equal(t, want, volumesFile(t, infos...))
	require.Equal(t, "[]\n", volumesFile(t))
}
