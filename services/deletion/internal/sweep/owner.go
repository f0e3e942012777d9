package sweep

import (
	"context"
	"errors"

	"github.com/holdfast-io/holdfast/pkg/layout"
	"github.com/holdfast-io/holdfast/pkg/objectstore"
)

// ownerKind says whose a directory is.
type ownerKind int

const (
	nobodyKind ownerKind = iota // no owner file
	oursKind
	foreignKind
	unreadableKind
)

// owner is what an owner file says.
type owner struct {
	kind ownerKind
	uid  string
}

// owner reads whose a backup's directory is. The error is a fault of the store, not of the file.
func (p *pass) owner(ctx context.Context, name string) (owner, error) {
	return p.readOwner(ctx, layout.OwnerFile(name), func(data []byte) (string, string, error) {
		o, err := layout.DecodeOwner(data)
		return o.BackupUID, o.ClusterUID, err
	})
}

// restoreOwner reads whose the records of a restore are.
func (p *pass) restoreOwner(ctx context.Context, name, uid string) (owner, error) {
	return p.readOwner(ctx, layout.RestoreOwnerFile(name, uid), func(data []byte) (string, string, error) {
		o, err := layout.DecodeRestoreOwner(data)
		if err == nil && o.RestoreUID != uid {
			err = errors.New("the owner file is another restore's")
		}
		return o.RestoreUID, o.ClusterUID, err
	})
}

func (p *pass) readOwner(ctx context.Context, key string, decode func([]byte) (uid, cluster string, err error)) (owner, error) {
	data, err := objectstore.ReadAll(ctx, p.store, key, layout.MaxOwnerBytes)
	switch {
	case errors.Is(err, objectstore.ErrNotFound):
		return owner{}, nil
	case errors.Is(err, objectstore.ErrSize):
		return owner{kind: unreadableKind}, nil
	case err != nil:
		return owner{}, err
	}
	uid, cluster, err := decode(data)
	switch {
	case err != nil:
		return owner{kind: unreadableKind}, nil //nolint:nilerr // it says nothing, so the directory is left alone
	case cluster != p.mine:
		return owner{kind: foreignKind}, nil
	}
	return owner{kind: oursKind, uid: uid}, nil
}

// ours reports whether a directory may be looked at further, and counts it otherwise.
func (p *pass) ours(o owner, dir string) bool {
	switch o.kind {
	case oursKind:
		return true
	case foreignKind:
		p.count.foreign++
	case unreadableKind:
		p.count.unreadable++
		p.log.Warn("owner file cannot be read, its directory is left alone", "directory", dir)
	case nobodyKind:
		p.count.unowned++
	}
	return false
}
