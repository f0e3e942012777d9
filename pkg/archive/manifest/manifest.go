// Package manifest reads and writes manifest.json.gz, the list of everything in a backup's tarball.
//
// Gunzipped it is one JSON document: kinds, each holding namespaces, each holding items; an index
// from UID to tarball path; the cuts. The gzip stream consists of members of about a thousand
// items, and the last of them is a directory of the others, so that one item is found with two
// range reads. It is read and written as a stream in bounded memory.
package manifest

import (
	"errors"
	"time"
)

var (
	// ErrCorrupt means that the manifest is damaged, truncated or no manifest.
	ErrCorrupt = errors.New("corrupt manifest")
	// ErrOrder means that items were added out of order or twice.
	ErrOrder = errors.New("manifest items out of order")
	// ErrNotFound means that the manifest does not hold the item.
	ErrNotFound = errors.New("item not in manifest")
)

// Header is what is known of a backup before its items.
type Header struct {
	// FormatVersion is set by NewWriter.
	FormatVersion string `json:"formatVersion"`
	// Backup is the backup's name, UID its object's.
	Backup string `json:"backup"`
	UID    string `json:"uid,omitempty"`
	// Cluster identifies the cluster: the UID of its namespace kube-system.
	Cluster string `json:"cluster,omitempty"`
	// Revision is the cut most items were listed at.
	Revision string `json:"revision,omitempty"`
	// StartTime is the backup's startTimestamp.
	StartTime time.Time `json:"startTime,omitzero"`
	// Foreign reports that the items come from a tarball that another program wrote.
	Foreign bool `json:"foreign,omitempty"`
}

// Cut is the revision that a range of keys was listed at.
type Cut struct {
	Kind     string `json:"kind"`
	Revision string `json:"revision"`
	// From and To bound the range of "namespace/name", exclusive and inclusive; empty means
	// unbounded.
	From string `json:"from,omitempty"`
	To   string `json:"to,omitempty"`
	// Reason is why it is not the backup's cut, such as "compacted" or "aggregated".
	Reason string `json:"reason,omitempty"`
}

// Trailer is what is known of a backup after its items.
type Trailer struct {
	Cuts []Cut `json:"cuts"`
	// TarballSize is the length of the tarball in bytes, 0 when unknown.
	TarballSize int64 `json:"tarballSize,omitempty"`
	// TarballSHA256 is set where one reader saw the whole tarball.
	TarballSHA256 string `json:"tarballSHA256,omitempty"`
}
