// Package files reads single files of a backup's volumes from their repositories, without a volume. It writes the
// messages of VolumeService to a stream, each behind its length, and an empty one at the end, by which a stream that
// was cut is known.
package files

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"

	"github.com/kopia/kopia/snapshot"
	"google.golang.org/protobuf/encoding/protodelim"
	"google.golang.org/protobuf/proto"

	"github.com/holdfast-io/holdfast/pkg/errgrpc"
	"github.com/holdfast-io/holdfast/pkg/objectstore"
	"github.com/holdfast-io/holdfast/pkg/volumedata/repository"
	volumev1 "github.com/holdfast-io/holdfast/proto/gen/holdfast/volume/v1"
)

// dataBytes is how much content one message has.
const dataBytes = 128 << 10

// Reader reads files of one backup.
type Reader struct {
	// Location has the backup and the repositories.
	Location objectstore.Reader
	// Open opens the repository of a namespace, for reading.
	Open   func(ctx context.Context, namespace string) (*repository.Repository, error)
	Backup string
	// Volume selects volumes of the backup.
	Volume *volumev1.VolumeSelector
}

// List writes a ListFilesResponse for each entry of a directory, or for each volume if path is empty.
func (r *Reader) List(ctx context.Context, path string, out io.Writer) error {
	w := bufio.NewWriter(out)
	if path == "" {
		volumes, err := r.findVolumes(ctx)
		for _, v := range volumes {
			err = errors.Join(err, writeMessage(w, &volumev1.ListFilesResponse{Volume: v}))
		}
		return endStream(w, err)
	}
	return endStream(w, r.withEntry(ctx, path, func(repo *repository.Repository, e *snapshot.DirEntry) error {
		list := func(e *snapshot.DirEntry) error {
			return writeMessage(w, &volumev1.ListFilesResponse{File: describeEntry(e)})
		}
		if e.Type == snapshot.EntryTypeDirectory {
			return repo.EachEntry(ctx, e, list)
		}
		return list(e)
	}))
}

// Read writes a file as ReadFileResponses.
func (r *Reader) Read(ctx context.Context, path string, out io.Writer) error {
	w := bufio.NewWriter(out)
	return endStream(w, r.withEntry(ctx, path, func(repo *repository.Repository, e *snapshot.DirEntry) error {
		if e.Type != snapshot.EntryTypeFile {
			return errgrpc.Field("path", "%q is a %s, and no file", path, typeNames[fileTypeOf(e)])
		}
		content, err := repo.OpenObject(ctx, e.ObjectID)
		if err != nil {
			return repository.ReadError(ctx, err)
		}
		defer func() { _ = content.Close() }()
		if err := writeMessage(w, &volumev1.ReadFileResponse{File: describeEntry(e)}); err != nil {
			return err
		}
		return copyContent(ctx, w, content, path, e.FileSize)
	}))
}

func copyContent(ctx context.Context, w *bufio.Writer, content io.Reader, path string, size int64) error {
	buf := make([]byte, dataBytes)
	for sent := int64(0); ; {
		n, err := io.ReadFull(content, buf)
		if n > 0 {
			if err := writeMessage(w, &volumev1.ReadFileResponse{Data: buf[:n]}); err != nil {
				return err
			}
		}
		sent += int64(n)
		switch {
		case err == nil:
			continue
		case !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF):
			return repository.ReadError(ctx, err)
		case sent != size:
			return fmt.Errorf("%w: %q has %d bytes, and its directory says %d", repository.ErrDamaged, path, sent, size)
		}
		return nil
	}
}

// withEntry finds the entry at a path of the volume.
func (r *Reader) withEntry(ctx context.Context, path string, do func(*repository.Repository, *snapshot.DirEntry) error) (err error) {
	v, err := r.findVolume(ctx)
	if err != nil {
		return err
	}
	repo, err := r.Open(ctx, v.GetNamespace())
	if err == nil {
		defer func() { err = errors.Join(err, repo.Close(context.WithoutCancel(ctx))) }()
		var m *snapshot.Manifest
		if m, err = repo.LoadSnapshot(ctx, v.GetSnapshotId()); err == nil {
			var entries []*snapshot.DirEntry
			if entries, err = repo.FindPath(ctx, m.RootEntry, path); err == nil {
				err = do(repo, entries[len(entries)-1])
			}
		}
	}
	return classifyError(v, err)
}

var typeNames = map[volumev1.FileType]string{
	volumev1.FileType_FILE_TYPE_DIRECTORY: "directory", volumev1.FileType_FILE_TYPE_SYMLINK: "symbolic link", volumev1.FileType_FILE_TYPE_UNSPECIFIED: "thing of an unknown type",
}

func fileTypeOf(e *snapshot.DirEntry) volumev1.FileType {
	switch e.Type {
	case snapshot.EntryTypeFile:
		return volumev1.FileType_FILE_TYPE_FILE
	case snapshot.EntryTypeDirectory:
		return volumev1.FileType_FILE_TYPE_DIRECTORY
	case snapshot.EntryTypeSymlink:
		return volumev1.FileType_FILE_TYPE_SYMLINK
	}
	return volumev1.FileType_FILE_TYPE_UNSPECIFIED
}

func describeEntry(e *snapshot.DirEntry) *volumev1.File {
	f := &volumev1.File{
		Name: e.Name, Type: fileTypeOf(e), Size: e.FileSize, Mode: unixMode(fs.FileMode(e.Permissions)), Uid: e.UserID, Gid: e.GroupID, Modified: e.ModTime.ToTime().UnixNano(),
	}
	if e.DirSummary != nil {
		f.Size = e.DirSummary.TotalFileSize
	}
	return f
}

// unixMode returns the mode with setuid, setgid and sticky where Unix has them.
func unixMode(mode fs.FileMode) uint32 {
	out := uint32(mode.Perm())
	for bit, flag := range map[uint32]fs.FileMode{0o4000: fs.ModeSetuid, 0o2000: fs.ModeSetgid, 0o1000: fs.ModeSticky} {
		if mode&flag != 0 {
			out |= bit
		}
	}
	return out
}

// errWrite means that nobody reads the stream any more.
var errWrite = errors.New("write the answer")

func writeMessage(w *bufio.Writer, m proto.Message) error {
	if _, err := protodelim.MarshalTo(w, m); err != nil {
		return fmt.Errorf("%w: %w", errWrite, err)
	}
	return nil
}

// endStream ends a stream, unless what was to be written failed.
func endStream(w *bufio.Writer, err error) error {
	if err != nil {
		return err
	}
	return errors.Join(writeMessage(w, &volumev1.ListFilesResponse{}), w.Flush())
}
