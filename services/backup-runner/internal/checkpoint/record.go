// Package checkpoint keeps the durable progress of a backup: immutable records
// in the bucket, one for each sealed part, that nobody ever edits.
//
// The holder of an epoch numbers its records from 1 without gaps and creates
// each only if there is none; a number that is taken by other content means that
// another holder closed the epoch, and this one must stop.
package checkpoint

import (
	"encoding/json"
	"fmt"

	"github.com/holdfast-io/holdfast/services/backup-runner/internal/volume"
)

// formatVersion of records and compositions; another one is not understood.
const formatVersion = 1

// Record says what one sealed part holds.
type Record struct {
	FormatVersion int    `json:"formatVersion"`
	Backup        string `json:"backup"`
	UID           string `json:"uid"`
	Epoch         int64  `json:"epoch"`
	Seq           int64  `json:"seq"`
	// Part is the part, uploaded before the record.
	Part Part `json:"part"`
	// Ranges are the key ranges whose selected objects are in the part.
	Ranges []Range `json:"ranges,omitempty"`
	// Volumes are the volumes of the claims in the part.
	Volumes []volume.Info `json:"volumes,omitempty"`
}

// Part names a part and its sidecar in the bucket. A part without items has no
// object of its own: Key is empty then.
type Part struct {
	Key           string `json:"key,omitempty"`
	Size          int64  `json:"size,omitempty"`
	SHA256        string `json:"sha256,omitempty"`
	SidecarKey    string `json:"sidecarKey"`
	SidecarSize   int64  `json:"sidecarSize"`
	SidecarSHA256 string `json:"sidecarSha256"`
	Items         int    `json:"items"`
	Warnings      int    `json:"warnings"`
	Errors        int    `json:"errors"`
}

// Range is a contiguous piece of one list.
type Range struct {
	// Unit identifies the list.
	Unit string `json:"unit"`
	// Kind is the kind of the objects, as in the manifest; Namespace is set
	// where the list is of one namespace.
	Kind      string `json:"kind"`
	Namespace string `json:"namespace,omitempty"`
	// Revision is the revision the range was listed at.
	Revision string `json:"revision"`
	// Reason says why that is not the backup's first revision, if it is not.
	Reason string `json:"reason,omitempty"`
	// After is the last key ("namespace/name") before the range, Last the last
	// one in it; empty at the start of the list and when there was no object.
	After string `json:"after,omitempty"`
	Last  string `json:"last,omitempty"`
	// Continue is the token of the page after the range; empty with Done.
	Continue string `json:"continue,omitempty"`
	// Done is true when the list ends with this range.
	Done bool `json:"done,omitempty"`
}

func decode(data []byte, into any, version *int) error {
	if err := json.Unmarshal(data, into); err != nil {
		return err
	}
	if *version != formatVersion {
		return fmt.Errorf("formatVersion: %d is not supported", *version)
	}
	return nil
}
