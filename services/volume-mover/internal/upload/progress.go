package upload

import (
	"errors"
	"path"
	"sync/atomic"

	kopiaupload "github.com/kopia/kopia/snapshot/upload"

	"github.com/holdfast-io/holdfast/services/volume-mover/internal/outcome"
)

// uploadProgress gets what kopia reports of an upload.
type uploadProgress struct {
	kopiaupload.NullUploadProgress
	upload *kopiaUpload
	hashed atomic.Int64
}

var _ kopiaupload.Progress = (*uploadProgress)(nil)

// HashedBytes implements kopia's Progress.
func (p *uploadProgress) HashedBytes(n int64) {
	p.hashed.Add(n)
	p.upload.rec.AddDone(n)
}

// CachedFile implements kopia's Progress.
func (p *uploadProgress) CachedFile(_ string, n int64) { p.upload.rec.AddDone(n) }

// Error implements kopia's Progress: of errors of the volume the upload goes on without the entry, of
// others it ends.
func (p *uploadProgress) Error(name string, err error, _ bool) {
	var entry *outcome.EntryError
	if !errors.As(err, &entry) {
		p.upload.failUpload(err)
		return
	}
	p.upload.rec.Add(path.Clean(name), entry.Rule, entry.Err)
}
