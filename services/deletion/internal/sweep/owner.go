package sweep

import (
	"context"
	"errors"

	"github.com/holdfast-io/holdfast/pkg/layout"
	"github.com/holdfast-io/holdfast/pkg/objectstore"
)

// ownerKind defines whose a directory is.
type ownerKind int

const (
	noneKind ownerKind = iota // no owner file
	oursKind
	foreignKind
	unreadableKind
)

// ownerFile is the content of an owner file.
type ownerFile struct {
	kind ownerKind
	uid  string
}

// readDirOwner reads whose a backup's directory is. The error is a fault of the store, not of the file.
func (j *usageInspector) readDirOwner(ctx context.Context, name string) (ownerFile, error) {
	return j.readOwner(ctx, layout.OwnerFile(name), func(data []byte) (string, string, error) {
		o, err := layout.DecodeOwner(data)
		return o.BackupUID, o.ClusterUID, err
	})
}

// restoreOwner reads whose the records of a restore are.
func (j *usageInspector) restoreOwner(ctx context.Context, name, uid string) (ownerFile, error) {
	return j.readOwner(ctx, layout.RestoreOwnerFile(name, uid), func(data []byte) (string, string, error) {
		o, err := layout.DecodeRestoreOwner(data)
		if err == nil && o.RestoreUID != uid {
			err = errors.New("the owner file is another restore's")
		}
		return o.RestoreUID, o.ClusterUID, err
	})
}

func (j *usageInspector) readOwner(ctx context.Context, key string, decode func([]byte) (uid, cluster string, err error)) (ownerFile, error) {
	data, err := objectstore.ReadAll(ctx, j.store, key, layout.MaxOwnerBytes)
	switch {
	case errors.Is(err, objectstore.ErrNotFound):
		return ownerFile{}, nil
	case errors.Is(err, objectstore.ErrSize):
		return ownerFile{kind: unreadableKind}, nil
	case err != nil:
		return ownerFile{}, err
	}
	uid, cluster, err := decode(data)
	switch {
	case err != nil:
		return ownerFile{kind: unreadableKind}, nil //nolint:nilerr // left alone as of an unknown owner
	case cluster != j.cluster:
		return ownerFile{kind: foreignKind}, nil
	}
	return ownerFile{kind: oursKind, uid: uid}, nil
}
