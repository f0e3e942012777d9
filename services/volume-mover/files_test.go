package main

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protodelim"
	"google.golang.org/protobuf/proto"

	"github.com/holdfast-io/holdfast/pkg/layout"
	volumev1 "github.com/holdfast-io/holdfast/proto/gen/holdfast/volume/v1"
	"github.com/holdfast-io/holdfast/services/volume-mover/internal/command"
	"github.com/holdfast-io/holdfast/services/volume-mover/internal/files"
)

// readMessages returns the messages of a stream but the empty one at its end, which has to be there.
func readMessages[M any, P interface {
	*M
	proto.Message
}](t *testing.T, stream []byte) (all []P) {
	t.Helper()
	r := bufio.NewReader(bytes.NewReader(stream))
	for {
		m := P(new(M))
		err := protodelim.UnmarshalFrom(r, m)
		if errors.Is(err, io.EOF) {
			require.NotEmpty(t, all, "there is an end mark")
			require.Zero(t, proto.Size(all[len(all)-1]), "there is an end mark")
			return all[:len(all)-1]
		}
		require.NoError(t, err)
		all = append(all, m)
	}
}

// files runs `volume-mover files`.
func (b *bed) files(args ...string) ([]byte, error) {
	b.t.Helper()
	var out, log bytes.Buffer
	args = append(append([]string{"files", args[0], "--backup=b"}, b.common...), args[1:]...)
	code := command.Execute(b.t.Context(), args, &out, &log)
	if code == 0 {
		return out.Bytes(), nil
	}
	err := files.DecodeExit(code, strings.TrimSpace(log.String()))
	require.Error(b.t, err, "%d %s", code, log.String())
	return nil, err
}

// record writes a file of a backup that lists volumes.
func (b *bed) record(key string, volumes ...map[string]any) {
	b.t.Helper()
	var zipped bytes.Buffer
	w := gzip.NewWriter(&zipped)
	require.NoError(b.t, errors.Join(json.NewEncoder(w).Encode(volumes), w.Close()))
	mustWrite(b.t, filepath.Join(b.bucket, key), zipped.String())
}

func recordedVolume(pod, claim, snapshot, uploader string) map[string]any {
	return map[string]any{
		"metadata": map[string]any{"annotations": map[string]string{"velero.io/pvc-name": claim}},
		"spec":     map[string]any{"pod": map[string]string{"namespace": "app", "name": pod}, "volume": "data", "uploaderType": uploader},
		"status":   map[string]any{"snapshotID": snapshot, "progress": map[string]int64{"totalBytes": 7}},
	}
}

func TestFilesOfABackup(t *testing.T) {
	b := newBed(t)
	source := t.TempDir()
	large := strings.Repeat("0123456789abcdef", 50_000)
	mustWrite(t, filepath.Join(source, "etc", "config"), "content")
	mustWrite(t, filepath.Join(source, "etc", "a\nb"), "")
	mustWrite(t, filepath.Join(source, "large"), large)
	require.NoError(t, os.Chmod(filepath.Join(source, "large"), 0o640|os.ModeSetuid))
	require.NoError(t, os.Symlink("large", filepath.Join(source, "link")))
	first, second := b.upload(source, "web-0").SnapshotID, b.upload(source, "web-1").SnapshotID
	moved := b.run(t.Context(), "upload", "--source", source, "--volume=data-4", "--operation-id=o").SnapshotID
	b.record(layout.BackupVolumeInfo("b"),
		map[string]any{"backupMethod": "PodVolumeBackup", "pvcName": "data-0", "pvcNamespace": "app", "pvbInfo": map[string]any{"snapshotHandle": first, "podName": "web-0"}},
		map[string]any{"backupMethod": "CSISnapshot", "pvcName": "data-4", "pvcNamespace": "app", "snapshotDataMoved": true, "snapshotDataMovementInfo": map[string]any{"snapshotHandle": moved}},
		map[string]any{"backupMethod": "CSISnapshot", "pvcName": "data-5", "pvcNamespace": "app", "csiSnapshotInfo": map[string]any{"snapshotHandle": "s"}})
	b.record(layout.BackupPodVolumeBackups("b"), recordedVolume("web-0", "data-0", first, "kopia"), recordedVolume("web-1", "data-1", second, ""), recordedVolume("web-2", "", "gone", "kopia"), recordedVolume("web-3", "data-3", "r", "restic"))

	out, err := b.files("list")
	require.NoError(t, err)
	var volumes []string
	for _, m := range readMessages[volumev1.ListFilesResponse](t, out) {
		require.Equal(t, m.GetVolume().GetClaim() != "data-4", m.GetVolume().GetSize() == 7, "only a request knows it")
		volumes = append(volumes, m.GetVolume().GetPod()+" "+m.GetVolume().GetClaim()+" "+m.GetVolume().GetSnapshotId())
	}
	require.Equal(t, []string{"web-0 data-0 " + first, "web-1 data-1 " + second, " data-4 " + moved, "web-2  gone"}, volumes)

	list := func(path string) (found []string) {
		out, err := b.files("list", "--claim=data-0", "--path="+path)
		require.NoError(t, err)
		for _, m := range readMessages[volumev1.ListFilesResponse](t, out) {
			found = append(found, m.GetFile().GetType().String()[len("FILE_TYPE_"):]+" "+m.GetFile().GetName())
		}
		return found
	}
	require.Equal(t, []string{"DIRECTORY etc", "FILE large", "SYMLINK link"}, list("/"))
	require.Equal(t, []string{"FILE a\nb", "FILE config"}, list("../etc/"))
	require.Equal(t, []string{"FILE config"}, list("etc/config"))
	out, err = b.files("read", "--claim=data-4", "--path=/etc/config")
	require.NoError(t, err)
	require.Equal(t, "content", string(readMessages[volumev1.ReadFileResponse](t, out)[1].GetData()))

	out, err = b.files("read", "--pod=web-1", "--volume=data", "--path=large")
	require.NoError(t, err)
	read := readMessages[volumev1.ReadFileResponse](t, out)
	var content []byte
	for _, m := range read[1:] {
		content = append(content, m.GetData()...)
	}
	require.Equal(t, large, string(content))
	require.Equal(t, "large", read[0].GetFile().GetName())
	require.Equal(t, int64(len(large)), read[0].GetFile().GetSize())
	require.Equal(t, uint32(0o4640), read[0].GetFile().GetMode())
	out, err = b.files("read", "--claim=data-0", "--path=etc/a\nb")
	require.NoError(t, err)
	require.Len(t, readMessages[volumev1.ReadFileResponse](t, out), 1, "an empty file has no data")

	for name, c := range map[string]struct {
		args []string
		code codes.Code
		text string
	}{
		"no such claim":   {[]string{"read", "--claim=none", "--path=large"}, codes.NotFound, `a volume of that name with files in backup "b": not found`},
		"several volumes": {[]string{"list", "--path=/"}, codes.InvalidArgument, "several match, name one with its namespace: data-0 in namespace app, data-1 in namespace app, data-4 in namespace app, web-2/data in namespace app"},
		"restic":          {[]string{"list", "--claim=data-3", "--path=/"}, codes.NotFound, "the backup has no files of the volume, but PodVolumeBackup of claim app/data-3"},
		"a CSI snapshot":  {[]string{"list", "--claim=data-5", "--path=/"}, codes.NotFound, "but CSISnapshot of claim app/data-5: not found"},
		"snapshot gone":   {[]string{"list", "--pod=web-2", "--path=/"}, codes.NotFound, "the repository does not have the snapshot: gone"},
		"no such path":    {[]string{"list", "--claim=data-0", "--path=etc/none/x"}, codes.NotFound, `"etc/none/x" in the volume: not found`},
		"below a file":    {[]string{"read", "--claim=data-0", "--path=large/x"}, codes.NotFound, `"large/x" in the volume: not found`},
		"a directory":     {[]string{"read", "--claim=data-0", "--path=etc"}, codes.InvalidArgument, `"etc" is a directory, and no file`},
		"a link":          {[]string{"read", "--claim=data-0", "--path=link"}, codes.InvalidArgument, `"link" is a symbolic link, and no file`},
	} {
		_, err := b.files(c.args...)
		require.Equal(t, c.code, status.Code(err), "%s: %v", name, err)
		require.ErrorContains(t, err, c.text, name)
	}

	mustWrite(t, b.passwordFile(), "another")
	_, err = b.files("list", "--claim=data-0", "--path=/")
	require.Equal(t, codes.FailedPrecondition, status.Code(err), "%v", err)
	require.ErrorContains(t, err, "repository of namespace app: wrong repository password")
}
