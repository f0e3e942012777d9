// Package layout names every object of a backup location, relative to the location's root.
//
// The names of backups/ and restores/ are Velero 1.18's, so that each system reads what the other
// wrote. Holdfast's own objects are inside of them: Velero makes a location Unavailable when it
// finds other top-level directories.
package layout

import (
	"errors"
	"fmt"
	"strings"
)

// Directories that Velero has right under a location's root.
const (
	// BackupsDir holds one directory for each backup.
	BackupsDir = "backups/"
	// RestoresDir holds one directory for each restore.
	RestoresDir = "restores/"
	// MetadataDir holds data about the location itself.
	MetadataDir = "metadata/"
	// PluginsDir is left to plugins.
	PluginsDir = "plugins/"
	// KopiaDir holds kopia repositories of volume data.
	KopiaDir = "kopia/"
	// ResticDir holds restic repositories of old volume data.
	ResticDir = "restic/"
)

// ErrInvalidName means that a backup or restore name cannot be part of a key.
var ErrInvalidName = errors.New("invalid name")

// TopLevel lists the directories allowed right under a location's root, as ListPrefixes returns
// them.
func TopLevel() []string {
	return []string{BackupsDir, KopiaDir, MetadataDir, PluginsDir, ResticDir, RestoresDir}
}

// CheckName reports whether name can be a backup's or restore's directory. Names of Kubernetes
// objects always can; names that users type into other objects (a deletion or download request) are
// checked with it first.
func CheckName(name string) error {
	switch {
	case name == "":
		return fmt.Errorf("%w: empty", ErrInvalidName)
	case len(name) > 253:
		return fmt.Errorf("%w: %d bytes, at most 253 are allowed", ErrInvalidName, len(name))
	case name == "." || name == ".." || strings.ContainsAny(name, "/\\"):
		return fmt.Errorf("%w: %q", ErrInvalidName, name)
	}
	for _, r := range name {
		if r <= 0x20 || r >= 0x7f {
			return fmt.Errorf("%w: %q holds a character outside printable ASCII", ErrInvalidName, name)
		}
	}
	return nil
}
