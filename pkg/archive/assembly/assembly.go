// Package assembly turns the sealed parts of a backup into what its readers see: the composed
// tarball, and, merged from the sidecars, the manifest, the resource list, the results and the log.
//
// Everything is a function of the Plan and the parts, byte for byte, so that a second owner of the
// backup arrives at the same objects and adopts those already published.
package assembly

import (
	"errors"
	"time"

	"github.com/holdfast-io/holdfast/pkg/archive/manifest"
	"github.com/holdfast-io/holdfast/pkg/archive/part"
	"github.com/holdfast-io/holdfast/pkg/joblog"
)

// ErrDiffers means that an object exists already and holds something else than what was to be
// published.
var ErrDiffers = errors.New("published object differs")

// PartRef is an uploaded part.
type PartRef struct {
	// Key of the data; unused when Size is 0.
	Key    string `json:"key,omitempty"`
	Size   int64  `json:"size"`
	SHA256 string `json:"sha256,omitempty"`
	// SidecarKey is never empty. SidecarSHA256 is checked when it is set.
	SidecarKey    string `json:"sidecarKey"`
	SidecarSHA256 string `json:"sidecarSHA256,omitempty"`
}

// Plan is what a backup is made of. Where two parts hold the same object the later one counts.
type Plan struct {
	// Backup is the name, UID the object's.
	Backup string
	UID    string
	Parts  []PartRef
	// ModTime is the time of the tarball's first entry: the backup's startTimestamp.
	ModTime time.Time
	// Header and Cuts go into the manifest. Header's Backup, UID and StartTime are filled in when
	// empty.
	Header manifest.Header
	Cuts   []manifest.Cut
	// Notes are log entries beside those of the sidecars.
	Notes []joblog.Entry
	// Stored, unless nil, is called for each stored object in the order of the manifest; live is that of its item. Ended
	// is called after the last one and returns further notes.
	Stored func(key manifest.Key, live bool) error
	Ended  func() ([]joblog.Entry, error)
	// LogField is the key of the field every log line carries: "backup" (the default) or "restore";
	// LogValue is its value, "<namespace>/<name>".
	LogField, LogValue string
}

// Result is what Compose made.
type Result struct {
	// Size of the tarball in bytes.
	Size int64
	// Adopted reports that it existed already with the same content.
	Adopted bool
}

// Merged is what Merge made: files of the work dir, each ready to be published, and the counts for
// the status.
type Merged struct {
	Manifest     part.File
	ResourceList part.File
	Results      part.File
	Log          part.File
	// Items counts stored objects, each once; Failed those that entered processing and were not
	// stored.
	Items, Failed int
	// Warnings and Errors count log entries of these levels.
	Warnings, Errors int
}
