// Package part writes the pieces a backup's tarball is composed of.
//
// A part is a run of gzip members that hold whole tar entries, so that parts written by any number
// of workers can be concatenated in any order. Its sidecar holds what the manifest, the resource
// list, the log and the results need to know of it. Both are files of the work dir; a Writer's
// memory does not grow with the number of its items.
package part

import (
	"errors"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/holdfast-io/holdfast/pkg/archive/manifest"
	"github.com/holdfast-io/holdfast/pkg/json/jsonlist"
	"github.com/holdfast-io/holdfast/pkg/kube/objmeta"
)

var (
	// ErrInvalidItem means that an item cannot be stored; the message names the field. The part is
	// unharmed.
	ErrInvalidItem = errors.New("invalid item")
	// ErrMark means that a Mark is of another Writer or lies behind the Writer's end.
	ErrMark = errors.New("mark does not belong to this part")
	// ErrSealed means that the Writer was sealed or discarded.
	ErrSealed = errors.New("part is sealed")
	// ErrCorrupt means that a sidecar cannot be read.
	ErrCorrupt = errors.New("corrupt sidecar")
)

// Defaults used where Config leaves a field at zero.
const (
	// DefaultMemberBytes is the tar bytes of a gzip member: one item can be read with little waste,
	// and compression is as good as in one long stream.
	DefaultMemberBytes = 1 << 20
	// DefaultLevel is the compression level (klauspost/compress: 1 fastest to 9 smallest).
	DefaultLevel = 1
)

// Config is where and how parts are written.
type Config struct {
	// Dir holds the files; it must exist.
	Dir string
	// MemberBytes is how many bytes of tar go into one gzip member before it is closed at the end
	// of an item.
	MemberBytes int
	// Level of compression.
	Level int
	// ModTime is the time of every tar entry. Parts of one backup use its startTimestamp, so that a
	// part written again is the same.
	ModTime time.Time
	// Single leaves out the second entry, <version>-preferredversion, for copies that only Holdfast
	// reads.
	Single bool
	// IndexOnly makes a sidecar alone, for objects that are stored elsewhere: their places are 0.
	IndexOnly bool
}

// Item is one object to store.
type Item struct {
	GVK schema.GroupVersionKind
	// Resource is the plural, such as "deployments".
	Resource string
	// Preferred reports that GVK's version is the preferred one of the resource: it decides the
	// paths (Velero 1.18 layout).
	Preferred bool
	// Meta is read during the call only.
	Meta *objmeta.Meta
	// Raw is the JSON object as listed; it is read during the call only.
	Raw []byte
	// Envelope of Raw, where it is known.
	Envelope jsonlist.Envelope
	// HasTypeMeta reports that Raw holds apiVersion and kind; if not, it holds neither and they are
	// added in front.
	HasTypeMeta bool
	// Spaced reports that Raw is not compact; it is made so.
	Spaced bool
	// Stored is the body as it is stored elsewhere, white space included; only IndexOnly uses it.
	Stored []byte
	// Live reports that the object was fetched on its own, outside the cut.
	Live bool
	// Extra reports that the filters of the backup do not select the object.
	Extra bool
	// Cut is the revision the object was listed at, when it is not the backup's.
	Cut string
	// Actions are the names of the actions applied.
	Actions []string
	// References are what the body refers to, for the manifest.
	References []manifest.Reference
}

// File is a file of the work dir. Its receiver removes it.
type File struct {
	Path string
	Size int64
	// SHA256 of the content in hex.
	SHA256 string
}

// Sealed is a finished part.
type Sealed struct {
	// Data holds gzip members; Size 0 when no item was added (there is nothing to upload then).
	Data File
	// Sidecar is never empty.
	Sidecar File
	// Items counts stored objects, Failed those given to Fail.
	Items, Failed int
	// Warnings and Errors count noted log lines.
	Warnings, Errors int
}
